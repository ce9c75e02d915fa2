"""Reading rules: `watch = 70% symbol = some symbol and test{1..3 and} | 30% test`."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from tamis.events import Type
from tamis.filters.printing import RESERVED, show_name
from tamis.languages.tamis import KIND_WORDS
from tamis.workloads.distributions import Distribution, EvenRanks, Whole, Window, zipf
from tamis.workloads.grammar import (
    Alternative,
    AnyName,
    Constant,
    Literal,
    Part,
    Pool,
    Reference,
    Repeated,
    Rule,
)
from tamis.workloads.source import Cursor, Token, evened, shown

WORDS: Final = (
    RESERVED
    | {"present", "absent", "null", "with", "all", "any", "bits", "bit"}
    | {word for words in KIND_WORDS for word in words}
)
"""What may stand in a filter and is neither a name nor a value."""

SEPARATORS: Final = ("and", "or", "xor", ",")
MOST_REPEATED: Final = 100
MOST_IN_POOL: Final = 10_000_000
_MOST_ALTERNATIVES: Final = 10_000
_LARGEST: Final = 2**53


class Names(NamedTuple):
    """What a rule may refer to."""

    attributes: Mapping[str, Distribution]
    values: Mapping[str, Distribution | Window]
    rules: AbstractSet[str]

    def all(self) -> set[str]:
        """Return every name."""
        return {*self.attributes, *self.values, *self.rules}


def read_rule(cursor: Cursor, name: Token, names: Names) -> Rule:
    """Read the alternatives of a rule."""
    start = cursor.current
    given: list[float | None] = []
    ways: list[tuple[tuple[Part, ...], Token]] = []
    while not ways or cursor.skip("|"):
        given.append(cursor.percentage())
        token = cursor.current
        ways.append((_parts(cursor, names), token))
        if len(ways) > _MOST_ALTERNATIVES:
            raise cursor.error(f"a rule has {_MOST_ALTERNATIVES:,} alternatives at the most", token)
    cursor.end()
    chances = evened(cursor, given, start)
    return Rule(
        name,
        tuple(
            Alternative(chance, parts, token)
            for chance, (parts, token) in zip(chances, ways, strict=True)
        ),
    )


def read_pool(cursor: Cursor, name: Token, names: Names) -> Pool:
    """Read `100000 of rule zipf 0.6`."""
    count = cursor.whole("the size of a pool", 1, MOST_IN_POOL)
    cursor.expect("of", "after the size of the pool")
    rule = cursor.name("the rule that makes the conditions of the pool")
    if rule.name not in names.rules:
        raise cursor.error(f"{rule.word} is not a rule", rule, known=names.rules)
    if not cursor.skip("zipf"):
        cursor.end()
        return Pool(name, rule.name, EvenRanks(count))
    at = cursor.current
    exponent = float(cursor.number("the exponent of zipf"))
    if exponent <= 0:
        raise cursor.error("the exponent of zipf should be more than 0", at)
    cursor.end()
    return Pool(name, rule.name, zipf(count, exponent))


def _parts(cursor: Cursor, names: Names) -> tuple[Part, ...]:
    start = cursor.current
    parts: list[Part] = []
    while cursor.current.word not in ("", "|"):
        part = _part(cursor, names)
        parts.append(_repeated(cursor, part) if cursor.current.word == "{" else part)
    if not parts:
        raise cursor.error(f"an alternative should stand here, not {shown(start)}", start)
    if parts[0] in [Literal(word) for word in ("and", "or", "xor")] or parts == [Literal("not")]:
        raise cursor.error(
            f'"{start.word}" cannot be drawn on its own, because what it joins would be unclear',
            start,
            hint="write out both ways: 60% a and b | 40% a or b",
        )
    return tuple(parts)


def _part(cursor: Cursor, names: Names) -> Part:
    token = cursor.current
    if token.word == "some" and "some" not in names.all():
        cursor.take()
        return Constant(_some(cursor, names))
    if token.is_name and (token.word[:1] == "`" or cursor.follows("..")):
        return _attributes(cursor, names)
    if token.is_name:
        return _named(cursor, names)
    if token.is_number and cursor.follows(".."):
        return Constant(_range(cursor))
    if token.word in ("%", "{", "}", ":", "..", ";"):
        raise cursor.error(f"{shown(token)} has no meaning here")
    cursor.take()
    if token.is_text and (len(token.word) < 2 or token.word[-1] != token.word[0]):
        raise cursor.error(f"this {token.word[0]} is never closed", token)
    return Literal(token.word)


def _named(cursor: Cursor, names: Names) -> Part:
    token = cursor.take()
    if token.word in names.rules:
        return Reference(token.word)
    if token.word in names.values:
        return Constant(names.values[token.word])
    if token.word in names.attributes:
        return Literal(show_name(token.word))
    if token.word.lower() in WORDS:
        return Literal(token.word.lower())
    raise cursor.error(
        f"nothing is defined as {token.word}", token, known={*names.all(), *WORDS, "some"}
    )


def _attributes(cursor: Cursor, names: Names) -> Part:
    found = cursor.names("an attribute")
    for name, token in found:
        if name not in names.attributes:
            raise cursor.error(f"there is no attribute {name}", token, known=names.attributes)
    written = tuple(show_name(name) for name, _ in found)
    return Literal(written[0]) if len(written) == 1 else AnyName(written)


def _some(cursor: Cursor, names: Names) -> Distribution:
    token = cursor.name('an attribute after "some"')
    found = names.attributes.get(token.name)
    if found is None:
        raise cursor.error(
            f'"some" stands before an attribute, and {token.word} is none',
            token,
            hint="a value is drawn by its name alone" if token.name in names.values else "",
            known=names.attributes,
        )
    return found


def _range(cursor: Cursor) -> Distribution:
    at = cursor.current
    low = cursor.whole("the low end of a range", 0, _LARGEST)
    cursor.take()
    high = cursor.whole("the high end of a range", 0, _LARGEST)
    if low > high:
        raise cursor.error(f"the range {low}..{high} is empty", at, hint="the low end comes first")
    return Distribution(Type.INT, EvenRanks(high - low + 1), Whole(low, 1))


def _repeated(cursor: Cursor, part: Part) -> Repeated:
    token = cursor.take()
    if not isinstance(part, Reference | Constant | AnyName):
        raise cursor.error(
            "only a rule, a drawn value or a range of names can be repeated",
            token,
            hint="give what is repeated a rule of its own",
        )
    least = most = cursor.whole("how often it is repeated", 1, MOST_REPEATED)
    if cursor.skip(".."):
        most = cursor.whole("how often it is repeated at the most", least, MOST_REPEATED)
    distinct = cursor.skip("distinct")
    separator = cursor.take()
    if separator.word not in SEPARATORS:
        raise cursor.error(
            f'"and", "or", "xor" or "," should stand here, not {shown(separator)}', separator
        )
    cursor.expect("}", "at the end of the repetition")
    return Repeated(part, least, most, distinct, separator.word)
