"""Functions as filters: `where(Trade, lambda t: t.symbol.startswith("AC") and 1 < t.price < 5)`.

The function is never called. Its source is read, and every operation on its parameter is done on a
stand-in instead, so that the same checks apply as to filters that are written with `message`.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import operator
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import EnumMeta, Flag
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from tamis.errors import FilterFunctionError, FilterTypeError
from tamis.events.values import brief
from tamis.objects.building import StandIn, member, message, test_of
from tamis.objects.checking import is_constant
from tamis.objects.patterns import (
    Complement,
    Conjunction,
    Disjunction,
    ObjectFilter,
    Parity,
    combined,
    require_object_filter,
)
from tamis.objects.stepping import recorded

T = TypeVar("T")

FunctionNode = ast.Lambda | ast.FunctionDef


def where(cls: type[T] | None, function: Callable[[T], object]) -> ObjectFilter:
    """Return the filter that a function of a message says, reading it and never calling it.

    >>> class Trade:
    ...     symbol: str
    ...     price: float
    >>> where(Trade, lambda t: t.symbol.startswith("AC") and 1 < t.price < 5)
    message(Trade).symbol.startswith('AC') & (message(Trade).price > 1) & (message(Trade).price < 5)
    """
    if not isinstance(function, types.FunctionType):
        raise FilterTypeError(
            f"where takes a lambda or a function of the message, not {brief(function)}"
        )
    source = _Source(function)
    parameters = source.node.args
    names = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    if len(names) != 1 or parameters.kwonlyargs or parameters.vararg or parameters.kwarg:
        raise source.error(source.node, "a filter is a function of one message")
    reading = _FunctionReading(source, {names[0]: message(cls)})
    return reading.condition(source.body)


class _Source:
    """A function's source: where it stands, and what its free names mean."""

    def __init__(self, function: types.FunctionType) -> None:
        self._code: Final = function.__code__
        self._function: Final = function
        self.node: Final = self._find()
        self.body: Final = self._body()

    def _find(self) -> FunctionNode:
        code = self._code
        lines = linecache.getlines(code.co_filename, self._function.__globals__)
        try:
            known = _functions_of("".join(lines))
        except SyntaxError:
            known = {}
        found = known.get(code.co_firstlineno, ())
        positions = {tuple(position) for position in code.co_positions()}
        exact = [node for node in found if _extent(node) in positions]
        # Of some expressions, such as `a if b else c`, no instruction has the extent.
        chosen = [node for node in exact or found if _is_same(node, code)]
        if len(chosen) != 1:
            raise FilterFunctionError(
                "the source of this function cannot be found, or is not what was compiled; write "
                "the filter with message() instead",
                file=code.co_filename,
                line=code.co_firstlineno,
                column=1,
            )
        return chosen[0]

    def _body(self) -> ast.expr:
        if isinstance(self.node, ast.Lambda):
            return self.node.body
        statements = [
            one
            for one in self.node.body
            if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        ]
        match statements:
            case [ast.Return(value=ast.expr() as value)]:
                return value
            case _:
                raise self.error(
                    statements[0] if statements else self.node,
                    "a function that is a filter has nothing but one return statement",
                )

    def error(self, node: ast.AST, reason: str) -> FilterFunctionError:
        """Return an error that shows its place."""
        line, column = (
            getattr(node, "lineno", self._code.co_firstlineno),
            getattr(node, "col_offset", 0),
        )
        text = linecache.getline(self._code.co_filename, line, self._function.__globals__)
        column = len(text.encode()[:column].decode(errors="replace")) + 1
        return FilterFunctionError(
            reason, file=self._code.co_filename, line=line, column=column, text=text.rstrip("\n")
        )

    def meaning(self, name: str) -> object:
        """Return what a free name stands for now; KeyError if for nothing."""
        free = self._code.co_freevars
        if name in free and self._function.__closure__ is not None:
            return self._function.__closure__[free.index(name)].cell_contents
        scope = self._function.__globals__
        return scope[name] if name in scope else vars(builtins)[name]


@lru_cache(maxsize=32)
def _functions_of(text: str) -> Mapping[int, list[FunctionNode]]:
    found: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            first = min(
                (one.lineno for one in getattr(node, "decorator_list", ())), default=node.lineno
            )
            found.setdefault(first, []).append(node)
    return found


def _extent(node: FunctionNode) -> tuple[int | None, ...]:
    body = node.body if isinstance(node, ast.Lambda) else node.body[-1]
    return body.lineno, body.end_lineno, body.col_offset, body.end_col_offset


def _is_same(node: FunctionNode, code: types.CodeType) -> bool:
    """Return whether the names that were compiled stand in the source."""
    written = {n.id if isinstance(n, ast.Name) else n.attr for n in _named(node)}
    parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    compiled = {*code.co_names, *code.co_freevars}
    return compiled <= written and [*code.co_varnames[: code.co_argcount]] == parameters


def _named(node: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_OF_FLAGS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_COMPARED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRRORED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_COMBINED: Final = {
    ast.And: Conjunction,
    ast.Or: Disjunction,
    ast.BitAnd: Conjunction,
    ast.BitOr: Disjunction,
    ast.BitXor: Parity,
}
_ADVICE: Final[Mapping[type[ast.AST], str]] = {
    ast.Lambda: "a function inside of a filter is not read: use any(… for each in …)",
    ast.IfExp: "a filter has no `if`: write (a and b) or (not a and c)",
    ast.NamedExpr: "a filter assigns nothing: compute it before, in a variable",
    ast.Await: "a filter waits for nothing: publish an object that has the answer",
    ast.JoinedStr: "a text with {…} is not read: compute it before, in a variable",
    ast.ListComp: "a list is not read: write any(… for each in …)",
    ast.SetComp: "a set is not read: write any(… for each in …)",
    ast.DictComp: "a dictionary is not read: write any(… for each in …)",
    ast.GeneratorExp: "a generator is read inside of any(…) and all(…) only",
    ast.Starred: "write the arguments one by one",
    ast.Slice: "a part of a sequence is not read: add a property that returns it",
    ast.Dict: "a dictionary is no constant of a filter",
}


# Constants of these classes may be made on the spot: what they do is known.
_CONSTRUCTORS: Final = (Decimal, date, datetime, UUID, timedelta, timezone, ZoneInfo)


class _FunctionReading:
    """Reads one function, with stand-ins for its parameter and for the elements of loops."""

    def __init__(self, source: _Source, known: Mapping[str, StandIn]) -> None:
        self._source = source
        self._known = known

    def condition(self, node: ast.expr) -> ObjectFilter:
        """Read a condition."""
        found = self.value(node)
        condition: ObjectFilter = self._placed(node, lambda: require_object_filter(found))
        return condition

    def value(self, node: ast.expr) -> Any:
        """Read an expression: a stand-in, a condition, a constant, or a class."""
        read = getattr(self, f"_read_{type(node).__name__.lower()}", None)
        if read is None:
            advice = _ADVICE.get(type(node), "write it with message(), or as a method of the class")
            raise self._source.error(node, f"this cannot be read as part of a filter; {advice}")
        return self._placed(node, lambda: read(node))

    def _placed(self, node: ast.AST, build: Callable[[], Any]) -> Any:
        try:
            return build()
        except FilterFunctionError:
            raise
        except FilterTypeError as error:
            raise self._source.error(node, error.reason) from None

    # --- names and constants -----------------------------------------------------------------

    def _read_constant(self, node: ast.Constant) -> object:
        return node.value

    def _read_name(self, node: ast.Name) -> object:
        if node.id in self._known:
            return self._known[node.id]
        try:
            found = self._source.meaning(node.id)
        except (KeyError, ValueError):
            raise self._source.error(node, f"the name {node.id!r} has no meaning here") from None
        return self._outside(node, found)

    def _outside(self, node: ast.expr, found: object) -> object:
        if isinstance(found, list | set | frozenset) and all(map(is_constant, found)):
            return tuple(found)
        if is_constant(found) or isinstance(found, type | types.ModuleType):
            return found
        if any(found is one for one in (any, all, isinstance)) or isinstance(found, tzinfo):
            return found
        shown = ast.unparse(node)
        hint = "; add a property that returns the length" if found is len else ""
        raise self._source.error(
            node, f"{shown} is {brief(found)}, which is no constant of a filter{hint}"
        )

    def _read_tuple(self, node: ast.Tuple | ast.List | ast.Set) -> tuple[object, ...]:
        return tuple(self._constant(each) for each in node.elts)

    _read_list = _read_set = _read_tuple

    def _constant(self, node: ast.expr) -> object:
        found = self.value(node)
        if isinstance(found, StandIn | ObjectFilter):
            raise self._source.error(node, "a constant is needed here, not a part of the message")
        return found

    # --- steps -------------------------------------------------------------------------------

    def _read_attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        if isinstance(owner, StandIn):
            return member(owner, node.attr)
        if isinstance(owner, EnumMeta | types.ModuleType | type) and hasattr(owner, node.attr):
            return self._outside(node, getattr(owner, node.attr))
        raise self._source.error(
            node,
            f"{ast.unparse(node)} is no member of the message: compute it before, in a variable",
        )

    def _read_subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if not isinstance(owner, StandIn):
            raise self._source.error(node, "only parts of the message have elements here")
        return owner[self._constant(node.slice)]

    def _read_call(self, node: ast.Call) -> object:
        function = node.func
        if (spread := next((one for one in node.keywords if one.arg is None), None)) is not None:
            raise self._source.error(spread.value, "write the arguments of ** one by one")
        if isinstance(function, ast.Attribute) and function.attr in ("startswith", "endswith"):
            owner = self.value(function.value)
            if isinstance(owner, StandIn) and len(node.args) == 1 and not node.keywords:
                return test_of(owner, function.attr)(self._constant(node.args[0]))
        called = self.value(function)
        if called is isinstance:
            return self._instance(node)
        if called is any or called is all:
            return self._quantified(node, every=called is all)
        if any(called is one for one in _CONSTRUCTORS):
            made = [self._constant(each) for each in node.args]
            return self._made(node, called, made, self._named(node))
        if not isinstance(called, StandIn):
            raise self._source.error(
                node,
                f"{ast.unparse(function)}(…) is not read: compute it before, in a variable, or add "
                "a method to the class",
            )
        arguments = [self._constant(each) for each in node.args]
        return called(*arguments, **self._named(node))

    def _named(self, node: ast.Call) -> dict[str, object]:
        return {str(one.arg): self._constant(one.value) for one in node.keywords}

    def _made(
        self, node: ast.Call, cls: Any, arguments: list[object], named: dict[str, object]
    ) -> object:
        try:
            return cls(*arguments, **named)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise self._source.error(node, f"this is no {cls.__name__}: {error}") from None

    def _instance(self, node: ast.Call) -> ObjectFilter:
        if len(node.args) != 2:
            raise self._source.error(node, "isinstance takes a part of the message and a class")
        found, cls = self.value(node.args[0]), self.value(node.args[1])
        if not isinstance(found, StandIn):
            raise self._source.error(node.args[0], "isinstance asks about a part of the message")
        tests = [test_of(found, "is_a")(one) for one in (cls if isinstance(cls, tuple) else (cls,))]
        return combined(Disjunction, *tests)

    def _quantified(self, node: ast.Call, *, every: bool) -> ObjectFilter:
        word = "all" if every else "any"
        match node.args:
            case [ast.GeneratorExp(elt=inner, generators=[loop])] if isinstance(
                loop.target, ast.Name
            ):
                several = self.value(loop.iter)
                target = loop.target.id
            case _:
                raise self._source.error(
                    node,
                    f"{word} takes a condition on each element: {word}(each.x > 5 for each in …)",
                )
        if not isinstance(several, StandIn):
            raise self._source.error(loop.iter, f"{word} goes over a part of the message")

        def condition(element: StandIn) -> ObjectFilter:
            reading = _FunctionReading(self._source, {**self._known, target: element})
            found = reading.condition(inner)
            for test in loop.ifs:
                chosen = reading.condition(test)
                found = Disjunction.of((Complement.of(chosen), found)) if every else chosen & found
            return found

        return test_of(several, word)(condition)

    # --- conditions --------------------------------------------------------------------------

    def _read_boolop(self, node: ast.BoolOp) -> ObjectFilter:
        return combined(_COMBINED[type(node.op)], *map(self.condition, node.values))

    def _read_unaryop(self, node: ast.UnaryOp) -> object:
        if isinstance(node.op, ast.Not | ast.Invert):
            return Complement.of(self.condition(node.operand))
        found: Any = self._constant(node.operand)
        if not _are_numbers(found):
            raise self._source.error(node, f"only a number has a sign, not {brief(found)}")
        return -found if isinstance(node.op, ast.USub) else found

    def _read_binop(self, node: ast.BinOp) -> object:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Flag) and type(left) is type(right):
            compute = _OF_FLAGS.get(type(node.op))
            if compute is not None:
                return compute(left, right)
        if type(node.op) in _COMBINED:
            kind = _COMBINED[type(node.op)]
            return combined(kind, self.condition(node.left), self.condition(node.right))
        compute = _ARITHMETIC.get(type(node.op))
        if isinstance(left, StandIn) or isinstance(right, StandIn):
            part = left if isinstance(left, StandIn) else right
            return part + 0
        if compute is None or not _are_numbers(left, right):
            raise self._source.error(node, "this is not computed: do it before, in a variable")
        try:
            return compute(left, right)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._source.error(node, f"this cannot be computed: {error}") from None

    def _read_compare(self, node: ast.Compare) -> ObjectFilter:
        operands = [node.left, *node.comparators]
        found = []
        for op, pair in zip(node.ops, pairwise(operands), strict=True):
            left, right = map(self.value, pair)
            build = partial(self._pair, node, op, left, right)
            found.append(self._placed(pair[1], build))
        return combined(Conjunction, *found)

    def _pair(self, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> ObjectFilter:
        match op:
            case ast.Is() | ast.IsNot() if isinstance(left, StandIn) and right is None:
                return test_of(left, "is_absent" if isinstance(op, ast.Is) else "is_present")()
            case ast.Is() | ast.IsNot():
                raise self._source.error(node, "`is` compares with None only; write == or !=")
            case ast.In() | ast.NotIn():
                test = self._membership(node, left, right)
                return test if isinstance(op, ast.In) else Complement.of(test)
            case _:
                if isinstance(left, StandIn):
                    return _condition(_COMPARED[type(op)](left, right))
                if isinstance(right, StandIn):
                    mirrored = _MIRRORED.get(type(op), type(op))
                    return _condition(_COMPARED[mirrored](right, left))
                raise self._source.error(node, "neither side is a part of the message")

    def _membership(self, node: ast.Compare, left: Any, right: Any) -> ObjectFilter:
        if isinstance(right, StandIn):
            # As Python has it, a dictionary contains its keys.
            holder = right.keys() if recorded(right).promise.is_surely(Mapping) else right
            return test_of(holder, "contains")(left)
        if isinstance(left, StandIn) and isinstance(right, tuple):
            return test_of(left, "in_")(*right)
        raise self._source.error(
            node, "`in` asks for an element of the message, or for one of some constants (a, b)"
        )


def _are_numbers(*values: object) -> bool:
    numbers = (int, float, Decimal)
    return all(isinstance(one, numbers) and not isinstance(one, bool) for one in values)


def _condition(found: Any) -> ObjectFilter:
    condition: ObjectFilter = found
    return condition
