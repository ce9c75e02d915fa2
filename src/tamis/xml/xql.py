"""The parser of XQL (1998): text to paths, comparisons and conditions.

The grammar, and what the proposal leaves open, are in `docs/reference/xql.md`. A rule that calls
itself goes through `QueryTokens.nested`, so the depth of the text is limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from tamis.xml.axes import AXES
from tamis.xml.logic import AllHold, Negation, NodeCondition, SomeHold
from tamis.xml.nodes import XMLKind
from tamis.xml.paths import (
    ANY_NODE,
    AxisStep,
    GroupStep,
    NodeIntersection,
    NodePath,
    NodeStep,
    NodeTest,
    NodeUnion,
    Selection,
    XMLExpression,
)
from tamis.xml.scanning import QueryOpening, QueryToken
from tamis.xml.values import date_in, number_in
from tamis.xml.work import XMLQueryLimits
from tamis.xml.xpath_functions import CORE_FUNCTIONS
from tamis.xml.xql_terms import (
    METHOD_NAMES,
    NUMBER_METHODS,
    FunctionCall,
    LiteralOperand,
    MethodCall,
    NearestAncestor,
    NodesOperand,
    UserFunction,
    UserOperator,
    WithId,
    XQLComparison,
    XQLOperand,
)
from tamis.xml.xql_words import (
    KEYWORDS,
    NAMED_FUNCTIONS,
    NODE_FUNCTIONS,
    NUMBER,
    OPERATORS,
    TAKEN_NAMES,
    TOKEN,
    is_plain_not,
    is_subscript,
    missing_name,
    read_subscript,
)

_ANYWHERE: Final = AxisStep(AXES["descendant-or-self"], ANY_NODE)

_NodeTerm = NodePath | NodeUnion | NodeIntersection
_ValueTerm = LiteralOperand | MethodCall | FunctionCall
_QueryTerm = XMLExpression | _NodeTerm | _ValueTerm
"""What a rule returns; a literal is the only one that is not an expression."""


class XQLParser(QueryOpening[XMLExpression]):
    """Parses one query."""

    def __init__(
        self,
        text: str,
        *,
        limits: XMLQueryLimits,
        namespaces: Mapping[str, str],
        operators: Mapping[str, UserOperator],
        functions: Mapping[str, UserFunction],
    ) -> None:
        super().__init__(text, TOKEN, limits, namespaces)
        self._operators = {f"${name}$": function for name, function in operators.items()}
        self._functions = functions

    def _whole(self) -> XMLExpression:
        return self._query()

    # --- and, or, not --------------------------------------------------------------------------

    def _query(self) -> XMLExpression:
        """Parse a query where it must be nodes, values of nodes, or true or false."""
        with self._tokens.nested():
            start = self._tokens.current
            found = self._disjunction()
            if isinstance(found, LiteralOperand):
                raise self._tokens.error(
                    f"{start.shown} alone is no query", at=start, hint="compare something with it"
                )
            return found

    def _disjunction(self) -> _QueryTerm:
        terms = [self._conjunction()]
        while self._tokens.skip("$or$", "or"):
            terms.append(self._conjunction())
        return terms[0] if len(terms) == 1 else SomeHold(tuple(map(self._condition, terms)))

    def _conjunction(self) -> _QueryTerm:
        terms = [self._negation()]
        while self._tokens.skip("$and$", "and"):
            terms.append(self._negation())
        return terms[0] if len(terms) == 1 else AllHold(tuple(map(self._condition, terms)))

    def _negation(self) -> _QueryTerm:
        negations = 0
        while self._tokens.current.text == "$not$" or is_plain_not(self._tokens):
            self._tokens.take()
            negations += 1
        found = self._union()
        if not negations:
            return found
        condition = self._condition(found)
        negated = Negation(condition)
        return negated if negations % 2 else Negation(negated)

    def _condition(self, term: _QueryTerm) -> XMLExpression:
        """Refuse what is neither true nor false, nor there or not."""
        if isinstance(term, LiteralOperand):
            raise self._tokens.error("a literal is neither true nor false", hint="compare with it")
        if isinstance(term, MethodCall) and term.name in NUMBER_METHODS:
            raise self._tokens.error(
                f"{term.name}() is a number, neither true nor false",
                hint=f"compare it, as in {term.name}() > 0",
            )
        return term

    # --- nodes of several paths ----------------------------------------------------------------

    def _union(self) -> _QueryTerm:
        start = self._tokens.current
        terms = [self._intersection()]
        while self._tokens.current.text in {"$union$", "|"}:
            token = self._tokens.take()
            start = self._only_nodes(terms[-1], start, token)
            terms.append(self._intersection())
            self._only_nodes(terms[-1], start, token)
        return terms[0] if len(terms) == 1 else NodeUnion(tuple(filter(_gives_nodes, terms)))

    def _intersection(self) -> _QueryTerm:
        start = self._tokens.current
        terms = [self._comparison()]
        while self._tokens.current.text == "$intersect$":
            token = self._tokens.take()
            start = self._only_nodes(terms[-1], start, token)
            terms.append(self._comparison())
            self._only_nodes(terms[-1], start, token)
        return terms[0] if len(terms) == 1 else NodeIntersection(tuple(filter(_gives_nodes, terms)))

    def _only_nodes(self, term: _QueryTerm, start: QueryToken, joining: QueryToken) -> QueryToken:
        """Refuse a term that does not give nodes; return where the next one begins."""
        if not _gives_nodes(term):
            raise self._tokens.error(
                f"{joining.shown} joins nodes, and this gives none",
                at=start,
                hint="use $and$ or $or$ for conditions",
            )
        return self._tokens.current

    # --- comparisons ---------------------------------------------------------------------------

    def _comparison(self) -> _QueryTerm:
        quantifier = self._tokens.current
        is_quantified = self._tokens.skip("$any$", "$all$")
        start = self._tokens.current
        left = self._operand()
        token = self._tokens.current
        user = self._operators.get(token.text)
        if token.text not in OPERATORS and user is None:
            self._refuse_unknown_operator(token)
            if is_quantified:
                raise self._tokens.error(f"a comparison is missing after {quantifier.shown}")
            return left
        self._tokens.take()
        op, is_caseless = OPERATORS.get(token.text, (token.text, False))
        right_start = self._tokens.current
        sides = self._side(left, start), self._side(self._operand(), right_start)
        of_all = quantifier.text == "$all$"
        return XQLComparison(op, *sides, of_all=of_all, is_caseless=is_caseless, user=user)

    def _refuse_unknown_operator(self, token: QueryToken) -> None:
        if token.text[:1] != "$" or token.text in KEYWORDS:
            return
        known = [*OPERATORS, *KEYWORDS, *self._operators]
        raise self._tokens.error(
            f"{token.shown} is not an operator of XQL, nor one of yours",
            meant=token.text,
            known=known,
        )

    def _side(self, term: _QueryTerm, start: QueryToken) -> XQLOperand:
        if isinstance(term, MethodCall) and term.name == "end":
            raise self._tokens.error("end() is true or false already", at=start)
        if isinstance(term, LiteralOperand | MethodCall | FunctionCall):
            return term
        if isinstance(term, NodePath | NodeUnion | NodeIntersection):
            return NodesOperand(term)
        raise self._tokens.error(
            "a condition, which is true or false, cannot be compared", at=start
        )

    def _operand(self) -> _QueryTerm:
        token = self._tokens.current
        if token.is_quoted:
            return LiteralOperand(self._tokens.quoted())
        if NUMBER.fullmatch(token.text):
            number = number_in(self._tokens.take().text)
            if number is None:
                raise self._tokens.error("this number has too many digits", at=token)
            return LiteralOperand(number)
        return self._path()

    # --- paths ---------------------------------------------------------------------------------

    def _path(self) -> _QueryTerm:
        token = self._tokens.current
        steps: list[NodeStep] = []
        is_absolute = self._tokens.skip("/", "//")
        if token.text == "//":
            steps.append(_ANYWHERE)
        elif is_absolute and not self._starts_step():
            return self._with_method(NodePath((), is_absolute=True))
        found = self._step(is_first=not is_absolute)
        while True:
            if not isinstance(found, AxisStep | GroupStep):
                return found
            steps.append(found)
            token = self._tokens.current
            if not self._tokens.skip("/", "//"):
                return self._with_method(NodePath(tuple(steps), is_absolute))
            if token.text == "//":
                steps.append(_ANYWHERE)
            found = self._step(is_first=False)

    def _starts_step(self) -> bool:
        token = self._tokens.current
        if token.text in {"and", "or"}:
            return False
        return token.is_name or token.text in {".", "..", "*", "@", "("}

    def _with_method(self, path: NodePath) -> _QueryTerm:
        if not self._tokens.skip("!"):
            return path
        token = self._tokens.take()
        if token.text not in METHOD_NAMES:
            raise self._tokens.error(
                f"{token.shown} is not a method",
                at=token,
                meant=token.text,
                known=METHOD_NAMES,
            )
        self._empty_call(token)
        return MethodCall(token.text, path)

    def _empty_call(self, token: QueryToken) -> None:
        self._tokens.expect("(", f"after {token.text}")
        self._tokens.expect(")", f"after {token.text}(, which takes nothing")

    def _step(self, *, is_first: bool) -> AxisStep | GroupStep | _QueryTerm:
        """Parse a step with its filters; the first may turn out to be a value or a condition."""
        token = self._tokens.current
        if self._tokens.skip("("):
            inner: object = self._query()
            self._tokens.expect(")", self._tokens.opened_by(token))
        elif token.is_name and self._tokens.ahead(1).text == "(":
            inner = self._call(is_first=is_first)
        else:
            inner = self._name_step()
        if isinstance(inner, AxisStep):
            return AxisStep(inner.axis, inner.test, self._selections())
        if isinstance(inner, NodePath | NodeUnion | NodeIntersection | NearestAncestor | WithId):
            return GroupStep(inner, self._selections())
        if not is_first:
            raise self._tokens.error("a step must give nodes", at=token)
        if self._tokens.current.text in {"[", "?", "/", "//", "!"}:
            raise self._tokens.error(
                f"{self._tokens.current.shown} follows something that gives no nodes"
            )
        return inner  # type: ignore[return-value]  # one of the terms, by the rules above

    def _name_step(self) -> AxisStep:
        token = self._tokens.take()
        if token.text == ".":
            return AxisStep(AXES["self"], ANY_NODE)
        if token.text == "..":
            return AxisStep(AXES["parent"], ANY_NODE)
        if token.text == "@":
            return self._named("attribute", XMLKind.ATTRIBUTE, self._tokens.take())
        return self._named("child", XMLKind.ELEMENT, token)

    def _named(self, axis: str, kind: XMLKind, token: QueryToken) -> AxisStep:
        if token.text == "*":
            return AxisStep(AXES[axis], NodeTest(kind))
        if not token.is_name:
            raise missing_name(self._tokens, token)
        return AxisStep(AXES[axis], self._name_test(kind, token.text, token))

    def _name_test(self, kind: XMLKind, name: str, token: QueryToken) -> NodeTest:
        prefix, colon, local = name.partition(":")
        if not colon:
            return NodeTest(kind, name, "")
        namespace = self._namespaces.of(prefix, self._tokens, token)
        return NodeTest(kind, None if local == "*" else local, namespace)

    def _selections(self) -> tuple[Selection, ...]:
        found: list[Selection] = []
        while True:
            if self._tokens.current.text == "?" and self._tokens.ahead(1).text == "[":
                self._tokens.take()
            opening = self._tokens.current
            if not self._tokens.skip("["):
                return tuple(found)
            if is_subscript(self._tokens):
                found.append(read_subscript(self._tokens))
            else:
                found.append(NodeCondition(self._condition(self._query())))
            self._tokens.expect("]", self._tokens.opened_by(opening))

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, *, is_first: bool) -> object:
        token = self._tokens.take()
        name = token.text
        if name in self._functions:
            return FunctionCall(name, self._functions[name], tuple(self._arguments()))
        if name in METHOD_NAMES:
            if not is_first:
                raise self._tokens.error(
                    f'a method follows "!", not "/": write …!{name}()', at=token
                )
            self._empty_call(token)
            return MethodCall(name)
        if name in NODE_FUNCTIONS:
            return self._node_function(name, token)
        if name in {"ancestor", "id", "date"}:
            return self._other_function(name, token)
        hint = '; it is one of XPath: write language="xpath"' if name in CORE_FUNCTIONS else ""
        raise self._tokens.error(
            f"{name}() is not a function of XQL, nor one of yours{hint}",
            at=token,
            meant=name,
            known=(*TAKEN_NAMES, *self._functions),
        )

    def _node_function(self, name: str, token: QueryToken) -> AxisStep:
        axis, kind = NODE_FUNCTIONS[name]
        self._tokens.expect("(", f"after {name}")
        test = NodeTest(kind)
        if self._tokens.current.is_quoted:
            if name not in NAMED_FUNCTIONS:
                raise self._tokens.error(f"{name}() takes nothing")
            assert kind is not None, "functions that take a name are of one kind"  # noqa: S101
            test = self._name_test(kind, self._tokens.quoted(), token)
        self._tokens.expect(")", f"after {name}(")
        return AxisStep(AXES[axis], test)

    def _other_function(self, name: str, token: QueryToken) -> object:
        arguments = self._arguments()
        if len(arguments) != 1:
            raise self._tokens.error(f"{name}() takes one argument, not {len(arguments)}", at=token)
        (argument,) = arguments
        if name == "id":
            return WithId(argument)
        if name == "ancestor":
            if isinstance(argument, NodesOperand):
                return NearestAncestor(argument.inner)
            raise self._tokens.error("ancestor() takes a query that finds nodes", at=token)
        return self._date(argument, token)

    def _date(self, argument: XQLOperand, token: QueryToken) -> LiteralOperand:
        given = argument.constant if isinstance(argument, LiteralOperand) else None
        found = date_in(given) if isinstance(given, str) else None
        if found is None:
            raise self._tokens.error(
                "date() takes a date in quotes",
                at=token,
                hint="as in date('2026-01-31') or date('2026-01-31T12:00:00Z')",
            )
        return LiteralOperand(found)

    def _arguments(self) -> Sequence[XQLOperand]:
        self._tokens.expect("(", "after the name of a function")
        found: list[XQLOperand] = []
        with self._tokens.nested():
            while not self._tokens.skip(")"):
                if found:
                    self._tokens.expect(",", "between two arguments")
                start = self._tokens.current
                found.append(self._side(self._union(), start))
        return found


def _gives_nodes(term: _QueryTerm) -> TypeGuard[_NodeTerm]:
    return isinstance(term, NodePath | NodeUnion | NodeIntersection)
