"""Random classes, objects that keep their promises or do not, and patterns over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any, Final
from uuid import UUID

from tamis.objects import ObjectFilter, message, register_comparison
from tamis.objects.building import StandIn


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Rank(Enum):
    LOW = Decimal("0.1")
    HIGH = 2


def is_near(value: Any, constant: Any) -> bool:
    """Raise for what is no number, as a user's comparison may."""
    return bool(abs(value - constant) <= 1)


register_comparison("is near", is_near)

NUMBERS: Final = (0, 1, 2, -1, 2**53, 2**53 + 1)
DECIMALS: Final = (
    *map(
        Decimal, ("0.1", "0.10", "1", "2.5", "-1", "0.1000000000000000000001", "9007199254740993")
    ),
    *map(Decimal, ("9007199254740993.5", "18014398509481985.4", "1E+30", "1E-400")),
)
TEXTS: Final = ("", "a", "ab", "ba", "abc", "buy")
DAYS: Final = (date(2026, 1, 1), date(2026, 1, 2))
UUIDS: Final = (UUID(int=1), UUID(int=2))
POOLS: Final[dict[Any, Sequence[Any]]] = {
    int: NUMBERS,
    float: (0.0, 0.1, 1.5, 2.0, float(2**53)),
    Decimal: DECIMALS,
    str: TEXTS,
    bool: (True, False),
    date: DAYS,
    UUID: UUIDS,
    bytes: (b"", b"a", b"a\0"),
    Side: tuple(Side),
    Rank: tuple(Rank),
}
STRANGE: Final[tuple[Any, ...]] = (
    *(None, None, 1, "a", 0.1, Decimal("0.1"), True, 2**70, float("nan"), Decimal("NaN"), object()),
    *((1, "ab"), [], ["a", [Decimal("0.1"), None]], {"a": 1}, "\ud800", Side.BUY, date(2026, 1, 1)),
)
FORMS: Final = ("field", "property", "method", "with argument")


class Member:
    """A member of a random class: its form, and what it promises."""

    def __init__(self, name: str, form: str, promise: Any, pool: Callable[[Random], Any]) -> None:
        self.name = name
        self.form = form
        self.promise = promise
        self.pool = pool

    def ask(self, rng: Random, stand_in: StandIn) -> Any:
        found = getattr(stand_in, self.name)
        if self.form == "method":
            return found()
        return found(rng.choice((0, 1))) if self.form == "with argument" else found


class World:
    """Some random classes, which may hold each other."""

    def __init__(self, rng: Random) -> None:
        self._known: dict[type, list[Member]] = {}
        self.leaf = self._class(rng, "Leaf", {})
        node = self._class(rng, "Node", {"child": self.leaf, "leaves": list[self.leaf]})  # type: ignore[name-defined]
        root = self._class(rng, "Root", {"node": node, "nodes": list[node]})  # type: ignore[valid-type]
        base = root, self._known[root]
        derived = type("Derived", (base[0],), {"__module__": __name__})
        self.roots = (base, (derived, base[1]))

    def _class(self, rng: Random, name: str, nested: dict[str, Any]) -> type:
        members = [
            *_own_members(rng),
            *(self._holder(rng, key, held) for key, held in nested.items()),
        ]
        made = class_of(name, members)
        self._known[made] = members
        return made

    def _holder(self, rng: Random, name: str, held: Any) -> Member:
        [cls] = getattr(held, "__args__", (held,))

        def one(rng: Random) -> Any:
            return self.make(rng, cls, self._known[cls], honest=rng.random() < 0.8)

        if held is cls:
            return Member(name, rng.choice(FORMS), cls | None, one)
        return Member(
            name, rng.choice(FORMS), held, lambda r: [one(r) for _ in range(r.randrange(3))]
        )

    def classes(self) -> list[type]:
        return [*self._known, self.roots[1][0]]

    def members_of(self, cls: type) -> list[Member] | None:
        return self._known.get(cls)

    def make(self, rng: Random, cls: type, members: Sequence[Member], honest: bool) -> Any:
        made: Any = object.__new__(cls)
        hidden = made.__dict__["_hidden"] = {}
        for member in members:
            value = self._value(rng, member, honest)
            if member.form == "field":
                if not isinstance(value, Exception):
                    made.__dict__[member.name] = value
            else:
                hidden[member.name] = value
        return made

    def _value(self, rng: Random, member: Member, honest: bool) -> Any:
        if not honest and rng.random() < 0.25:
            return rng.choice((*STRANGE, ValueError("no"), AttributeError("no")))
        return member.pool(rng)

    def roots_of(self, rng: Random, count: int, *, honest: bool = False) -> list[Any]:
        return [self.make(rng, *rng.choice(self.roots), honest) for _ in range(count)]


def _own_members(rng: Random) -> list[Member]:
    return [_own_member(rng, f"m{number}") for number in range(rng.randint(2, 5))]


def _own_member(rng: Random, name: str) -> Member:
    promise: Any = rng.choice([*POOLS])
    form = rng.choice(FORMS)
    pool = POOLS[promise]
    if rng.random() < 0.3:
        return Member(
            name, form, list[promise], lambda r: [r.choice(pool) for _ in range(r.randrange(4))]
        )
    promised = promise | None if rng.random() < 0.2 else promise
    return Member(name, form, promised, lambda r: r.choice(pool))


def class_of(name: str, members: Sequence[Member]) -> type:
    """Make a class that has these members."""
    body: dict[str, Any] = {"__module__": __name__, "__annotations__": {}}
    for member in members:
        if member.form == "field":
            body["__annotations__"][member.name] = member.promise
        else:
            body[member.name] = _accessor_of(member)
    return type(name, (), body)


def _accessor_of(member: Member) -> Any:
    name, promise = member.name, member.promise

    def read(self: Any) -> Any:
        value = self._hidden[name]
        if isinstance(value, Exception):
            raise value
        return value

    def read_with(self: Any, argument: int) -> Any:
        value = read(self)
        return value if not isinstance(value, int) or isinstance(value, bool) else value + argument

    read.__annotations__ = {"return": promise}
    read_with.__annotations__ = {"argument": int, "return": promise}
    if member.form == "property":
        return property(read)
    return read if member.form == "method" else read_with


# --- patterns --------------------------------------------------------------------------------


class Patterns:
    """Random patterns over the classes of a world."""

    def __init__(self, rng: Random, world: World) -> None:
        self._rng = rng
        self._world = world

    def pattern(self, depth: int = 3) -> Any:
        cls, members = self._rng.choice(self._world.roots)
        typed = self._rng.random() < 0.7
        return self._combined(
            lambda: self.condition(message(cls if typed else None), members), depth
        )

    def _combined(self, atom: Callable[[], ObjectFilter], depth: int) -> Any:
        rng = self._rng
        if depth == 0 or rng.random() < 0.3:
            return atom()
        one = self._combined(atom, depth - 1)
        match rng.randrange(8):
            case 0 | 1 | 2:
                return one & self._combined(atom, depth - 1)
            case 3 | 4:
                return one | self._combined(atom, depth - 1)
            case 5:
                return ~one
            case 6:
                return one ^ self._combined(atom, depth - 1)
            case _:
                return rng.choice((one.nand, one.nor))(self._combined(atom, 0))

    def condition(self, stand_in: StandIn, members: Sequence[Member]) -> Any:
        rng = self._rng
        member = rng.choice(list(members))
        found = member.ask(rng, stand_in)
        classes = [member.promise, *getattr(member.promise, "__args__", ())]
        inner = next(
            (m for m in map(self._world.members_of, filter(_is_class, classes)) if m), None
        )
        if inner is not None:
            if getattr(member.promise, "__origin__", None) is list:
                depth = rng.randrange(3)
                quantify = found.all if rng.random() < 0.4 else found.any
                return quantify(
                    lambda each: self._combined(lambda: self.condition(each, inner), depth)
                )
            if rng.random() < 0.85:
                return self.condition(found, inner)
            cls = next(filter(_is_class, classes[1:]))
            return rng.choice((found.is_present, found.is_absent, lambda: found.is_a(cls)))()
        return self._test(found, member)

    def _test(self, found: StandIn, member: Member) -> Any:
        rng = self._rng
        several = getattr(member.promise, "__origin__", None) is list
        args = getattr(member.promise, "__args__", None) or (member.promise,)
        promise = next(one for one in args if one in POOLS)
        pool = (
            *POOLS[promise],
            *(DECIMALS if promise in (int, float) and rng.random() < 0.2 else ()),
        )
        constant = rng.choice(pool)
        if rng.random() < 0.1:
            return rng.choice((found.is_present, found.is_absent))()
        if promise in (int, Decimal) and rng.random() < 0.15:
            return found.compare("is near", rng.choice(POOLS[promise]))
        if several:
            if rng.random() < 0.5:
                return found.contains(constant)
            quantify = found.all if rng.random() < 0.4 else found.any
            return quantify(lambda each: self._compared(each, promise, pool))
        return self._compared(found, promise, pool)

    def _compared(self, found: StandIn, promise: Any, pool: Sequence[Any]) -> Any:
        rng, constant = self._rng, self._rng.choice(pool)
        if promise is str and rng.random() < 0.5:
            test = rng.choice(
                (found.contains, found.startswith, found.endswith, found.like, found.matches)
            )
            return test(constant)
        if rng.random() < 0.2:
            return found.in_(*rng.sample(pool, min(2, len(pool))))
        if promise in (bool, Side) or rng.random() < 0.4:
            return rng.choice((lambda: found == constant, lambda: found != constant))()
        orders = (
            lambda: found < constant,
            lambda: found <= constant,
            lambda: found > constant,
            lambda: found >= constant,
        )
        return rng.choice(orders)()


def _is_class(given: Any) -> bool:
    return isinstance(given, type)
