"""A schema: attributes with their types and defaults, and whether they hold several values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Final, NamedTuple

from tamis.errors import EventError, SchemaError
from tamis.events.class_attributes import attributes_of
from tamis.events.event import Event
from tamis.events.kinds import (
    KIND_OF_TYPE,
    TRAITS_OF_CLASS,
    TYPE_OF_CLASS,
    TYPES,
    Kind,
    Type,
    Value,
    check_value,
)
from tamis.events.values import Bits, brief, check_text


class Attribute(NamedTuple):
    """One attribute of a schema."""

    type: Type
    default: Value | None = None
    many: bool = False
    caseless: bool = False
    """Whether tests of its texts ignore case."""

    @property
    def kind(self) -> Kind:
        """Return the kind of the attribute's type."""
        return KIND_OF_TYPE[self.type]

    def __repr__(self) -> str:
        default = "" if self.default is None else f", default={self.default!r}"
        flags = "".join(f", {name}=True" for name in ("many", "caseless") if getattr(self, name))
        return f"Attribute({self.type.value!r}{default}{flags})"


AttributeDeclaration = str | type | Attribute


class Schema(Mapping[str, Attribute]):
    """Names, types and defaults that events and filters must agree with.

    A type is named by a word or by the Python class. An attribute that may hold several values
    is declared with `many=True`. Events may carry attributes that the schema does not name;
    filters may not mention them.

    >>> schema = Schema({"company": "str", "price": float, "flags": attribute("bits", default=0)})
    >>> schema
    Schema({'company': 'str', 'price': 'float', 'flags': Attribute('bits', default=Bits(0b0))})
    >>> schema.conform(Event({"company": "IBM", "price": 5}))
    Event({'company': 'IBM', 'price': 5.0})
    """

    def __init__(self, attributes: Mapping[str, AttributeDeclaration] | None = None) -> None:
        if not isinstance(attributes, Mapping | None):
            raise SchemaError(
                f"a schema is made from a mapping of names to types, not {brief(attributes)}"
            )
        self._attributes: Final = {
            _check_name(name): _declared(name, declaration)
            for name, declaration in (attributes or {}).items()
        }
        self._below: Final[dict[str, Schema]] = {}

    @classmethod
    def of(cls, described: type) -> Schema:
        """Return the schema that the fields and properties of a class declare.

        Nested classes become dotted names, collections several values. What has no type of a
        schema, such as a field that may be text or a number, is left out.

        >>> class Order:
        ...     total: float
        ...     tags: list[str]
        >>> Schema.of(Order)
        Schema({'total': 'float', 'tags': Attribute('str', many=True)})
        """
        if not isinstance(described, type):
            raise SchemaError(f"Schema.of takes a class, not {brief(described)}")
        found = {one.name: Attribute(one.type, many=one.many) for one in attributes_of(described)}
        if not found:
            raise SchemaError(
                f"the class {described.__name__} annotates no fields or properties that a schema "
                "could declare; annotate them, as in price: float"
            )
        return cls(found)

    @cached_property
    def masks(self) -> frozenset[str]:
        """Return the attributes that hold bit sets: an integer there may use the 64th bit."""
        return frozenset(n for n, a in self._attributes.items() if a.type is Type.BITS)

    def below(self, name: str) -> Schema:
        """Return what is declared for the elements of a list, under their own names.

        >>> Schema({"price": "float", "items.sku": "str"}).below("items")
        Schema({'sku': 'str'})
        """
        found = self._below.get(name)
        if found is None:
            prefix = f"{name}."
            declared = self._attributes.items()
            found = Schema({n.removeprefix(prefix): a for n, a in declared if n.startswith(prefix)})
            self._below[name] = found
        return found

    def __getitem__(self, name: str) -> Attribute:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {_short(a)}" for name, a in self._attributes.items())
        return f"Schema({{{shown}}})"

    def conform(self, event: Event) -> Event:
        """Return `event` with its values converted to the declared types, or raise EventError."""
        changed: dict[str, tuple[Value, ...]] = {}
        for name, values in event.items():
            declared = self._attributes.get(name)
            if declared is None:
                continue
            if len(values) > 1 and not declared.many:
                raise EventError(
                    f"it holds {len(values)} values, but the schema declares one; "
                    "declare it with many=True or send one",
                    place=name,
                )
            fitted = tuple(fit(value, declared.type, name) for value in values)
            if any(a is not b for a, b in zip(fitted, values, strict=True)):
                changed[name] = fitted
        conforming = event.with_values(changed) if changed else event
        conforming.conforms_to = self
        return conforming

    def ensure_conforming(self, event: Event) -> Event:
        """Return `event` itself if it is known to conform to this schema, else conform it."""
        return event if event.conforms_to is self else self.conform(event)

    def require_all(self, event: Event) -> None:
        """Refuse an event that lacks an attribute, as mode `total` requires."""
        for name in self._attributes:
            if name not in event:
                raise EventError(
                    "the event lacks it, and in mode 'total' every event must have every "
                    "attribute of the schema",
                    place=name,
                )

    def with_defaults(self, event: Event) -> Event:
        """Return `event` with defaults for the attributes it lacks, as mode `default` requires."""
        missing = {
            name: (declared.default,)
            for name, declared in self._attributes.items()
            if declared.default is not None and name not in event
        }
        return event.with_values(missing) if missing else event

    def suggestion(self, name: str) -> str:
        """Return a hint at the declared name most like `name`, or an empty text."""
        return did_you_mean(name, self._attributes)


def attribute(
    type_: str | type,
    *,
    default: object | None = None,
    many: bool = False,
    caseless: bool = False,
) -> Attribute:
    """Declare an attribute with a default, with several values, or with texts of any case.

    >>> attribute("int", default=-1)
    Attribute('int', default=-1)
    """
    resolved = _resolve(type_)
    if caseless and resolved is not Type.STR:
        raise SchemaError(f"only texts have case, so {resolved.value!r} cannot be caseless")
    if resolved is Type.BITS and type(default) is int and 0 <= default < 2**64:
        # A mask may use the 64th bit, an integer value may not.
        default = Bits.from_mask(default)
    try:
        fitted = None if default is None else fit(check_value(default), resolved, "")
    except EventError as error:
        raise SchemaError(f"the default is not valid: {error}") from None
    return Attribute(resolved, fitted, many, caseless)


def fit(value: Value, type_: Type, place: str) -> Value:
    """Return `value` converted to `type_`, or raise EventError."""
    if TYPE_OF_CLASS[type(value)] is type_:
        return value
    convert = TYPES[type_].conversions.get(TYPE_OF_CLASS[type(value)])
    converted: Value | None = None
    if convert is not None:
        try:
            converted = convert(value)
        except ValueError as error:
            raise EventError(str(error), place=place) from None
    if converted is None:
        raise EventError(
            f"{brief_value(value)} is not of type {type_.value!r}, which the schema declares",
            place=place,
        )
    return converted


def brief_value(value: Value) -> str:
    """Return a short form of a value for a sentence."""
    traits = TRAITS_OF_CLASS[type(value)]
    if traits.keyword and traits.to_json is not None:
        return str(traits.to_json(value))
    return brief(value)


def check_schema(schema: object) -> None:
    """Refuse what is not a schema, such as the mapping that one is made from."""
    if not isinstance(schema, Schema):
        advice = f": write Schema({schema!r:.60})" if isinstance(schema, Mapping) else ""
        raise SchemaError(f"a schema is a Schema, not {schema!r:.60}{advice}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean "…"?` for the closest known name, or an empty text."""
    close = get_close_matches(name[:64], list(known), n=1, cutoff=0.7)
    return f'did you mean "{close[0]}"?' if close else ""


def _short(declared: Attribute) -> str:
    plain = declared == Attribute(declared.type)
    return repr(declared.type.value) if plain else repr(declared)


def _declared(name: str, declaration: AttributeDeclaration) -> Attribute:
    try:
        if isinstance(declaration, Attribute):
            type_, default, many, caseless = declaration
            return attribute(type_, default=default, many=many, caseless=caseless)
        return attribute(declaration)
    except SchemaError as error:
        raise SchemaError(f"{name:.60}: {error}") from None


def _resolve(type_: str | type) -> Type:
    if isinstance(type_, type) and type_ in TYPE_OF_CLASS:
        return TYPE_OF_CLASS[type_]
    try:
        return Type(type_)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(repr(t.value) for t in Type)
        raise SchemaError(f"{brief(type_)} is not a type; the types are {known}") from None


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SchemaError(f"an attribute's name is a text that is not empty, not {brief(name)}")
    try:
        return check_text(name, what="the name")
    except EventError as error:
        raise SchemaError(str(error)) from None
