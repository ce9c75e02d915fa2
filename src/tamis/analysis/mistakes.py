"""Filters that parse but were probably meant otherwise: unquoted text, `null`, hyphens, dates.

A word without quotes is an attribute, so these filters are valid. What is known about the
attributes (a schema, a sample of events, other tests of the same attribute) decides whether a word
is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
from typing import Final, NamedTuple

from tamis.analysis.rules import LintRule
from tamis.events import Event, Kind, Schema
from tamis.events.kinds import kind_of
from tamis.events.schema import did_you_mean
from tamis.filters import Filter
from tamis.filters.any_text import AnyText, bare_test
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference, Relation
from tamis.filters.atoms import (
    Atom,
    Caseless,
    Compare,
    HasKind,
    In,
    Like,
    Present,
    ValueAtom,
)
from tamis.filters.printing import ANY, show_name

WORDS_FOR_NOTHING: Final = frozenset({"null", "none", "nil", "undefined", "missing"})
NOT_A_NUMBER: Final = frozenset({"nan", "inf", "infinity"})

_QUOTED: Final = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`""", re.DOTALL)
_HYPHENATED: Final = re.compile(r"(?<![\w.])[^\W\d][\w.]*(?:-[^\W\d][\w.]*)+")
_HYPHENATED_NUMBER: Final = re.compile(r"(?<![\w.-])\d{1,18}(?:-\d{1,18})+(?![\w.-])", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?", re.ASCII)
_LEADING_ZERO: Final = re.compile(r"(?<![\w.-])0\d{1,18}(?![\w.-])", re.ASCII)

_PREFIX_LENGTH: Final = re.compile(r"/[0-9]{1,3}\Z")
_PERCENT_AT_END: Final = re.compile("^%|%$")
_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


def _jms_text(quoted: str) -> str:
    text: str = json.loads(quoted)
    return "'" + text.replace("'", "''") + "'"


class _Wording(NamedTuple):
    """How a language writes what the advice is about."""

    text: str = '"{}"'
    name: str = "`{}`"
    unequal: str = "!="
    absent: str = "is absent"
    present: str = "is present"
    date: str = 'date "{0}" for the day, timestamp "{0}" for its beginning'
    network: str = "{} in {}"

    def shown(self, filter_: Filter) -> str:
        """Return a test as the language writes it, apart from the case of its words."""
        text = str(filter_)
        if self.unequal == "<>":
            text = _JSON_TEXT.sub(lambda found: _jms_text(found[0]), text.replace(" != ", " <> "))
        return text


_WORDINGS: Final = {
    "tamis": _Wording(),
    # A selector has neither quoted names nor timestamps nor networks.
    "jms": _Wording("'{}'", "", "<>", "IS NULL", "IS NOT NULL", "", ""),
}


class Sample:
    """What some events hold: the attributes, and the kinds of their values."""

    def __init__(self, events: Iterable[Event] = (), *, called: str = "the sample") -> None:
        self.called = called
        self.count = 0
        self.kinds: dict[str, set[Kind | None]] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Add an event."""
        self.count += 1
        for name, values in event.items():
            self.kinds.setdefault(name, set()).update(map(kind_of, values))


class ProbableMistake(NamedTuple):
    """A probable mistake in a filter: the rule it breaks, and a sentence."""

    rule: LintRule
    message: str


class MistakeFinder:
    """Looks for probable mistakes in filters, given what is known about the attributes."""

    def __init__(self, known: Iterable[str] = (), sample: Sample | None = None) -> None:
        self._sample = sample
        self._known: frozenset[str] = frozenset(known)
        if sample is not None and sample.count:
            # What no event has is no attribute, whatever filters say.
            self._known = frozenset(sample.kinds)

    def find(
        self, filter_: Filter, text: str = "", language: str = "tamis"
    ) -> Iterator[ProbableMistake]:
        """Yield what looks like a mistake in a filter, and in the text that it was parsed from."""
        wording = _WORDINGS.get(language, _WORDINGS["tamis"])
        atoms = dict.fromkeys(filter_.atoms())
        yield from dict.fromkeys(
            mistake for atom in atoms for mistake in self._in_atom(atom, wording)
        )
        if language in _WORDINGS:
            bare = _QUOTED.sub('""', text)
            yield from self._hyphenated(bare, wording)
            yield from _hyphenated_numbers(bare, wording)
            yield from _leading_zeros(bare, wording)
        if self._sample is not None and self._sample.count:
            yield from self._beside_sample(filter_, self._sample)

    def _in_atom(self, atom: Filter, wording: _Wording) -> Iterator[ProbableMistake]:
        if isinstance(atom, Relation):
            yield from self._in_relation(atom, wording)
        elif advice := _pattern_advice(atom):
            yield ProbableMistake(LintRule.PATTERN, f"{wording.shown(atom)}: {advice}")
        elif wording.network and (advice := _network_advice(atom, wording)):
            yield ProbableMistake(LintRule.NETWORK, f"{wording.shown(atom)}: {advice}")

    # --- words without quotes ----------------------------------------------------------------

    def _in_relation(self, relation: Relation, wording: _Wording) -> Iterator[ProbableMistake]:
        shown = wording.shown(relation)
        if any(map(_subtracts_negative, (relation.left, relation.right))):
            yield ProbableMistake(
                LintRule.DOUBLE_MINUS,
                f"{shown}: two minus signs in a row subtract twice; a filter has no comments",
            )
        names = [o.name for o in relation.operands() if isinstance(o, Reference)]
        nothing = [name for name in names if self._is_nothing(name)]
        for name in nothing:
            yield _not_a_constant(relation, name, shown, wording)
        sides = relation.left, relation.right
        if not nothing and all(isinstance(side, Reference) for side in sides):
            left, right = names
            yield from self._two_attributes(left, relation.op, right, shown, wording)

    def _is_nothing(self, name: str) -> bool:
        return name not in self._known and name.lower() in WORDS_FOR_NOTHING | NOT_A_NUMBER

    def _two_attributes(
        self, left: str, op: str, right: str, shown: str, wording: _Wording
    ) -> Iterator[ProbableMistake]:
        """Yield that a word may be a text: one in capitals, or one that something equals."""
        if left == right or right in self._known:
            return
        if op in ("=", "!=") or _looks_like_constant(right, left):
            written = wording.unequal if op == "!=" else op
            yield ProbableMistake(
                LintRule.UNQUOTED,
                f"{shown}: {show_name(right)} is read as an attribute; a text needs quotes, as in "
                f"{show_name(left)} {written} {wording.text.format(right)}",
            )

    # --- hyphens -----------------------------------------------------------------------------

    def _hyphenated(self, text: str, wording: _Wording) -> Iterator[ProbableMistake]:
        for found in dict.fromkeys(_HYPHENATED.findall(text)):
            parts = found.split("-")
            name = wording.name.format(found)
            if found in self._known:
                advice = f"; write {name} for the attribute of that name" if name else ""
                yield ProbableMistake(LintRule.HYPHENATED, f"{found} subtracts{advice}")
            elif not self._known.issuperset(parts):
                spaced = " - ".join(parts)
                advice = f": write {name} if it is one name, and {spaced} if it is not"
                yield ProbableMistake(
                    LintRule.HYPHENATED,
                    f"{found} subtracts{advice if name else f'; write {spaced} if that is meant'}",
                )

    # --- a sample of events ------------------------------------------------------------------

    def _beside_sample(self, filter_: Filter, sample: Sample) -> Iterator[ProbableMistake]:
        for name in sorted(filter_.attributes() - self._known - {ANY}):
            hint = did_you_mean(name, sample.kinds)
            yield ProbableMistake(
                LintRule.UNKNOWN_ATTRIBUTE,
                f"no event of {sample.called} has {show_name(name)}{'; ' + hint if hint else ''}",
            )
        for atom in dict.fromkeys(filter_.atoms()):
            kind = atom.kind if isinstance(atom, ValueAtom | HasKind) else None
            if kind is not None and isinstance(atom, Atom):
                yield from _other_kind(atom, kind, sample)


def _pattern_advice(atom: Filter) -> str:
    """Return what to write if wildcards stand where they mean nothing, or nothing."""
    test = atom.test if isinstance(atom, AnyText) else atom
    like = "~like" if isinstance(test, Caseless) else "like"
    match bare_test(atom):
        case Like(pattern=pattern) if not re.search("[%_]", pattern):
            is_glob = re.search("[*?]", pattern) is not None
            return "the wildcards of like are % and _, not * and ?" if is_glob else ""
        case Compare(op="=" | "!=", value=value):
            values: tuple[object, ...] = (value,)
        case In(values=values):
            pass
        case _:
            return ""
    if any(isinstance(one, str) and _PERCENT_AT_END.search(one) for one in values):
        return f"% stands for itself here; write {like} for a pattern"
    return ""


def _network_advice(atom: Filter, wording: _Wording) -> str:
    """Return what to write if a text is a network, or nothing."""
    match bare_test(atom):
        case Compare(op="=" | "!=" as op, value=value):
            values: tuple[object, ...] = (value,)
        case In(values=values):
            op = "="
        case _:
            return ""
    networks = [found for one in values if isinstance(one, str) and (found := _network(one))]
    if not networks:
        return ""
    [attribute] = atom.attributes()
    name = "any" if attribute == ANY else show_name(attribute)
    shown = networks[0] if len(networks) == 1 else f"({', '.join(networks)})"
    meant = wording.network.format(name if op == "=" else f"{name} not", shown)
    return f"no address equals a text with a slash; did you mean {meant}?"


def _network(text: str) -> str:
    """Return the network that an address with a prefix length lies in, or nothing."""
    if not _PREFIX_LENGTH.search(text):
        return ""
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        return ""


def _not_a_constant(
    relation: Relation, name: str, shown: str, wording: _Wording
) -> ProbableMistake:
    others = sorted(relation.attributes() - {name})
    other = show_name(others[0]) if others else "the attribute"
    reads = f"{shown}: {name} is read as an attribute"
    if name.lower() in NOT_A_NUMBER:
        return ProbableMistake(LintRule.NOT_A_CONSTANT, f"{reads}; no constant stands for it")
    test = wording.present if relation.op == "!=" else wording.absent
    return ProbableMistake(LintRule.NOT_A_CONSTANT, f'{reads}; write "{other} {test}"')


def _hyphenated_numbers(text: str, wording: _Wording) -> Iterator[ProbableMistake]:
    for found in dict.fromkeys(_HYPHENATED_NUMBER.findall(text)):
        numbers = first, *rest = [int(part) for part in found.split("-")]
        quoted = wording.text.format(found)
        is_date = bool(wording.date) and _DATE.fullmatch(found) is not None
        meant = f"{wording.date.format(found)}, " if is_date else ""
        yield ProbableMistake(
            LintRule.HYPHENATED_NUMBER,
            f"{found} subtracts, and is {first - sum(rest)}; write {meant}{quoted} for the text, "
            f"or {' - '.join(map(str, numbers))} for the number",
        )


def _leading_zeros(text: str, wording: _Wording) -> Iterator[ProbableMistake]:
    for found in dict.fromkeys(_LEADING_ZERO.findall(text)):
        is_octal = wording is _WORDINGS["jms"]
        number = f"octal for {int(found, 8)}" if is_octal else f"the number {int(found)}"
        yield ProbableMistake(
            LintRule.LEADING_ZERO,
            f"{found} is {number}; write {wording.text.format(found)} for the text",
        )


def find_mistakes(
    filter_: Filter, text: str, language: str, schema: Schema | None = None
) -> list[ProbableMistake]:
    """Return what looks like a mistake in one filter, if nothing but a schema is known."""
    known = schema if schema is not None else tested_attributes([filter_])
    return list(MistakeFinder(known).find(filter_, text, language))


def _other_kind(atom: Atom, kind: Kind, sample: Sample) -> Iterator[ProbableMistake]:
    held = sample.kinds.get(atom.attribute, set())
    # Bits are numbers in JSON, and timestamps are text; only a schema tells them apart.
    if held and kind in (Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN) and kind not in held:
        words = " or ".join(sorted("NaN" if one is None else one.value for one in held))
        yield ProbableMistake(
            LintRule.OTHER_KIND,
            f"{atom} asks for {kind.value}, but in {sample.called} {show_name(atom.attribute)} "
            f"is always {words}",
        )


def tested_attributes(filters: Iterable[Filter]) -> frozenset[str]:
    """Return the attributes that some filter tests against constants, or for presence."""
    return frozenset(
        atom.attribute
        for filter_ in filters
        for atom in filter_.atoms()
        if isinstance(atom, Atom) and not isinstance(atom, Present)
    )


def _looks_like_constant(word: str, beside: str) -> bool:
    """Return whether a word is written in capitals where the other side is not."""
    return word[:1].isupper() and not beside[:1].isupper()


def _subtracts_negative(expression: Expression) -> bool:
    match expression:
        case Arithmetic(op="-", right=Arithmetic(op="-", left=Literal(constant=0))):
            return True
        case Arithmetic(left=left, right=right):
            return _subtracts_negative(left) or _subtracts_negative(right)
        case _:
            return False
