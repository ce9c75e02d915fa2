"""A workload file as a whole: which definitions there are, and what they say together."""

from __future__ import annotations

from typing import Final, NamedTuple

from tamis.errors import WorkloadError
from tamis.events import Attribute, Schema
from tamis.filters.printing import RESERVED
from tamis.workloads.checks import check_grammar
from tamis.workloads.distribution_syntax import SHAPES, read_distribution
from tamis.workloads.distributions import Distribution, Window
from tamis.workloads.event_syntax import read_forms
from tamis.workloads.forms import AttributeSource, Form
from tamis.workloads.grammar import START, Grammar, Pool, Rule
from tamis.workloads.grammar_syntax import Names, read_pool, read_rule
from tamis.workloads.source import Cursor, Token, definitions
from tamis.workloads.witnesses import check_filters

TAKEN: Final = RESERVED | {"some", "attribute", "value", "pool", "event"}
OPTIONS: Final = ("step", *SHAPES, "wide")
MOST_VALUES: Final = 16
"""Values of one attribute in one event."""
MOST_ATTRIBUTES: Final = 1024
"""What an event may have by default, too."""


class Description(NamedTuple):
    """What a workload file says."""

    attributes: dict[str, AttributeSource]
    forms: tuple[Form, ...]
    grammar: Grammar
    schema: Schema


class _Reader:
    """Definitions by kind; rules are read last, because they may refer to any of the others."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._text = text
        self._attributes: dict[str, AttributeSource] = {}
        self._values: dict[str, Distribution | Window] = {}
        self._places: dict[str, Cursor] = {}
        self._pools: dict[str, tuple[Cursor, Token]] = {}
        self._rules: dict[str, tuple[Cursor, Token]] = {}
        self._event: Cursor | None = None

    def read(self) -> Description:
        """Read everything, and check what holds for all of it."""
        for cursor in definitions(self._source, self._text):
            self._definition(cursor)
        if not self._attributes:
            raise self._missing("attribute", "attribute price : float 0..100 step 0.01")
        if START not in self._rules:
            raise self._missing(START, f"{START} = price < some price")
        grammar = self._grammar()
        check_grammar(grammar)
        schema = Schema(
            {
                name: Attribute(found.distribution.type, None, found.is_many)
                for name, found in self._attributes.items()
            }
        )
        check_filters(grammar, schema)
        return Description(self._attributes, self._forms(), grammar, schema)

    def _missing(self, what: str, example: str) -> WorkloadError:
        return WorkloadError(
            f'the file defines no "{what}"; it needs a line such as {example}', source=self._source
        )

    def _definition(self, cursor: Cursor) -> None:
        token = cursor.take()
        match token.word:
            case "attribute":
                self._attribute(cursor)
            case "value":
                self._value(cursor)
            case "pool":
                self._put_off(cursor, self._pools, ":")
            case "event":
                self._put_off_event(cursor, token)
            case _:
                cursor.at -= 1
                self._put_off(cursor, self._rules, "=")

    # --- attributes and values -------------------------------------------------------------------

    def _attribute(self, cursor: Cursor) -> None:
        names = cursor.names("an attribute")
        while cursor.skip(","):
            names += cursor.names("an attribute")
        cursor.expect(":", "after the names of attributes")
        distribution = self._distribution(cursor)
        present, counts = 1.0, (1, 1)
        while cursor.current.word in ("present", "many"):
            if cursor.take().word == "present":
                present = self._share(cursor)
            else:
                counts = self._counts(cursor)
        self._end(cursor, (*OPTIONS, "present", "many"))
        for name, token in names:
            self._claim(cursor, name, token)
            self._attributes[name] = AttributeSource(distribution, present, *counts)
        if len(self._attributes) > MOST_ATTRIBUTES:
            raise cursor.error(f"a workload has {MOST_ATTRIBUTES:,} attributes at the most", token)

    def _distribution(self, cursor: Cursor) -> Distribution:
        at = cursor.current
        found = read_distribution(cursor, self._values)
        if isinstance(found, Window):
            raise cursor.error(
                "an attribute has values, not windows",
                at,
                hint='use "wide" in a value that filters draw',
            )
        return found

    def _share(self, cursor: Cursor) -> float:
        share = cursor.percentage()
        if share is None:
            raise cursor.error('"present" takes a percentage, such as present 80%')
        return share

    def _counts(self, cursor: Cursor) -> tuple[int, int]:
        least = most = cursor.whole("how many values there are", 1, MOST_VALUES)
        if cursor.skip(".."):
            most = cursor.whole("how many values there are at the most", least, MOST_VALUES)
        return least, most

    def _value(self, cursor: Cursor) -> None:
        token = cursor.name("the name of a value")
        cursor.expect(":", "after the name of the value")
        found = read_distribution(cursor, self._values)
        self._end(cursor, OPTIONS)
        self._claim(cursor, token.name, token)
        self._values[token.name] = found

    def _end(self, cursor: Cursor, options: tuple[str, ...]) -> None:
        word = cursor.current.word
        if word:
            out_of_place = 'the order is range, "step", shape, "wide"' if word in OPTIONS else ""
            raise cursor.error(
                f'nothing more can stand here, but "{word}" does', hint=out_of_place, known=options
            )

    # --- rules, pools and events -----------------------------------------------------------------

    def _put_off(
        self, cursor: Cursor, kind: dict[str, tuple[Cursor, Token]], separator: str
    ) -> None:
        token = cursor.name("the name of a definition")
        cursor.expect(separator, f"after {token.word}")
        if token.word.lower() in TAKEN:
            raise cursor.error(
                f"{token.word} is a word of the language, so it cannot be defined", token
            )
        self._claim(cursor, token.name, token)
        kind[token.name] = cursor, token

    def _put_off_event(self, cursor: Cursor, token: Token) -> None:
        cursor.expect("=", 'after "event"')
        if self._event is not None:
            raise cursor.error('"event" is defined already', token)
        self._event = cursor

    def _claim(self, cursor: Cursor, name: str, token: Token) -> None:
        if name in self._places:
            line = self._places[name].line
            raise cursor.error(f"{name} is defined already, in line {line}", token)
        self._places[name] = cursor

    def _grammar(self) -> Grammar:
        distributions = {name: found.distribution for name, found in self._attributes.items()}
        names = Names(distributions, self._values, {*self._rules, *self._pools})
        rules: dict[str, Rule] = {
            name: read_rule(cursor, token, names) for name, (cursor, token) in self._rules.items()
        }
        pools: dict[str, Pool] = {
            name: read_pool(cursor, token, names._replace(rules=rules.keys()))
            for name, (cursor, token) in self._pools.items()
        }
        return Grammar(rules, pools, self._places)

    def _forms(self) -> tuple[Form, ...]:
        if self._event is None:
            return (Form(1.0, tuple(self._attributes), ()),)
        return read_forms(self._event, self._attributes, self._places)


def read_workload(source: str, text: str) -> Description:
    """Read a workload file."""
    return _Reader(source, text).read()
