"""Checks of a grammar as a whole, and of every alternative on the parser and the schema."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from tamis.errors import FilterSyntaxError, TamisError
from tamis.events import Schema
from tamis.languages import parse
from tamis.workloads.declarations import Mistake
from tamis.workloads.drawing import Drawer
from tamis.workloads.grammar import MAX_DRAWS, START, Grammar

MAX_RULES: Final = 100
"""Rules lead to each other by calls, and the interpreter's stack is finite."""
_CHECK_SEED: Final = 0


def check_grammar(grammar: Grammar) -> None:
    """Refuse a grammar that cannot make filters."""
    if len(grammar.rules) > MAX_RULES:
        raise Mistake("rules", f"a workload has at most {MAX_RULES} rules")
    reached, heights = grammar.reachable(START), grammar.heights()
    for name in grammar.names():
        key = f"{'pools' if name in grammar.pools else 'rules'}.{name}"
        if name not in reached:
            raise Mistake(key, f"nothing leads from {START} to it", "use it or remove it")
        if heights[name] == inf:
            raise Mistake(key, "it never ends", "add an alternative that leads to no rule")
        if name in grammar.pools and name in grammar.reachable(grammar.pools[name].rule):
            raise Mistake(key, "the pool is made of its own conditions", "take another rule")
    for name, draws in grammar.expected_draws().items():
        if draws > MAX_DRAWS:
            raise Mistake(
                f"rules.{name}",
                f"it grows without end: on average it takes more than {MAX_DRAWS:,} choices",
                "make alternatives that end more likely",
            )


def check_filters(grammar: Grammar, schema: Schema) -> None:
    """Refuse an alternative that makes filters that cannot be parsed or contradict the schema."""
    drawer = Drawer(grammar, _CHECK_SEED, checking=True)
    for rule, number, path in _paths(grammar):
        template = grammar.rules[rule][number].template
        try:
            text = drawer.forced(path | {rule: number})
        except ValueError as error:
            raise Mistake(f"rules.{rule}", f'"{template}": {error}', "ask for fewer") from None
        try:
            parse(text).bind(schema)
        except TamisError as error:
            reason = error.reason if isinstance(error, FilterSyntaxError) else str(error)
            raise Mistake(
                f"rules.{rule}",
                f'"{template}" makes filters such as {text:.120}, which cannot be used: {reason}',
            ) from None


def _paths(grammar: Grammar) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield each alternative with the alternatives that lead to its rule from the start."""
    paths: dict[str, dict[str, int]] = {START: {}}
    pending = [START]
    for name in pending:
        if name in grammar.pools:
            steps = [(grammar.pools[name].rule, paths[name])]
        else:
            steps = []
            for number, way in enumerate(grammar.rules[name]):
                yield name, number, paths[name]
                steps += [(found, paths[name] | {name: number}) for found in way.references()]
        for found, path in steps:
            if found not in paths:
                paths[found] = path
                pending.append(found)
