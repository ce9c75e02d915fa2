"""The nodes of a filter's structure, read one after the other onto a stack; see `structure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tamis.errors import FilterTypeError
from tamis.events import Bits, Kind, Type, Value
from tamis.events.kinds import TYPE_OF_CLASS, TYPES
from tamis.events.values import brief
from tamis.filters.any_text import any_text
from tamis.filters.arithmetic import (
    OPERATIONS,
    Arithmetic,
    Expression,
    Literal,
    Reference,
    Relation,
)
from tamis.filters.atoms import (
    COMPARISONS,
    TEXT_TESTS,
    Caseless,
    HasKind,
    In,
    Present,
    Regex,
    ValueAtom,
)
from tamis.filters.boolean import FALSE, TRUE, And, Connective, Filter, Not, Or, Xor, one_deeper
from tamis.filters.build import (
    between,
    comparison_of,
    constant,
    constant_name,
    has_bits,
    in_network,
    like,
    membership_of,
    regular,
    text_test,
)
from tamis.filters.element_test import ElementTest
from tamis.filters.folding import CASELESS_FLAG
from tamis.filters.printing import ANY

IGNORING_CASE: Final = "~"

_CONNECTIVES: Final[dict[str, type[Connective]]] = {"and": And, "or": Or, "xor": Xor}
_KINDS: Final = {kind.name.lower(): kind for kind in Kind}
_BIT_TESTS: Final = {"has all bits": "all", "has any bit": "any"}
# The classes of values that JSON cannot confuse with any other.
PLAIN: Final = (bool, int, str)
_TAGGED: Final = {type_.value: type_ for type_, t in TYPES.items() if t.cls not in PLAIN}

Stack = list[Filter | Expression]
"""What has been read and is not yet part of something larger."""


def read_node(node: object, stack: Stack) -> None:
    """Read a node, and put what it says on the stack, in place of what it is made of.

    Raises:
        FilterTypeError: It is not a node, or not in this place.
        EventError: A value in it is not valid.
        LimitError: What it makes is too deep, or a pattern is too costly.
    """
    if not isinstance(node, list) or not node or not isinstance(node[0], str):
        raise FilterTypeError("a node is a list that begins with a word")
    word, *operands = node
    if word in _CONNECTIVES:
        stack.append(_joined(_CONNECTIVES[word], operands, stack))
    elif word in _READERS:
        stack.append(_READERS[word](operands, stack))
    else:
        stack.append(_test(word, operands))


def _joined(connective: type[Connective], operands: list[object], stack: Stack) -> Filter:
    [count] = _operands(operands, 1)
    if type(count) is not int or count < 2:
        raise FilterTypeError(f"it joins 2 filters or more, not {brief(count)}")
    if count > len(stack):
        raise FilterTypeError(
            f"it joins {count} filters, but there are only {len(stack)} before it"
        )
    terms = tuple(map(_as_filter, stack[-count:]))
    del stack[-count:]
    # Not `of`: flattening what was nested on purpose would take the square of its size.
    return connective(terms, depth=one_deeper(terms))


def _negated(operands: list[object], stack: Stack) -> Filter:
    _operands(operands, 0)
    term = _as_filter(_popped(stack))
    return Not(term, depth=one_deeper((term,)))


def _of_elements(operands: list[object], stack: Stack) -> Filter:
    [name] = _operands(operands, 1)
    return ElementTest.of(_name(name), _as_filter(_popped(stack)))


def _computed(operands: list[object], stack: Stack) -> Expression:
    op, left, right = _operation(operands, OPERATIONS, stack)
    return Arithmetic.of(op, left, right)


def _related(operands: list[object], stack: Stack) -> Filter:
    op, left, right = _operation(operands, COMPARISONS, stack)
    if {type(left), type(right)} == {Reference, Literal}:
        raise FilterTypeError(
            f"{left} {op} {right} compares an attribute with a constant, which is a node of its "
            'own, such as ["<", "price", 5]'
        )
    return Relation.of(op, left, right)


def _operation(
    operands: list[object], known: Iterable[str], stack: Stack
) -> tuple[str, Expression, Expression]:
    [given] = _operands(operands, 1)
    op = _word(given, known)
    right, left = _as_expression(_popped(stack)), _as_expression(_popped(stack))
    if isinstance(left, Literal) and isinstance(right, Literal):
        raise FilterTypeError(f"{left} and {right} are two constants; write what they give")
    return op, left, right


def _present(operands: list[object], _: Stack) -> Filter:
    [name] = _operands(operands, 1)
    return Present(_name(name))


def _of_kind(operands: list[object], _: Stack) -> Filter:
    name, kind = _operands(operands, 2)
    return HasKind(_name(name), _KINDS[_word(kind, _KINDS)])


def _reference(operands: list[object], _: Stack) -> Expression:
    [name] = _operands(operands, 1)
    return Reference(_name(name))


def _literal(operands: list[object], _: Stack) -> Expression:
    value = _value(*_operands(operands, 1))
    checked = constant(value)
    # Arithmetic distinguishes 2 and 2.0, comparisons do not.
    return Literal.of(value if isinstance(value, float) else checked)


def _always(operands: list[object], _: Stack) -> Filter:
    _operands(operands, 0)
    return TRUE


def _never(operands: list[object], _: Stack) -> Filter:
    _operands(operands, 0)
    return FALSE


_READERS: Final[dict[str, Callable[[list[object], Stack], Filter | Expression]]] = {
    "true": _always,
    "false": _never,
    "not": _negated,
    "some": _of_elements,
    "present": _present,
    "kind": _of_kind,
    "attribute": _reference,
    "constant": _literal,
    "compute": _computed,
    "compare": _related,
}


def _test(word: str, operands: list[object]) -> Filter:
    """Return a test of one attribute, or of any."""
    op = word.removeprefix(IGNORING_CASE)
    if op not in _TESTS:
        raise FilterTypeError(f"{brief(word)} is not a word that begins a node")
    count, make = _TESTS[op]
    name, *rest = _operands(operands, 1 + count)
    test = make(ANY if name is None else _name(name), op, *rest)
    assert isinstance(test, ValueAtom)  # noqa: S101 - every entry of the table makes one
    if op != word:
        test = _ignoring_case(test)
    return any_text(test) if name is None else test


def _ignoring_case(test: ValueAtom) -> ValueAtom:
    folded = test.folded()
    if isinstance(test, Regex):
        # Folding it again would repeat the flag.
        folded = Regex(test.attribute, test.kind, test.pattern.removeprefix(CASELESS_FLAG)).folded()
    if folded != test:
        raise FilterTypeError(
            f"{test} is to ignore case, but its text is not folded: write {folded}",
            attribute=test.attribute,
        )
    return Caseless(test.attribute, test.kind, test)


def _member(name: str, _: str, given: object) -> Filter:
    values = [_value(value) for value in _listed(given)]
    found = membership_of(name, values)
    assert isinstance(found, In)  # noqa: S101 - the builder makes no other
    # The builder leaves out repetitions.
    return In(name, found.kind, tuple(constant(value, name) for value in values))


def _bits(name: str, op: str, given: object) -> Filter:
    bits = _value(given)
    if not isinstance(bits, Bits):
        raise FilterTypeError(f"{op} takes a bit set, such as {{'bits': 5}}, not {brief(given)}")
    return has_bits(name, _BIT_TESTS[op], bits)


_TESTS: Final[dict[str, tuple[int, Callable[..., Filter]]]] = {
    **dict.fromkeys(
        COMPARISONS, (1, lambda name, op, value: comparison_of(name, op, _value(value)))
    ),
    **dict.fromkeys(TEXT_TESTS, (1, lambda name, op, text: text_test(name, op, _value(text)))),
    "between": (2, lambda name, _, low, high: between(name, _value(low), _value(high))),
    "in": (1, _member),
    "like": (1, lambda name, _, pattern: like(name, _value(pattern))),
    "matches": (1, lambda name, _, pattern: regular(name, _value(pattern))),
    "in network": (1, lambda name, _, given: in_network(name, map(_value, _listed(given)))),
    **dict.fromkeys(_BIT_TESTS, (1, _bits)),
}
"""How many operands follow the attribute, and what makes a test of them."""


def _operands(given: list[object], count: int) -> list[object]:
    if len(given) != count:
        raise FilterTypeError(f"it takes {count} operands, not {len(given)}")
    return given


def _popped(stack: Stack) -> Filter | Expression:
    if not stack:
        raise FilterTypeError("there is nothing before it")
    return stack.pop()


def _as_filter(part: Filter | Expression) -> Filter:
    if isinstance(part, Filter):
        return part
    raise FilterTypeError(f"it takes a filter, but {part} is a value")


def _as_expression(part: Filter | Expression) -> Expression:
    if isinstance(part, Expression):
        return part
    raise FilterTypeError(f"it takes a value, but {part} is a filter")


def _word(given: object, known: Iterable[str]) -> str:
    if isinstance(given, str) and given in known:
        return given
    raise FilterTypeError(f"{brief(given)} is none of {', '.join(known)}")


def _listed(given: object) -> list[object]:
    if isinstance(given, list):
        return given
    raise FilterTypeError(f"it takes a list, not {brief(given)}")


def _name(given: object) -> str:
    if isinstance(given, str) and given:
        return constant_name(given)
    raise FilterTypeError(f"an attribute's name is a text that is not empty, not {brief(given)}")


def _value(given: object) -> Value:
    if type(given) in PLAIN:
        return constant(given)
    if isinstance(given, dict) and len(given) == 1:
        [(word, content)] = given.items()
        if word in _TAGGED:
            return _typed(_TAGGED[word], content)
    words = ", ".join(_TAGGED)
    raise FilterTypeError(
        f"{brief(given)} is not a value; write an integer, a text or a boolean, or an object with "
        f"one key of {words}"
    )


def _typed(type_: Type, content: object) -> Value:
    traits, given = TYPES[type_], TYPE_OF_CLASS.get(type(content))
    convert = None if given is None else traits.conversions.get(given)
    value: Value | None = None
    try:
        if given is type_:
            value = traits.check(content, "")
        elif convert is not None:
            value = convert(content)
    except (ValueError, OverflowError) as error:
        raise FilterTypeError(str(error)) from None
    if value is None:
        raise FilterTypeError(f"{brief(content)} is not a value of type {type_.value!r}")
    return value
