"""Random functions of a message that `where` may read, as texts, with loops inside each other."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass
class Part:
    weight: int
    code: str


@dataclass
class Item:
    price: int
    is_new: bool
    parts: list[Part]
    codes: list[str]


@dataclass
class Order:
    quantity: int
    is_open: bool
    items: list[Item]
    codes: list[str]
    spare: Part | None = None


_CODES = ("a", "b", "ab")
_LOOPS = {
    Order: [("items", Item), ("codes", str)],
    Item: [("parts", Part), ("codes", str)],
    Part: [],
    str: [],
}


def random_order(rng: Random) -> Order:
    def codes() -> list[str]:
        return [rng.choice(_CODES) for _ in range(rng.randrange(3))]

    def part() -> Part:
        return Part(rng.randrange(3), rng.choice(_CODES))

    def item() -> Item:
        parts = [part() for _ in range(rng.randrange(3))]
        return Item(rng.randrange(3), rng.random() < 0.5, parts, codes())

    items = [item() for _ in range(rng.randrange(3))]
    spare = part() if rng.random() < 0.5 else None
    return Order(rng.randrange(3), rng.random() < 0.5, items, codes(), spare)


class FunctionTexts:
    """Writes the body of a function; every variable in sight may be asked anywhere."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def condition(self, known: dict[str, type], depth: int) -> str:
        rng = self._rng
        match rng.randrange(8 if depth else 3):
            case 3 | 4:
                join = rng.choice((" and ", " or "))
                return f"({join.join(self.condition(known, depth - 1) for _ in range(2))})"
            case 5:
                return f"(not {self.condition(known, depth - 1)})"
            case 6 | 7:
                return self._loop(known, depth)
            case _:
                # The innermost variable more often than the others.
                name = rng.choice([*known, [*known][-1]])
                return self._atom(name, known[name])

    def _loop(self, known: dict[str, type], depth: int) -> str:
        rng = self._rng
        over = [(name, *loop) for name, cls in known.items() for loop in _LOOPS[cls]]
        if not over:
            # All that have elements are hidden by variables of the same names.
            return self.condition(known, 0)
        name, several, element = rng.choice(over)
        # Sometimes it hides a variable of the same name.
        variable = rng.choice(("t", "x")) if rng.random() < 0.1 else f"v{len(known)}"
        inside = {key: cls for key, cls in known.items() if key != variable} | {variable: element}
        test = (
            f" if {self.condition(inside, depth - 2)}" if depth > 2 and rng.random() < 0.3 else ""
        )
        said = self.condition(inside, depth - 1)
        return f"{rng.choice(('any', 'all'))}({said} for {variable} in {name}.{several}{test})"

    def _atom(self, name: str, cls: type) -> str:
        rng, number, code = self._rng, self._rng.randrange(3), self._rng.choice(_CODES)
        sign = rng.choice(("==", "!=", "<", ">="))
        text = rng.choice((f"== {code!r}", f"in ('a', {code!r})", f"!= {code!r}"))
        atoms = {
            Order: [
                f"{name}.quantity {sign} {number}",
                f"{name}.is_open",
                f"{code!r} in {name}.codes",
                f"{name}.spare is None",
                f"isinstance({name}, Order)",
            ],
            Item: [f"{name}.price {sign} {number}", f"{name}.is_new", f"{code!r} in {name}.codes"],
            Part: [f"{name}.weight {sign} {number}", f"{name}.code {text}"],
            str: [f"{name} {text}", f"{name}.startswith({code!r})"],
        }
        return rng.choice(atoms[cls])


def function_of(body: str, number: int, constant: object = None) -> Callable[[Any], Any]:
    """Return a lambda whose source Python can show, and which may name a constant."""
    text, file = f"function = lambda t: {body}\n", f"<random function {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"Order": Order, "constant": constant}
    exec(compile(text, file, "exec"), namespace)  # noqa: S102 - our own text
    function: Callable[[Any], Any] = namespace["function"]
    return function
