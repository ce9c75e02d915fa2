"""Filters over objects: the paper's figures 17, 20 and 21, `python -m benchmarks.objects`.

Figure 17 compares invocations: with a look-up by name, of a function that was looked up, and in
compiled code, by the number of arguments. The others compare four ways of evaluating accessors, and
the engine, which does what the paper only announces: one generated function per class for all
accessors. Every subscription is one condition on one accessor, as in the paper: up to `a` nested
invocations, each of one of `d` methods, then a value that equals its constant in one of `c`
messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.harness import Contender, Row, agree, fitting, measure, options
from benchmarks.reporting import Sheet, crossed, report
from tamis import Engine
from tamis.objects import ObjectFilter, message
from tamis.objects.accessors import AccessorFailures, ByName, CallStep
from tamis.objects.generation import generate_extractor
from tamis.objects.schemes import ByType, InvocationTree, StaticCode

TITLE = "Filters over objects"
REPEATS: Final = 5
MESSAGES: Final = 4_096
METHODS: Final = 10
ARGUMENTS: Final = (0, 1, 2, 4, 6, 8, 10)
CALLS: Final = 20_000
SUBSCRIPTIONS: Final = (1, 10, 100, 1_000, 10_000, 100_000)
# A scheme that evaluates every filter would take seconds for a message beyond this.
MOST_EVALUATED: Final = 10_000
ONE_IN: Final = (1, 2, 5, 10, 100)
NESTING: Final = (0, 1, 2, 4, 8)
DISTINCT: Final = (1, 2, 4, 10)
USUAL_SUBSCRIPTIONS: Final = 100
USUAL_ONE_IN: Final = 10
USUAL_NESTING: Final = 3
USUAL_DISTINCT: Final = 3
Counts = NDArray[np.int64]


def _step(number: int) -> Callable[[Any], Any]:
    def step(self: Any) -> Any:
        return self.parts[number]

    return step


class Part:
    """A message, or a part of one: ten methods lead to its parts, and one to its value."""

    __slots__ = ("number", "parts")

    def __init__(self, number: int) -> None:
        self.number = number
        self.parts: Sequence[Part] = ()

    def value(self, *_: object) -> int:
        """Return the value, whatever the arguments."""
        return self.number


for _number in range(METHODS):
    _method = _step(_number)
    _method.__annotations__ = {"return": Part}
    setattr(Part, f"step{_number}", _method)
Part.value.__annotations__ = {"return": int}


class Case(NamedTuple):
    """One setting of the four parameters."""

    subscriptions: int = USUAL_SUBSCRIPTIONS
    one_in: int = USUAL_ONE_IN
    nesting: int = USUAL_NESTING
    distinct: int = USUAL_DISTINCT

    def filters(self, rng: Random) -> list[ObjectFilter]:
        """Return the conditions of the subscriptions."""
        return [self._filter(rng) for _ in range(self.subscriptions)]

    def _filter(self, rng: Random) -> ObjectFilter:
        found = message(Part)
        for _ in range(rng.randint(0, self.nesting)):
            found = getattr(found, f"step{rng.randrange(self.distinct)}")()
        condition: ObjectFilter = found.value() == rng.randrange(self.one_in)
        return condition

    def messages(self, rng: Random, count: int) -> list[Part]:
        """Return messages: parts are shared, so that deep ones take no exponential memory."""
        level = [Part(rng.randrange(self.one_in)) for _ in range(64)]
        for _ in range(self.nesting):
            above = [Part(rng.randrange(self.one_in)) for _ in range(64)]
            for part in above:
                part.parts = rng.choices(level, k=METHODS)
            level = above
        found = [Part(rng.randrange(self.one_in)) for _ in range(count)]
        for part in found:
            part.parts = rng.choices(level, k=METHODS)
        return found


# --- the schemes -----------------------------------------------------------------------------


def _count(messages: Iterable[Part], filters: Sequence[ObjectFilter], read: Any) -> Counts:
    found = [sum(one.truth_by(each, read) is True for one in filters) for each in messages]
    return np.array(found, np.int64)


def _count_by_tree(
    messages: Iterable[Part], filters: Sequence[ObjectFilter], tree: InvocationTree
) -> Counts:
    found = []
    for each in messages:
        read = tree.reader(each)
        found.append(sum(one.truth_by(each, read) is True for one in filters))
    return np.array(found, np.int64)


def _count_by_engine(messages: Sequence[Part], engine: Engine) -> Counts:
    # With the lists of ids, which a broker would send to.
    return np.array([len(found) for found in engine.match_batch(messages)], np.int64)


def contenders(case: Case, group: str) -> list[Contender]:
    """Return the four schemes and the engine."""
    rng = Random(f"{case}")
    filters, messages = case.filters(rng), case.messages(rng, MESSAGES)
    failures = AccessorFailures()
    engine = Engine()
    for number, filter_ in enumerate(filters):
        engine.add(number, filter_)
    engine.compact()
    schemes: dict[str, Callable[[int], Counts]] = {}
    if case.subscriptions <= MOST_EVALUATED:
        tree, static = InvocationTree(filters, failures), StaticCode(failures)
        by_name, by_type = ByName(failures), ByType(failures)
        schemes = {
            "by type": lambda n: _count(messages[:n], filters, by_type),
            "by name": lambda n: _count(messages[:n], filters, by_name),
            "invocation tree": lambda n: _count_by_tree(messages[:n], filters, tree),
            "static code": lambda n: _count(messages[:n], filters, static),
        }
    schemes["combined"] = lambda n: _count_by_engine(messages[:n], engine)
    sizes = {name: fitting(run, MESSAGES) for name, run in schemes.items()}
    agree({name: run(sizes[name]) for name, run in schemes.items()})
    return [
        Contender(name, partial(run, sizes[name]), sizes[name], group)
        for name, run in schemes.items()
    ]


# --- figure 17 -------------------------------------------------------------------------------


def _looked_up(part: Any, arguments: tuple[int, ...]) -> None:
    for _ in range(CALLS):
        _ignore(getattr(part, "value")(*arguments))  # noqa: B009 - the look-up is measured


def _dynamic(part: Part, arguments: tuple[int, ...]) -> None:
    function = Part.value
    for _ in range(CALLS):
        _ignore(function(part, *arguments))


def invocations() -> list[Contender]:
    """Return three ways of calling a method, for each number of arguments."""
    part = Part(5)
    found = []
    for count in ARGUMENTS:
        arguments, group = tuple(range(count)), str(count)
        steps = (CallStep("value", arguments),)
        by_name = ByName(AccessorFailures())
        static = generate_extractor(Part, [steps], ["value()"], by_name)
        parts = [part] * CALLS
        ways: dict[str, Callable[[], object]] = {
            "static": partial(static, parts, by_name.read, _ignore),
            "dynamic": partial(_dynamic, part, arguments),
            "dynamic with look-up": partial(_looked_up, part, arguments),
        }
        found += [Contender(name, run, CALLS, group) for name, run in ways.items()]
    return found


def _ignore(_: object) -> None:
    pass


# --- tables and plots ------------------------------------------------------------------------


class Experiment(NamedTuple):
    """One figure of the paper: what is varied."""

    figure: str
    varied: str
    cases: Sequence[tuple[int, Case]]


def experiments(largest: int) -> list[Experiment]:
    """Return figures 20 and 21."""
    sizes = [size for size in SUBSCRIPTIONS if size <= largest]
    return [
        Experiment("20(a)", "c", [(c, Case(one_in=c)) for c in ONE_IN]),
        Experiment("20(b)", "s", [(s, Case(subscriptions=s)) for s in sizes]),
        Experiment("21(a)", "a", [(a, Case(nesting=a)) for a in NESTING]),
        Experiment("21(b)", "d", [(d, Case(distinct=d)) for d in DISTINCT]),
    ]


def ahead(rows: Sequence[Row]) -> Sheet:
    """Return by how much the engine is ahead of the others, by the number of subscriptions."""
    groups = dict.fromkeys(row.group for row in rows)
    lines = []
    for group in groups:
        rate = {row.name: row.rate for row in rows if row.group == group}
        others = {
            name: rate["combined"] / found for name, found in rate.items() if name != "combined"
        }
        lines.append((group, *(f"{others[n]:,.1f}" if n in others else "" for n in _OTHERS)))
    return Sheet(("combined, times as fast as, at s", *_OTHERS), lines)


_OTHERS: Final = ("by name", "by type", "invocation tree", "static code")


def plot(rows_of: Sequence[tuple[str, str, Sequence[Row]]]) -> Figure:
    """Draw messages per second against what is varied, on logarithmic scales."""
    figure = Figure(figsize=(5 * len(rows_of), 4.5), layout="constrained")
    every = figure.subplots(1, len(rows_of), squeeze=False)[0]
    for axes, (title, varied, rows) in zip(every, rows_of, strict=True):
        for name in dict.fromkeys(row.name for row in rows):
            own = [row for row in rows if row.name == name]
            x = [int(row.group.replace(",", "")) for row in own]
            axes.plot(x, [row.rate for row in own], marker="o", label=name)
        axes.set(yscale="log", xlabel=varied, title=title)
        axes.set_xscale("log" if varied in ("c", "s") else "linear")
        axes.grid(visible=True, which="both", alpha=0.3)
    every[0].set_ylabel("calls/s, then messages/s")
    every[0].legend()
    every[-1].legend()
    figure.suptitle(TITLE)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, repeats=REPEATS, largest=SUBSCRIPTIONS[-1])
    # One thread of this process does it all, so that other load can be left out.
    clock = time.process_time
    calls = measure(invocations(), chosen.repeats, clock)
    sheets = [crossed("ns per call, by arguments", calls, lambda row: f"{1e9 / row.rate:,.0f}")]
    drawn: list[tuple[str, str, Sequence[Row]]] = [("17: calls", "arguments", calls)]
    for figure, varied, cases in experiments(chosen.largest):
        rows = [
            row
            for value, case in cases
            for row in measure(contenders(case, f"{value:,}"), chosen.repeats, clock)
        ]
        sheets.append(
            crossed(f"{figure}: messages/s, by {varied}", rows, lambda row: f"{row.rate:,.0f}")
        )
        if varied == "s":
            sheets.append(ahead(rows))
        drawn.append((figure, varied, rows))
    name = "objects" if chosen.largest == SUBSCRIPTIONS[-1] else f"objects-{chosen.largest}"
    report(name, TITLE, sheets, plot(drawn), folder=chosen.out, repeats=chosen.repeats)


if __name__ == "__main__":
    main()
