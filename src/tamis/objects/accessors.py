"""Accessors: how a message object is queried, as a chain of members, calls, indices and keys.

An accessor has a name, which is the attribute that the engine knows. Fields, properties and keys
are joined by dots, so that a filter in text means the same on objects and on plain events.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache, partial
from itertools import islice
from threading import Lock
from types import NoneType
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from tamis.errors import FilterTypeError, LimitError
from tamis.events.reflection import holds_elements
from tamis.events.values import Bits

MAX_ACCESSOR_STEPS: Final = 32
"""AccessorSteps of one accessor, and collections inside each other."""
MAX_VALUES: Final = 65_536
"""Elements of a collection; more are left out, and counted as a failure."""
MAX_NESTED_VALUES: Final = 16 * MAX_VALUES
"""Values that one accessor may find in collections inside each other; for more, the same."""

_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_STEP: Final = re.compile(
    r'\.?(?P<field>[^\W\d]\w*)|\[(?P<index>-?\d{1,9})\]|\[(?P<key>"(?:[^"\\]|\\.)*")\]'
)


@dataclass(frozen=True, slots=True)
class FieldStep:
    """A public field or property of an object, or what a mapping has under this name."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}" if _PLAIN.fullmatch(self.name) else f"[{json.dumps(self.name)}]"


@dataclass(frozen=True, slots=True)
class KeyStep(FieldStep):
    """The same, written as a key."""

    __str__ = FieldStep.__str__


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call of a public method with constant arguments."""

    name: str
    arguments: tuple[object, ...] = field(default=(), compare=False)
    shown: str = field(default="", init=False, repr=False)
    """Compared in their place: 1, 1.0 and True are equal, and not the same argument."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", ", ".join(map(show_argument, self.arguments)))

    def __str__(self) -> str:
        return f".{self.name}({self.shown})"


@dataclass(frozen=True, slots=True)
class IndexStep:
    """An element of a sequence by its place, or a value of a mapping by an integer key."""

    index: int

    def __str__(self) -> str:
        return f"[{self.index}]"


@dataclass(frozen=True, slots=True)
class ClassStep:
    """Whether the object is an instance of the class with this identity."""

    class_name: str

    def __str__(self) -> str:
        return f".isinstance({self.class_name})"


@dataclass(frozen=True, slots=True)
class KeysStep:
    """The keys of a mapping; nothing else has any, whatever its methods are called."""

    def __str__(self) -> str:
        return "[keys]"


Step = FieldStep | CallStep | IndexStep | ClassStep | KeysStep
AccessorSteps = tuple[Step, ...]


_SHOWN_BY_PYTHON: Final = (NoneType, bool, int, float, bytes, Decimal, date, UUID)


def show_argument(argument: object) -> str:
    """Return an argument of a call as its accessor's name has it: others have other names.

    What Python shows of an instance of any other class is its own choice, so that its class is
    named as well.

    >>> show_argument("EUR"), show_argument(1), show_argument((True, 1.0))
    ('"EUR"', '1', '(True, 1.0)')
    """
    cls = type(argument)
    if cls is str:
        return json.dumps(argument, ensure_ascii=False)
    if isinstance(argument, Enum):
        return f"{class_identity(cls)}.{argument.name} = {argument.value!r}"
    if isinstance(argument, tuple):
        inside = f"({', '.join(map(show_argument, argument))})"
        return inside if cls is tuple else f"{class_identity(cls)}{inside}"
    zone = argument.tzinfo if isinstance(argument, datetime) else None
    if cls in _SHOWN_BY_PYTHON or (
        cls is datetime and type(zone) in (NoneType, timezone, ZoneInfo)
    ):
        return repr(argument)
    base = next((one for one in _WITH_OWN_TEXT if isinstance(argument, one)), None)
    text = repr(argument) if base is None else base.__repr__(argument)
    return f"{class_identity(cls)}({text})"


_WITH_OWN_TEXT: Final = (int, float, str, bytes, Decimal, UUID)
"""Classes whose derived classes may show themselves as something else."""


def name_of(steps: Sequence[Step]) -> str:
    """Return the attribute that stands for what some steps lead to.

    >>> name_of((FieldStep("customer"), FieldStep("city"))), name_of((CallStep("total", ("EUR",)),))
    ('customer.city', 'total("EUR")')
    """
    return "".join(map(str, steps)).removeprefix(".")


@lru_cache(maxsize=4096)
def steps_of(name: str) -> AccessorSteps | None:
    """Return the steps that an attribute's name in a text stands for; None if it stands for none.

    Names in texts never call methods and never reach private members: texts come from outsiders.

    >>> steps_of("lines[0].price")
    (FieldStep(name='lines'), IndexStep(index=0), FieldStep(name='price'))
    """
    steps: list[Step] = []
    at = 0
    while at < len(name):
        found = _STEP.match(name, at)
        if found is None or len(steps) == MAX_ACCESSOR_STEPS:
            return None
        at = found.end()
        if found["index"] is not None:
            steps.append(IndexStep(int(found["index"])))
            continue
        if found["field"] is None:
            steps.append(KeyStep(json.loads(found["key"])))
        elif is_private(found["field"]):
            return None
        else:
            steps.append(FieldStep(found["field"]))
    return tuple(steps) if name_of(steps) == name else None


def needs_no_quotes(name: str) -> bool:
    """Return whether a name is written without quotes in the names of attributes."""
    return _PLAIN.fullmatch(name) is not None


def is_private(name: str) -> bool:
    """Return whether a name belongs to its class alone."""
    return name.startswith("_")


@dataclass(frozen=True)
class Accessor:
    """A chain of steps from a message object to a value."""

    root: str = ""
    """The identity of the class of the message; empty: any object that answers."""
    steps: AccessorSteps = ()
    exact: bool = True
    """Whether decimals are kept as they are; otherwise they are the nearest number."""
    scope: int = field(default=0, compare=False, repr=False)
    """What the steps begin at while a filter is written: the message, or one loop's element."""

    @cached_property
    def name(self) -> str:
        """Return the attribute that the engine knows."""
        return name_of(self.steps)

    def then(self, step: Step, *, exact: bool = True) -> Accessor:
        """Return the accessor with one more step."""
        if len(self.steps) >= MAX_ACCESSOR_STEPS:
            raise LimitError(
                "steps of an accessor", actual=len(self.steps) + 1, limit=MAX_ACCESSOR_STEPS
            )
        return Accessor(self.root, (*self.steps, step), exact, self.scope)

    def __str__(self) -> str:
        return self.name or ("the element" if self.scope else "the message")


# --- classes by their names ------------------------------------------------------------------


def class_name(cls: type) -> str:
    """Return the name of a class with that of its module."""
    return f"{cls.__module__}.{cls.__qualname__}"


_IDENTITIES: Final[WeakKeyDictionary[type, str]] = WeakKeyDictionary()
_CLASSES_OF_A_NAME: Final[Counter[str]] = Counter()
_NUMBER: Final = re.compile(r" \(\d+\)$")
_identifying: Final = Lock()


def class_identity(cls: type) -> str:
    """Return what filters in this process know a class by.

    That is its name, with a number if other classes had that name before, such as a class that a
    notebook has defined again: who asks for one of them must not get another.
    """
    known = _IDENTITIES.get(cls)
    if known is None:
        with _identifying:
            name = class_name(cls)
            _CLASSES_OF_A_NAME[name] += 1
            number = _CLASSES_OF_A_NAME[name]
            known = _IDENTITIES.setdefault(cls, name if number == 1 else f"{name} ({number})")
    return known


def name_in_identity(identity: str) -> str:
    """Return the name of the class, which other processes know as well.

    >>> name_in_identity("market.Trade (2)")
    'market.Trade'
    """
    return _NUMBER.sub("", identity)


def _class_names(cls: type) -> frozenset[str]:
    return frozenset(map(class_identity, cls.__mro__))


class_names: Final[Callable[[type], frozenset[str]]] = lru_cache(maxsize=4096)(_class_names)
"""Returns the identities of a class and of all that it is derived from."""


# --- reading an object, step by step ---------------------------------------------------------


@dataclass
class AccessorFailures:
    """Exceptions in accessors: how many, and the first of each class of objects and accessor."""

    total: int = 0
    first: dict[tuple[str, str], AccessorFailure] = field(default_factory=dict)
    """By the class of the message object, and the accessor."""
    _changing: Lock = field(default_factory=Lock, repr=False, compare=False)

    MOST: ClassVar[int] = 1_000

    def note(self, message: object, accessor: str, error: Exception) -> None:
        """Count a failure; the number of those that are kept is bounded."""
        key = class_name(type(message)), accessor
        with self._changing:
            self.total += 1
            known = self.first.get(key)
            if known is not None:
                self.first[key] = known._replace(times=known.times + 1)
            elif len(self.first) < self.MOST:
                self.first[key] = AccessorFailure(*key, type(error).__name__, _words(error), 1)

    def clear(self) -> None:
        """Forget all failures."""
        with self._changing:
            self.total = 0
            self.first.clear()


def _words(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # Other people's exceptions may fail as well.
        return ""


class AccessorFailure(NamedTuple):
    """The exceptions that one accessor raised on objects of one class."""

    class_name: str
    accessor: str
    error: str
    """The class of the first exception."""
    message: str
    times: int


def is_several(value: object) -> bool:
    """Return whether a value is a collection whose elements are the values."""
    return holds_several(type(value))


def _holds_several(cls: type) -> bool:
    return holds_elements(cls) and not issubclass(cls, Bits)


holds_several: Final[Callable[[type], bool]] = lru_cache(maxsize=4096)(_holds_several)
"""Returns whether instances of a class are collections: not texts, mappings or named tuples."""


Reader = Callable[[object, Accessor], object]
"""Returns what an accessor finds in an object, a list of the values of several; None: nothing."""


FAILURES: Final = AccessorFailures()
"""The failures of this process, unless others are asked for."""


def too_many_values(limit: int) -> LimitError:
    """Return the error for values that are left out."""
    return LimitError("values of an accessor", actual=limit + 1, limit=limit)


def first_elements(several: Any, failed: Callable[[Exception], None] | None) -> list[Any]:
    """Return the elements of a collection; if there are too many, the first, and tell of it."""
    found = [*islice(several, MAX_VALUES + 1)]
    if len(found) > MAX_VALUES:
        found.pop()
        if failed is not None:
            failed(too_many_values(MAX_VALUES))
    return found


class FoundInElements(list[object]):
    """What an accessor finds in the elements of a collection, which is no list of the object's."""


class ByName:
    """Reads objects by looking up every member by its name: the reference for all faster ways."""

    def __init__(self, failures: AccessorFailures = FAILURES) -> None:
        self.failures: Final = failures

    def __call__(self, message: object, accessor: Accessor) -> object:
        """Return what the accessor finds."""
        if accessor.root and accessor.root not in class_names(type(message)):
            return None
        return self.read(message, accessor.steps, message, accessor.name)

    def read(
        self, value: object, steps: AccessorSteps, message: object, name: str, depth: int = 0
    ) -> object:
        """Return where some steps lead to from a value that the message has."""
        for place, step in enumerate(steps):
            if value is None:
                return None
            if goes_into_elements(value, step):
                if depth == MAX_ACCESSOR_STEPS:
                    return None
                rest = steps[place:]
                try:
                    elements = first_elements(value, partial(self.failures.note, message, name))
                except Exception as error:  # Collections may be other people's code.
                    self.failures.note(message, name, error)
                    return None
                found = [self.read(each, rest, message, name, depth + 1) for each in elements]
                return FoundInElements(each for each in found if each is not None)
            value = self.taken(value, step, message, name)
        return value

    def taken(self, value: object, step: Step, message: object, name: str) -> object:
        """Take one step; where it raises, there is nothing."""
        try:
            return self.step(value, step)
        except Exception as error:  # Whatever an accessor raises, the object does not match.
            if not is_mere_absence(value, step, error):
                self.failures.note(message, name, error)
            return None

    def step(self, value: Any, step: Step) -> object:
        """Take one step."""
        match step:
            case FieldStep(name=name):
                if isinstance(value, Mapping):
                    return value.get(name)
                # A key may begin with an underscore; what an object hides stays hidden.
                return None if is_private(name) else getattr(value, name)
            case CallStep(name=name, arguments=arguments):
                return getattr(value, name)(*arguments)
            case IndexStep(index=index):
                return value[index]
            case ClassStep(class_name=name):
                return name in class_names(type(value))
            case KeysStep():
                return [*value] if isinstance(value, Mapping) else None


def goes_into_elements(value: object, step: Step) -> bool:
    """Return whether a step is taken from each element of a collection, not from itself."""
    match step:
        case FieldStep():
            return is_several(value)
        case CallStep(name=name):
            return is_several(value) and not hasattr(type(value), name)
        case _:
            return False


def is_mere_absence(value: object, step: Step, error: Exception) -> bool:
    """Return whether an exception says only that there is no such member, element or key."""
    if isinstance(step, IndexStep):
        return isinstance(error, IndexError | KeyError | TypeError)
    if not isinstance(error, AttributeError) or isinstance(step, ClassStep | KeysStep):
        return False
    # Not `hasattr`: that would run a property once more.
    try:
        own = getattr(value, "__dict__", ())
    except Exception:  # Other people's `__getattr__` may raise anything.
        own = ()
    return not hasattr(type(value), step.name) and step.name not in own


def require_public(name: str, what: str = "member") -> None:
    """Refuse a private name: what a class hides is not for filters."""
    if is_private(name):
        raise FilterTypeError(
            f"{name!r} is private to its class, so no filter may ask for it; add a public {what}"
        )
