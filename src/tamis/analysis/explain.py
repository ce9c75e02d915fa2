"""Explanations: why a subscription matched an event or not, in sentences and as data."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from tamis.analysis.counterfactuals import (
    Counterfactual,
    Lateness,
    nearest_counterfactual,
)
from tamis.analysis.reasons import deciding_atoms, truth_of
from tamis.events import Event, Kind, Schema, Value
from tamis.events.kinds import kind_of
from tamis.filters import Filter, Id, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.atoms import (
    Atom,
    Between,
    Caseless,
    Compare,
    HasBits,
    HasKind,
    In,
    InNetwork,
    Like,
    Regex,
    TextTest,
    ValueAtom,
)
from tamis.filters.element_test import has_element_tests
from tamis.filters.folding import CASELESS_FLAG
from tamis.filters.modes import View, view_of
from tamis.filters.printing import show_name, show_value
from tamis.html_text import html_escaped, html_list

# The most reasons or values that a sentence lists.
MAX_SHOWN: Final = 12
# How long to search for a change, unless the caller says.
SEARCH_SECONDS: Final = 10.0


class Reason(NamedTuple):
    """A decisive atom, with its truth on the event (None is unknown) and the values it met."""

    atom: Filter
    truth: bool | None
    held: Mapping[str, tuple[Value, ...]]
    """The event's values of the atom's attributes, without absent ones."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Explanation(NamedTuple):
    """Why an event satisfies a subscription's filter or not (also as its truth value)."""

    id: Id
    matched: bool
    reasons: tuple[Reason, ...]
    """Atoms whose truths alone determine the outcome, whatever the others are."""
    change: dict[str, object] | None
    """The nearest new values found that reverse the outcome, None for an attribute to remove.

    None if none were found."""
    changed: Event | None
    """The event with these values."""
    fixed: bool
    """Whether no event satisfies the filter, or every event does."""
    filter: Filter
    mode: Mode
    expired: bool = False
    """Whether the subscription has expired, so that its matches are not reported."""
    cut_off: bool = False
    """Whether the search for a change took too long, so that there may be a nearer one or one."""
    residual: str = ""
    """What holds, or does not hold, beside the filter, which is only a translation of it."""

    def __bool__(self) -> bool:
        return self.matched

    def __str__(self) -> str:
        said = "matches" if self.matched else "does not match"
        reasons = [f"- {reason}" for reason in self.reasons[:MAX_SHOWN]]
        if len(self.reasons) > MAX_SHOWN:
            reasons.append(f"- and {len(self.reasons) - MAX_SHOWN} more")
        subject = "The filter" if self.id == "" else repr(self.id)
        if self.residual:
            holds = "holds" if self.matched else "does not hold exactly"
            return f"{subject} {said}:\n- this {holds}: {self.residual}"
        head = f"{subject} {said}" + (":" if reasons else ", whatever the event holds.")
        late = ["The subscription has expired, so it is not reported."] if self.expired else []
        return "\n".join((head, *reasons, self._turn(), *late))

    def __repr__(self) -> str:
        return f"<Explanation: {' '.join(str(self).splitlines())}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        sign = "✓" if self.matched else "✗"
        head, *lines = str(self).splitlines()
        reasons = [html_escaped(line[2:]) for line in lines if line.startswith("- ")]
        rest = [f"<p>{html_escaped(line)}</p>" for line in lines if not line.startswith("- ")]
        found = html_list(reasons) if reasons else ""
        return f"<p>{sign} <b>{html_escaped(head)}</b></p>{found}{''.join(rest)}"

    def _turn(self) -> str:
        """Return the sentence about the change."""
        if self.change is not None:
            becomes = "would not match" if self.matched else "would match"
            return f"{_change_words(self.change)} it {becomes}."
        if self.fixed:
            return "Every event matches it." if self.matched else "No event can match it."
        wanted = "no longer match" if self.matched else "match"
        if self.cut_off:
            return (
                f"The search for a change that would make it {wanted} took too long and was "
                "cut off."
            )
        return f"No change was found that would make it {wanted}."


def explain(
    id_: Id,
    filter_: Filter,
    mode: Mode,
    event: Event | Mapping[str, object],
    schema: Schema | None,
    *,
    total: bool = False,
    expired: bool = False,
    is_late: Lateness | None = None,
) -> Explanation:
    """Explain whether `event` satisfies a filter that is bound to `schema`.

    With `total`, no counterfactual lacks an attribute of the schema. Once `is_late` returns True,
    by default after 10 seconds, the search for a counterfactual ends.
    """
    pieces = explain_in_pieces(
        id_,
        filter_,
        mode,
        event,
        schema,
        total=total,
        expired=expired,
        is_late=is_late or late_after(SEARCH_SECONDS),
    )
    while True:
        try:
            next(pieces)
        except StopIteration as end_of_pieces:
            explanation: Explanation = end_of_pieces.value
            return explanation


def late_after(seconds: float) -> Lateness:
    """Return what ends a search some seconds from now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def explain_in_pieces(
    id_: Id,
    filter_: Filter,
    mode: Mode,
    event: Event | Mapping[str, object],
    schema: Schema | None,
    *,
    total: bool,
    expired: bool = False,
    is_late: Lateness,
) -> Generator[None, None, Explanation]:
    """Do the same, and yield between tests: each may take long, and a filter may have many."""
    given = view_of(event, Mode.TOTAL if total else Mode.SQL, schema).event
    view = view_of(given, mode, schema)
    if has_element_tests(filter_):
        return _of_elements(id_, filter_, mode, view, expired=expired)
    truths: dict[Filter, bool | None] = {}
    for atom in dict.fromkeys(filter_.atoms()):
        yield
        truths[atom] = atom.truth_in(view)
    yield
    matched = truth_of(filter_, mode, truths) is True
    deciding = deciding_atoms(filter_, mode, truths)
    yield
    change = nearest_counterfactual(
        filter_, mode, given, schema, matched=matched, total=total, is_late=is_late
    )
    return Explanation(
        id=id_,
        matched=matched,
        reasons=tuple(_reason(atom, truths[atom], given, view) for atom in deciding),
        change=change.values if isinstance(change, Counterfactual) else None,
        changed=change.event if isinstance(change, Counterfactual) else None,
        fixed=change is False,
        filter=filter_,
        mode=mode,
        expired=expired,
        cut_off=change is not False and is_late(),
    )


def _of_elements(id_: Id, filter_: Filter, mode: Mode, view: View, *, expired: bool) -> Explanation:
    """Explain a filter that tests elements: no change of flat attributes says what would help."""
    is_known = mode is not Mode.STRICT or filter_.is_adequate(view)
    return Explanation(
        id=id_,
        matched=is_known and filter_.truth_in(view) is True,
        reasons=(),
        change=None,
        changed=None,
        fixed=False,
        filter=filter_,
        mode=mode,
        expired=expired,
        residual=str(filter_),
    )


# --- sentences -------------------------------------------------------------------------------


def _reason(atom: Filter, truth: bool | None, given: Event, view: View) -> Reason:
    if isinstance(atom, AnyText):
        return _reason_of_any(atom, truth, view)
    names = sorted(atom.attributes())
    held = {name: view.event[name] for name in names if name in view.event}
    facts = _joined([_holding(name, given, view.event) for name in names])
    why = "" if truth else _need(atom, held)
    return Reason(atom, truth, held, f"{facts}, so {atom} is {_word(truth)}{why}")


def _reason_of_any(atom: AnyText, truth: bool | None, view: View) -> Reason:
    """Say which texts pass a test of any attribute, or that none does."""
    tests = {name: atom.of(name, view.schema) for name in view.event}
    texts = {
        name: tuple(value for value in view.event[name] if test.passes(value) or not truth)
        for name, test in tests.items()
        if test is not None and view.event.of_kind(name, Kind.TEXT)
    }
    held = {name: values for name, values in texts.items() if values}
    if truth is not True:
        facts, need = "the event has no text", ""
        if held:
            shown = [show_name(name) for name in held][:MAX_SHOWN]
            more = [f"{len(held) - MAX_SHOWN} more"] if len(held) > MAX_SHOWN else []
            facts = f"no text of {_joined([*shown, *more], 'or')} passes"
            need = f": it needs {_needed(atom.test)}"
        return Reason(atom, truth, held, f"{facts}, so {atom} is {_word(truth)}{need}")
    (name, values), *_ = held.items()
    return Reason(atom, truth, held, f"{show_name(name)} is {_values(values)}, so {atom} is true")


def _word(truth: bool | None) -> str:
    return "unknown" if truth is None else "true" if truth else "false"


def _holding(name: str, given: Event, seen: Event) -> str:
    """Return what an attribute holds, or its default where it is absent, in words."""
    shown = show_name(name)
    if name in given:
        return f"{shown} is {_values(given[name])}"
    if name in seen:
        return f"{shown} is absent and its default is {_values(seen[name])}"
    return f"{shown} is absent"


def _values(values: tuple[Value, ...], last: str = "and") -> str:
    shown = [_brief(value) for value in values[:MAX_SHOWN]]
    if len(values) > MAX_SHOWN:
        shown.append(f"{len(values) - MAX_SHOWN} more")
    return _joined(shown, last)


def _joined(words: Sequence[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _brief(value: object) -> str:
    shown = show_value(value)  # type: ignore[arg-type]
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _need(atom: Filter, held: Mapping[str, tuple[Value, ...]]) -> str:
    """Return what an atom that is not true asks for, in words."""
    if not isinstance(atom, Atom):
        return ""
    values = held.get(atom.attribute, ())
    if not values:
        return ""
    if isinstance(atom, ValueAtom) and all(kind_of(value) is not atom.kind for value in values):
        return f": it asks for {atom.kind.value}"
    needed = _needed(atom)
    return f": it needs {needed}" if needed else ""


_NEEDS: Final = {
    "=": "exactly",
    "!=": "anything but",
    "<": "less than",
    "<=": "at most",
    ">": "more than",
    ">=": "at least",
}
_NEEDS_IN_TIME: Final = _NEEDS | {
    "<": "a time before",
    "<=": "a time no later than",
    ">": "a time after",
    ">=": "a time no earlier than",
}
_TEXT_NEEDS: Final = {
    "contains": "a text that contains",
    "within": "a part of",
    "starts with": "a text that begins with",
    "ends with": "a text that ends with",
}


def _needed(atom: Atom) -> str:
    match atom:
        case Compare(op=op, value=value):
            words = _NEEDS_IN_TIME if isinstance(value, datetime) else _NEEDS
            return f"{words[op]} {_brief(value)}"
        case Between(low=low, high=high):
            return f"something from {_brief(low)} to {_brief(high)}"
        case In(values=values):
            return f"{_values(values, 'or')}"
        case TextTest(op=op, text=text):
            return f"{_TEXT_NEEDS[op]} {_brief(text)}"
        case Like(pattern=pattern):
            return f"a text like {_brief(pattern)}"
        case Regex(pattern=pattern):
            return f"a text in which {_brief(pattern)} is found"
        case InNetwork(networks=networks):
            return f"an address in {' or '.join(networks)}"
        case Caseless(test=Regex(pattern=pattern)):
            shown = pattern.removeprefix(CASELESS_FLAG)
            return f"a text in which {_brief(shown)} is found, in any case"
        case Caseless(test=test):
            return f"{_needed(test)}, in any case"
        case HasBits(op=op, bits=bits):
            return f"{op} of the bits {', '.join(map(str, sorted(bits)))}" if bits else ""
        case HasKind(kind=kind):
            return kind.value
        case _:
            return ""


def _change_words(change: Mapping[str, object]) -> str:
    gone = [show_name(name) for name, value in change.items() if value is None]
    new = [
        f"{show_name(name)} = {_change_value(value)}"
        for name, value in change.items()
        if value is not None
    ]
    parts = [f"with {_joined(new)}"] if new else []
    parts += [f"without {_joined(gone)}"] if gone else []
    words = " and ".join(parts)
    return words[0].upper() + words[1:]


def _change_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return _brief(value)
