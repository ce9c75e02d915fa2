"""Objects become events and objects again: of every make of class, and of other versions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from random import Random
from typing import Any, Literal, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from tamis import EventError, FilterTypeError, decode_json
from tamis.objects import decode_object, encode_object, message, message_class, read_object_header
from tamis.objects.fields import fields_digest
from tamis.objects.message_classes import known_class

from .random_objects import POOLS
from .shop import BlockTrade, Box, Checked, Packed, Plain, Point, Slotted, TextBox, Trade


def read(data: bytes) -> Any:
    header = read_object_header(data)
    assert header is not None
    return decode_object(data, header)


def there_and_back(given: object) -> Any:
    data = encode_object(given)
    decode_json(data)  # Brokers take it.
    return read(data)


class Mood(Enum):
    CALM = (1, 1)
    TENSE = (2, 1)


class Grade(IntEnum):
    GOOD = 1


class UserName(str):
    __slots__ = ()


@dataclass
class Everything:
    text: str = "ü"
    number: int = -(2**63)
    real: float = 0.1
    amount: Decimal = Decimal("19.90")
    flag: bool = True
    day: date = date(2026, 1, 2)
    moment: datetime = datetime(2026, 1, 2, 3, tzinfo=UTC)
    local: datetime = datetime(2026, 1, 2, 3)
    clock: time = time(1, 2)
    span: timedelta = timedelta(days=1, seconds=5)
    key: UUID = field(default_factory=lambda: UUID(int=7))
    blob: bytes = b"\0\xff"
    mood: Mood = Mood.TENSE
    grade: Grade = Grade.GOOD
    word: Literal["a", "b"] = "b"
    user: UserName = field(default_factory=lambda: UserName("eve"))
    anything: Any = field(default_factory=lambda: {"a": [1, None, {"b": "c"}]})
    maybe: int | None = None
    either: int | str = "5"
    several: list[Decimal] = field(default_factory=lambda: [Decimal("1E+30"), Decimal("0.10")])
    distinct: set[int] = field(default_factory=lambda: {1, 2})
    frozen: frozenset[str] = frozenset({"a"})
    recent: deque[int] = field(default_factory=lambda: deque([1]))
    row: tuple[int, ...] = (1, 2)
    pair: tuple[int, str] = (1, "a")
    by_name: dict[str, Decimal] = field(default_factory=lambda: {"a": Decimal("0.1")})
    by_number: dict[int, str] = field(default_factory=lambda: {1: "a"})
    inner: Everything | None = None
    inners: list[Everything] = field(default_factory=list)
    inner_by_name: dict[str, Everything] = field(default_factory=dict)
    mixed: Everything | list[int] | None = None
    made: int = field(default=3, init=False)


@attrs.define
class Measured:
    place: str
    _secret: int = 0
    parts: list[Measured] = attrs.field(factory=list)
    total: int = attrs.field(init=False, default=0)


class Chat:
    def __init__(self, sender: str, text: str = "") -> None:
        self._sender = sender
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chat) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class Noted(NamedTuple):
    note: str
    at: Point = Point(0, 0)


class PackedBox(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str
    inner: Packed | None = None


class CheckedBox(pydantic.BaseModel):
    price: Decimal = pydantic.Field(alias="thePrice")
    inner: Checked | None = None


@pytest.mark.parametrize(
    "given",
    [
        Everything(),
        Everything(inner=Everything(text="in"), inners=[Everything()], mixed=[1]),
        Everything(mixed=Everything(), inner_by_name={"a": Everything()}),
        Point(1, 2.5),
        Noted("a", Point(1, 1.5)),
        Packed("a", 1.5),
        PackedBox("a", Packed("b", 1.0)),
        Checked(symbol="a", price=1.5),
        CheckedBox(thePrice=Decimal("0.10"), inner=Checked(symbol="a", price=1.5)),
        Measured("a", 5, [Measured("b")]),
        Chat("Alice", "hi"),
        BlockTrade("a", Decimal("0.1"), ratios=[0.5]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_object_comes_back_as_it_was(given: object) -> None:
    back = there_and_back(given)
    assert type(back) is type(given)
    assert back == given


def test_what_a_constructor_does_not_take_comes_back_as_well() -> None:
    everything, measured = Everything(), Measured("a")
    everything.made = measured.total = 9
    assert there_and_back(everything).made == there_and_back(measured).total == 9


@pytest.mark.parametrize("given", [Plain("a", 1.5), Slotted("a", 1.5), Box(5), TextBox("a")])
def test_plain_classes_and_generic_ones_travel(given: Any) -> None:
    back = there_and_back(given)
    names = ("content",) if isinstance(given, Box) else ("symbol", "price")
    assert [getattr(back, name) for name in names] == [getattr(given, name) for name in names]


@dataclass
class Careful:
    symbol: str
    _hidden: str = "of its own"


@dataclass
class Careless:
    _hidden: str


def test_private_state_stays_where_it_is() -> None:
    sent = encode_object(Careful("a", "known to nobody"))
    assert b"hidden" not in sent
    assert there_and_back(Careful("a", "known to nobody")) == Careful("a")
    with pytest.raises(EventError, match="the field '_hidden' is private, so it stays here"):
        encode_object(Careless("a"))


def test_decimals_keep_every_digit() -> None:
    for amount in [*POOLS[Decimal], Decimal("-0.0"), Decimal(2**63), Decimal(f"{2**63}.5")]:
        back = there_and_back(Everything(amount=amount)).amount
        assert back == amount
    assert str(there_and_back(Everything(amount=Decimal("19.90"))).amount) == "19.90"


def test_random_objects_come_back() -> None:
    rng = Random(1)
    names = {"text": str, "number": int, "real": float, "amount": Decimal, "day": date, "key": UUID}
    for _ in range(300):
        given = Everything(**{name: rng.choice(POOLS[cls]) for name, cls in names.items()})
        given.inners = [Everything(blob=rng.randbytes(5)) for _ in range(rng.randrange(3))]
        assert there_and_back(given) == given


class Unkept:
    def __init__(self, size: int) -> None:
        self.double = 2 * size


@dataclass
class Odd:
    given: Any = None


@dataclass
class Ambiguous:
    given: Point | Trade


@dataclass
class Keyed:
    given: dict[date, int]


@dataclass
class Reserved:
    _object: int = 0


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


class _Below(Everything):
    pass


MISTAKES: list[tuple[object, str]] = [
    (Trade("a", "free"), "price: 'free' is not Decimal, as declared"),  # type: ignore[arg-type]
    (Trade(None, Decimal(1)), "symbol: None is not str, as declared"),  # type: ignore[arg-type]
    (Trade("a", Decimal(1), quantity=True), "quantity: True is not int, as declared"),
    (Trade("a", Decimal("NaN")), "price: JSON has no number NaN"),
    (Trade("a", Decimal("1E+400")), r"price: JSON has no number 1E\+400"),
    (Everything(real=float("inf")), "real: JSON has no number inf"),
    (Everything(number=2**63), "number: the integer does not fit in 64 bits"),
    (Everything(text="\ud800"), "text: the text has lone surrogates"),
    (Everything(inners=[1]), r"inners\[0\]: 1 is not exactly of the class Everything"),  # type: ignore[list-item]
    (Everything(inner=_Below()), "inner: .* is not exactly of the class Everything or None"),
    (Everything(by_name={5: Decimal(1)}), "by_name: the key 5 is no str"),  # type: ignore[dict-item]
    (Everything(by_name={"": Decimal(1)}), "by_name: the key '' is no str"),
    (Odd(Decimal(1)), "given: .* is not plain JSON"),
    (Odd([1, {"a": Odd()}]), r"given\[1\].a: .* is not plain JSON"),
    (Odd(nested(40)), "it is nested more than 32 levels deep"),
    (Ambiguous(Point(1, 1)), "given: it may be of several classes"),
    (Keyed({}), "given: keys of a dictionary are texts or integers"),
    (Unkept(1), "no member 'size' or '_size' keeps the argument 'size'"),
    (Reserved(), "the field '_object' of Reserved has a reserved name"),
    (5, "objects of the class 'int' cannot travel: it declares no fields"),
    (object(), "objects of the class 'object' cannot travel"),
    (Mood.CALM, "objects of the class 'Mood' cannot travel"),
]


@pytest.mark.parametrize(("given", "sentence"), MISTAKES, ids=[text[:40] for _, text in MISTAKES])
def test_an_object_that_cannot_travel_is_refused_with_the_place(
    given: object, sentence: str
) -> None:
    with pytest.raises(EventError, match=sentence):
        encode_object(given)


def test_an_object_that_holds_itself_is_refused() -> None:
    given = Everything()
    given.inner = given
    with pytest.raises(EventError, match="it is nested more than 32 levels deep"):
        encode_object(given)


# --- other versions ------------------------------------------------------------------------------


def order_class(version: int, oldest: int, /, **fields: tuple[Any, Any]) -> type:
    """Make a version of a class; a field is its annotation and its default, ... for none."""
    body: dict[str, Any] = {"__annotations__": {n: a for n, (a, _) in fields.items()}}
    body |= {name: default for name, (_, default) in fields.items() if default is not ...}
    made: type[Any] = dataclass(type("Order", (), body))
    return message_class("shop.Order", version=version, oldest=oldest)(made)


def read_by(reader: tuple[Any, ...], data: bytes) -> Any:
    """Read as another program would, which has another version of the class."""
    fields = reader[2]
    cls = order_class(reader[0], reader[1], **fields)
    found = read(data)
    assert type(found) is cls
    return found


def test_a_newer_class_gives_defaults_and_an_older_one_leaves_out() -> None:
    old = order_class(1, 1, number=(int, ...))
    data = encode_object(old(7))
    newer = read_by((2, 1, {"number": (int, ...), "currency": (str, "EUR")}), data)
    assert (newer.number, newer.currency) == (7, "EUR")
    data = encode_object(newer)
    assert read_by((1, 1, {"number": (int, ...)}), data).number == 7


@pytest.mark.parametrize(
    ("reader", "sentence"),
    [
        (
            (2, 1, {"number": (int, ...), "currency": (str, ...)}),
            "^shop.Order version 1 cannot be read as shop.Order version 2, currency: it is missing",
        ),
        (
            (2, 1, {"number": (str, ...)}),
            "^shop.Order version 1 cannot be read as .* 2, number: must be a text, not an integer",
        ),
        (
            (3, 2, {"number": (int, ...)}),
            "^shop.Order has come in version 1; .* is version 3 and reads no versions before 2",
        ),
    ],
)
def test_a_class_that_cannot_read_a_version_says_why(
    reader: tuple[Any, ...], sentence: str
) -> None:
    data = encode_object(order_class(1, 1, number=(int, ...))(7))
    with pytest.raises(EventError, match=sentence):
        read_by(reader, data)


def test_schemas_tell_fields_apart_also_of_classes_inside() -> None:
    @dataclass
    class First:
        part: list[Point]

    @dataclass
    class Second:
        part: list[Packed]

    assert fields_digest(First) != fields_digest(Second)
    assert fields_digest(First) == fields_digest(First)


def test_a_base_class_reads_what_a_derived_one_wrote() -> None:
    header = read_object_header(encode_object(BlockTrade("a", Decimal(1))))
    assert header is not None
    message(Trade)
    assert known_class(header.type) is BlockTrade
    assert known_class(["elsewhere.Derived", *header.type[1:]]) is Trade
    # Imported here, but named by no filter.
    later = type("Later", (Trade,), {"__module__": "later"})
    assert known_class(["later.Later", *header.type[1:]]) is later
    assert known_class(["elsewhere.Derived"]) is None


class Picky:
    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError("a size is not negative")
        self.size = size


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ('{"size":-1,%s}', "Picky cannot be made of it: ValueError: a size is not negative"),
        ('{"size":"a",%s}', "size: must be an integer"),
        ('{"size":1e999,%s}', "size: "),
        ("{%s}", "size: it is missing"),
        ('{"_object":{"type":["a.Stranger"],"version":1}}', "'a.Stranger' .* is not known here"),
        ('{"_object":{"type":[],"version":1}}', "_object.type: must be an array of at least 1"),
        ('{"_object":{"type":["a"],"version":0}}', "_object.version: must be an integer"),
        ('{"_object":{"type":"a","version":1}}', "_object.type: must be an array"),
        ('{"_object":[]}', "_object: must be an object"),
    ],
)
def test_what_strangers_send_is_refused_with_a_sentence(data: str, sentence: str) -> None:
    message(Picky)
    name = f"{Picky.__module__}.Picky"
    text = data.replace("%s", f'"_object":{{"type":["{name}"],"version":1}}').encode()
    with pytest.raises(EventError, match=sentence):
        read(text)


def test_deep_nesting_from_strangers_is_refused() -> None:
    message(Measured)
    inner = '{"place":"a"}'
    for _ in range(200):
        inner = f'{{"place":"a","parts":[{inner}]}}'
    name = f"{Measured.__module__}.Measured"
    data = f'{{"_object":{{"type":["{name}"],"version":1}},{inner[1:]}'.encode()
    with pytest.raises(EventError, match="nested more than 32 levels deep"):
        read(data)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": ""}, "is a text of 1 to 500 characters, not ''"),
        ({"name": 5}, "is a text of 1 to 500 characters, not 5"),
        ({"name": "a", "version": 0}, "the version of 'a' is a number from 1, not 0"),
        ({"name": "a", "version": True}, "the version of 'a' is a number from 1, not True"),
        ({"name": "a", "version": 1, "oldest": 2}, "'a' has version 1, so the oldest"),
    ],
)
def test_a_mistake_in_a_name_or_version_is_refused(options: Any, sentence: str) -> None:
    with pytest.raises(FilterTypeError, match=sentence):
        message_class(**options)
