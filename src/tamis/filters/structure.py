"""A filter as data, to be stored and sent: `[version, node, node, …]`, made of what JSON has.

The nodes are in postfix order, so that reading takes one pass and a stack, and no recursion:

    [1, ["<", "price", 5], ["in", "company", ["IBM", "Dell"]], ["and", 2]]

is `price < 5 and company in ("IBM", "Dell")`. A test begins with its operator, with a `~` before it
if it ignores case, and the attribute, which is null in a test of any attribute. Integers, texts and
booleans stand for themselves; values of other types say which, as in `{"float": 1.5}`. Reading is
exact: it returns an equal filter.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from tamis.errors import EventError, FilterStructureError, FilterTypeError, LimitError
from tamis.events import Value
from tamis.events.kinds import TRAITS_OF_CLASS, TYPE_OF_CLASS
from tamis.events.values import brief
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference, Relation
from tamis.filters.atoms import (
    Between,
    Caseless,
    Compare,
    HasBits,
    HasKind,
    In,
    InNetwork,
    Like,
    Present,
    Regex,
    TextTest,
    ValueAtom,
)
from tamis.filters.boolean import Connective, Constant, Filter, Not, require_filter
from tamis.filters.build import constant
from tamis.filters.element_test import ElementTest
from tamis.filters.limits import FilterLimits
from tamis.filters.printing import ANY
from tamis.filters.structure_nodes import IGNORING_CASE, PLAIN, Stack, read_node

VERSION: Final = 1
VERSION_WITH_ELEMENTS: Final = 2
"""What has tests of elements says so: older readers know none."""

Structure = list[Any]
"""A filter as data: the version, then the nodes."""

# A filter within its limits has at most this many nodes for each of its atoms: the operands of
# arithmetic and what joins them, a negation of each, and what joins the atoms or is of elements.
NODES_PER_ATOM: Final = 6

# Parts of a filter may be shared, and are written out wherever they occur.
MAX_WRITTEN_NODES: Final = 200_000

# --- writing ---------------------------------------------------------------------------------


def to_structure(filter_: Filter) -> Structure:
    """Return a filter as data.

    >>> from tamis.filters import attr
    >>> to_structure(~(attr("price") < 5) | attr("name").caseless.contains("IBM"))
    [1, ['<', 'price', 5], ['not'], ['~contains', 'name', 'ibm'], ['or', 2]]

    Raises:
        LimitError: The filter repeats a part so often that it has 200,000 nodes.
    """
    structure: Structure = [VERSION]
    _write(require_filter(filter_), structure)
    return structure


def digest(filter_: Filter) -> str:
    """Return a name made of the content of a filter: filters with the same one are equal.

    >>> from tamis.filters import attr
    >>> digest(attr("price") < 5)
    '394a37988eb384e73c79e8e34796d40b'
    """
    return hashlib.blake2b(msgspec.json.encode(to_structure(filter_)), digest_size=16).hexdigest()


def _write(filter_: Filter, structure: Structure) -> None:
    if len(structure) > MAX_WRITTEN_NODES:
        raise LimitError("nodes in the filter", actual=None, limit=MAX_WRITTEN_NODES)
    match filter_:
        case Constant(value=value):
            structure.append(["true" if value else "false"])
        case Not(term=term):
            _write(term, structure)
            structure.append(["not"])
        case Connective(terms=terms):
            for one in terms:
                _write(one, structure)
            structure.append([filter_.word, len(terms)])
        case Relation(op=op, left=left, right=right):
            _write_expression(left, structure)
            _write_expression(right, structure)
            structure.append(["compare", op])
        case ElementTest(attribute=name, condition=condition):
            structure[0] = VERSION_WITH_ELEMENTS
            _write(condition, structure)
            structure.append(["some", name])
        case Present(attribute=name):
            structure.append(["present", name])
        case HasKind(attribute=name, kind=kind):
            structure.append(["kind", name, kind.name.lower()])
        case AnyText(test=test):
            structure.append(_test_node(test))
        case ValueAtom():
            structure.append(_test_node(filter_))
        case _:
            raise FilterTypeError(f"{filter_} has no structure")


def _write_expression(expression: Expression, structure: Structure) -> None:
    match expression:
        case Reference(name=name):
            structure.append(["attribute", name])
        case Literal(constant=value):
            structure.append(["constant", _written(value)])
        case Arithmetic(op=op, left=left, right=right):
            _write_expression(left, structure)
            _write_expression(right, structure)
            structure.append(["compute", op])
        case _:
            raise FilterTypeError(f"{expression} has no structure")


def _test_node(test: ValueAtom) -> list[Any]:
    if isinstance(test, Caseless):
        op, *rest = _test_node(test.test)
        return [IGNORING_CASE + op, *rest]
    op, *operands = _test_parts(test)
    return [op, None if test.attribute == ANY else test.attribute, *operands]


def _test_parts(test: ValueAtom) -> list[Any]:
    match test:
        case Compare(op=op, value=value):
            return [op, _written(constant(value))]
        case Between(low=low, high=high):
            return ["between", _written(constant(low)), _written(constant(high))]
        case In(values=values):
            return ["in", [_written(constant(value)) for value in values]]
        case TextTest(op=op, text=text):
            return [op, text]
        case Like(pattern=pattern):
            return ["like", pattern]
        case Regex(pattern=pattern):
            return ["matches", pattern]
        case InNetwork(networks=networks):
            return ["in network", [*networks]]
        case HasBits(op=op, bits=bits):
            return [HasBits.words[op], _written(bits)]
        case _:
            raise FilterTypeError(f"{test} has no structure", attribute=test.attribute)


def _written(value: Value) -> Any:
    if isinstance(value, PLAIN):
        return value
    traits = TRAITS_OF_CLASS[type(value)]
    shown = value if traits.to_json is None else traits.to_json(value)
    return {TYPE_OF_CLASS[type(value)].value: shown}


# --- reading ---------------------------------------------------------------------------------


def from_structure(structure: object, limits: FilterLimits | None = None) -> Filter:
    """Return the filter that `to_structure` wrote, or say what is wrong with the structure.

    >>> from_structure([1, ["<", "price", 5], ["present", "name"], ["and", 2]])
    <Filter price < 5 and name is present>
    >>> from_structure([1, ["<", "price", 5], ["and", 2]])
    Traceback (most recent call last):
    tamis.errors.FilterStructureError: node 2 of the filter, ['and', 2]: it joins 2 filters, ...

    Raises:
        FilterStructureError: It is not the structure of a filter.
        LimitError: It is larger than the limits allow; `limits.text` is for all its texts together.
    """
    limits = limits or FilterLimits()
    nodes = _nodes_of(structure, limits)
    _check_size(nodes, limits)
    stack: Stack = []
    for number, node in enumerate(nodes, start=1):
        try:
            read_node(node, stack)
        except (FilterTypeError, EventError) as error:
            raise FilterStructureError(error.reason, number=number, node=brief(node)) from None
    filter_ = _only(stack)
    limits.check(filter_)
    return filter_


def _nodes_of(structure: object, limits: FilterLimits) -> list[object]:
    if not isinstance(structure, list) or not structure:
        raise FilterStructureError(
            f"the structure of a filter is a list of its version and its nodes, not "
            f"{brief(structure)}"
        )
    version, *nodes = structure
    if type(version) is not int or version not in {VERSION, VERSION_WITH_ELEMENTS}:
        raise FilterStructureError(
            f"the structure of a filter has version {brief(version)}, but this Tamis knows only "
            f"versions {VERSION} and {VERSION_WITH_ELEMENTS}: update the older of the two"
        )
    most = NODES_PER_ATOM * limits.atoms
    if len(nodes) > most:
        raise LimitError("nodes in the filter", actual=len(nodes), limit=most)
    return nodes


def _check_size(nodes: list[object], limits: FilterLimits) -> None:
    """Count names, constants and their characters, before anything is made of them."""
    characters = constants = 0
    for node in nodes:
        for operand in node[1:] if isinstance(node, list) else ():
            parts = operand if isinstance(operand, list) else (operand,)
            constants += len(parts)
            characters += sum(len(part) for part in parts if isinstance(part, str))
    if constants > NODES_PER_ATOM * limits.atoms:
        most = NODES_PER_ATOM * limits.atoms
        raise LimitError("names and constants in the filter", actual=constants, limit=most)
    if characters > limits.text:
        raise LimitError("characters in the filter", actual=characters, limit=limits.text)


def _only(stack: Stack) -> Filter:
    if not stack:
        raise FilterStructureError("the filter has no nodes; one that always holds is ['true']")
    if len(stack) > 1:
        raise FilterStructureError(f"the nodes end with {len(stack)} parts that nothing joins")
    if not isinstance(stack[0], Filter):
        raise FilterStructureError(f"the nodes end with {stack[0]}, which nothing compares")
    return stack[0]
