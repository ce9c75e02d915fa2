"""Filters over objects as data: names and constants, never code.

A structure is a list: its version, then nodes in postfix order, each a list that begins with a
word. What is read goes through the same checks as what is written in Python, against classes that
the reader names: data cannot reach a class that it was not given, nor a private member, nor call a
method that no class declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from tamis.errors import FilterError, FilterStructureError, FilterTypeError, LimitError
from tamis.events.kinds import TYPE_OF_CLASS, TYPES, Type
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.filters.limits import FilterLimits
from tamis.objects.accessors import (
    MAX_ACCESSOR_STEPS,
    Accessor,
    CallStep,
    FieldStep,
    IndexStep,
    KeyStep,
    Step,
    class_identity,
    class_name,
    name_in_identity,
)
from tamis.objects.building import StandIn, member, message, test_of
from tamis.objects.conditions import quantified_over
from tamis.objects.patterns import (
    MAX_CONDITIONS,
    Combination,
    Complement,
    Conjunction,
    Disjunction,
    ObjectCondition,
    ObjectFilter,
    Parity,
    Quantified,
)
from tamis.objects.stepping import Recorded, recorded, take_element

VERSION: Final = 1
NODES_PER_CONDITION: Final = 4
_CONNECTIVES: Final[Mapping[str, type[Combination]]] = {
    "and": Conjunction,
    "or": Disjunction,
    "xor": Parity,
}
_WORDS: Final = {kind: word for word, kind in _CONNECTIVES.items()}
_PLAIN: Final = (bool, int, str)


# --- writing ---------------------------------------------------------------------------------


def object_filter_to_structure(filter_: ObjectFilter) -> list[Any]:
    """Return a filter over objects as lists of names and constants, which JSON can hold.

    >>> object_filter_to_structure(message().price < 5)
    [1, ['<', '', ['price'], 5]]
    """
    nodes: list[Any] = [VERSION]
    _write(filter_, nodes)
    return nodes


def _write(filter_: ObjectFilter, nodes: list[Any]) -> None:
    # Filters are made in this process, and their depth is limited.
    match filter_:
        case ObjectCondition(accessor=accessor, op=op, operand=operand):
            nodes.append(
                [op, _root(accessor), [*map(_step, accessor.steps)], *_operands(op, operand)]
            )
        case Quantified(accessor=accessor, every=every, inner=inner):
            word = "all" if every else "any"
            nodes.append([f"for {word}", _root(accessor), [*map(_step, accessor.steps)]])
            _write(inner, nodes)
            nodes.append([word])
        case Complement(term=term):
            _write(term, nodes)
            nodes.append(["not"])
        case Combination(terms=terms):
            for term in terms:
                _write(term, nodes)
            nodes.append([_WORDS[type(filter_)], len(terms)])
        case _:
            raise FilterTypeError(f"{filter_!r} has no structure")


def _root(accessor: Accessor) -> str:
    # Numbers in identities mean nothing to other processes.
    return name_in_identity(accessor.root)


def _step(step: Step) -> Any:
    match step:
        case KeyStep(name=name):
            return [name]
        case FieldStep(name=name):
            return name
        case CallStep(name=name, arguments=arguments):
            return [name, [*map(_constant, arguments)]]
        case IndexStep(index=index):
            return index
        case _:
            raise FilterTypeError(f"{step} has no structure")


def _operands(op: str, operand: Any) -> list[Any]:
    match op:
        case "present":
            return []
        case "in":
            return [[*map(_constant, operand)]]
        case "compare":
            return [operand[0], _constant(operand[1])]
        case "is a":
            return [name_in_identity(operand)]
        case _:
            return [_constant(operand)]


def _constant(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    traits = TYPES.get(TYPE_OF_CLASS.get(type(value), Type.STR))
    if traits is None or traits.cls is not type(value):
        raise FilterTypeError(f"the constant {brief(value)} has no structure")
    return {
        TYPE_OF_CLASS[traits.cls].value: value if traits.to_json is None else traits.to_json(value)
    }


# --- reading ---------------------------------------------------------------------------------


def object_filter_from_structure(
    structure: object, *classes: type, calls: bool = False, limits: FilterLimits | None = None
) -> ObjectFilter:
    """Return the filter that was written, checked against the classes that it may ask about.

    With `calls`, methods may be called that no class declares, on objects of any class.

    >>> object_filter_from_structure([1, ["<", "", ["price"], 5]])
    message().price < 5
    """
    if not isinstance(structure, list) or not structure:
        raise FilterStructureError(
            "the structure of a filter is a list of its version and its nodes, not "
            f"{brief(structure)}"
        )
    version, *nodes = structure
    if type(version) is not int or version != VERSION:
        raise FilterStructureError(
            f"the structure of a filter over objects has version {brief(version)}, but this Tamis "
            f"knows only version {VERSION}: update the older of the two"
        )
    if len(nodes) > NODES_PER_CONDITION * MAX_CONDITIONS:
        most = NODES_PER_CONDITION * MAX_CONDITIONS
        raise LimitError("nodes in the filter", actual=len(nodes), limit=most)
    reading = _StructureReading(
        {name(cls): cls for name in (class_name, class_identity) for cls in classes},
        calls=calls,
        limits=limits,
    )
    for number, node in enumerate(nodes, start=1):
        try:
            reading.read(node)
        except FilterStructureError:
            raise
        except FilterError as error:
            raise FilterStructureError(str(error), number=number, node=brief(node)) from None
    return reading.result()


class _OpenCollection(NamedTuple):
    several: Recorded
    element: Recorded
    below: int
    """The filters on the stack before it."""


class _StructureReading:
    def __init__(
        self, classes: Mapping[str, type], *, calls: bool, limits: FilterLimits | None
    ) -> None:
        self._classes = classes
        self._calls = calls
        self._characters = (limits or FilterLimits()).text
        self._stack: list[ObjectFilter] = []
        self._collections: list[_OpenCollection] = []
        """Those whose elements the next nodes are about."""

    def read(self, node: object) -> None:
        """Read one node."""
        if not isinstance(node, list) or not node or not isinstance(node[0], str):
            raise FilterTypeError("a node is a list that begins with a word")
        word, *operands = node
        match word, operands:
            case "not", []:
                self._stack.append(Complement.of(self._popped()))
            case (("and" | "or" | "xor"), [int(count)]) if count >= 2:
                self._join(_CONNECTIVES[word], count)
            case (("for any" | "for all"), [root, steps]):
                several = recorded(self._found(root, steps))
                opened = _OpenCollection(several, take_element(several), len(self._stack))
                self._collections.append(opened)
            case (("any" | "all"), []):
                self._close(every=word == "all")
            case _, [root, steps, *given]:
                self._stack.append(self._condition(word, self._found(root, steps), given))
            case _:
                raise FilterTypeError(f"{word!r:.60} is not a node with {len(operands)} operands")

    def result(self) -> ObjectFilter:
        """Return the only filter that is left."""
        if self._collections or len(self._stack) != 1:
            raise FilterStructureError("the nodes do not end with one filter")
        return self._stack[0]

    def _popped(self) -> ObjectFilter:
        self._require(1)
        return self._stack.pop()

    def _require(self, count: int) -> None:
        below = self._collections[-1].below if self._collections else 0
        if len(self._stack) - below < count:
            raise FilterTypeError(f"it needs {count} filters before it, and there are fewer")

    def _join(self, kind: type[Combination], count: int) -> None:
        self._require(count)
        terms = self._stack[-count:]
        del self._stack[-count:]
        self._stack.append(kind(tuple(terms)))

    def _close(self, *, every: bool) -> None:
        if not self._collections:
            raise FilterTypeError("there is no collection before it")
        self._require(1)
        inner = self._stack.pop()
        several, element, _ = self._collections.pop()
        self._stack.append(quantified_over(several, element, inner, every=every))

    # --- accessors ---------------------------------------------------------------------------

    def _found(self, root: object, steps: object) -> StandIn:
        if (
            not isinstance(root, str)
            or not isinstance(steps, list)
            or len(steps) > MAX_ACCESSOR_STEPS
        ):
            raise FilterTypeError(f"an accessor is a class and at most {MAX_ACCESSOR_STEPS} steps")
        found = self._root(root)
        for step in steps:
            found = self._taken(found, step)
        return found

    def _root(self, root: str) -> StandIn:
        if root:
            if root not in self._classes:
                hint = did_you_mean(root, self._classes) or "give it to whoever reads the structure"
                raise FilterTypeError(f"the class {root!r:.80} is not known here; {hint}")
            return message(self._classes[root])
        if self._collections:
            return StandIn(self._collections[-1].element)
        return message()

    def _taken(self, found: StandIn, step: object) -> StandIn:
        match step:
            case str():
                self._count(step)
                return member(found, step)
            case [str(key)]:
                self._count(key)
                return found[key]
            case bool():
                raise FilterTypeError("a step is a name, a call or an index, not a boolean")
            case int():
                return found[step]
            case [str(name), [*arguments]]:
                self._count(name)
                method = member(found, name)
                if not self._calls and recorded(method).method is None:
                    raise FilterTypeError(
                        f"no class says that {name!r:.60} is a method: allow it with calls=True"
                    )
                return method(*map(self._constant, arguments))
            case _:
                raise FilterTypeError(f"{brief(step)} is no step: a name, a call or an index")

    # --- conditions --------------------------------------------------------------------------

    def _condition(self, word: str, found: StandIn, given: list[Any]) -> ObjectFilter:
        match word, given:
            case "present", []:
                return test_of(found, "is_present")()
            case "in", [[*values]]:
                return test_of(found, "in_")(*map(self._constant, values))
            case "compare", [str(name), constant]:
                return test_of(found, "compare")(name, self._constant(constant))
            case "is a", [str(name)]:
                return self._instance(found, name)
            case _, [constant] if word in _BUILDERS:
                built: ObjectFilter = _BUILDERS[word](found, self._constant(constant))
                return built
            case _:
                known = [*_BUILDERS, "in", "present", "compare", "is a"]
                hint = did_you_mean(word, known) or f"there are {', '.join(known)}"
                raise FilterTypeError(f"{word!r:.60} is no test like that; {hint}")

    def _instance(self, found: StandIn, name: str) -> ObjectFilter:
        self._count(name)
        if name not in self._classes:
            raise FilterTypeError(f"the class {name!r:.80} is not known here")
        return test_of(found, "is_a")(self._classes[name])

    def _constant(self, given: object) -> Any:
        if given is None or isinstance(given, bool | int):
            return given
        if isinstance(given, str):
            self._count(given)
            return given
        match given:
            case {"decimal": str(text), **rest} if not rest and len(text) <= 1_000:
                try:
                    return Decimal(text)
                except InvalidOperation:
                    raise FilterTypeError(f"{text[:40]!r} is no decimal") from None
            case {"float": int() | float() as number, **rest} if not rest:
                return float(number)
            case dict() if len(given) == 1:
                return self._tagged(*next(iter(given.items())))
            case _:
                raise FilterTypeError(f"{brief(given)} is no constant")

    def _tagged(self, word: object, shown: object) -> Any:
        types = {one.value: one for one, t in TYPES.items() if Type.STR in t.conversions}
        if word not in types or not isinstance(shown, str):
            raise FilterTypeError(
                f"{brief(word)} is no type of constants; there are {', '.join(types)}"
            )
        self._count(shown)
        try:
            return TYPES[types[str(word)]].conversions[Type.STR](shown)
        except ValueError as error:
            raise FilterTypeError(str(error)) from None

    def _count(self, text: str) -> None:
        self._characters -= len(text)
        if self._characters < 0:
            raise FilterTypeError("it has more characters than a filter may have")


_BUILDERS: Final[Mapping[str, Callable[[StandIn, Any], Any]]] = {
    "=": lambda found, given: found == given,
    "!=": lambda found, given: found != given,
    "<": lambda found, given: found < given,
    "<=": lambda found, given: found <= given,
    ">": lambda found, given: found > given,
    ">=": lambda found, given: found >= given,
    "has": lambda found, given: test_of(found, "contains")(given),
    "has part": lambda found, given: test_of(found, "contains")(given),
    "contains": lambda found, given: test_of(found, "contains")(given),
    "starts with": lambda found, given: test_of(found, "startswith")(given),
    "ends with": lambda found, given: test_of(found, "endswith")(given),
    "like": lambda found, given: test_of(found, "like")(given),
    "matches": lambda found, given: test_of(found, "matches")(given),
}
