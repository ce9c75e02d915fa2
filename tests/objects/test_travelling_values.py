"""What is published comes back as it was, or is refused when it is published."""

# ruff: noqa: RUF009
# mypy: disable-error-code="arg-type, typeddict-item, typeddict-unknown-key, call-arg"

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from typing import Any, Literal, NotRequired, Self, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pydantic
import pytest

from tamis import EventError, open_bus_sync
from tamis.objects import decode_object, encode_object, read_object_header


class Whole(int):
    pass


class Real(float):
    pass


class Amount(Decimal):
    pass


class Text(str):
    __slots__ = ()


class Octets(bytes):
    pass


class Day(date):
    pass


class Moment(datetime):
    pass


class Key(UUID):
    pass


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    CALM = "calm"


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Side(Flag):
    LEFT = auto()
    RIGHT = auto()


class Color(Enum):
    RED = "red"


@dataclass
class Scalars:
    whole: int = 1
    real: float = 1.0
    amount: Decimal = Decimal(1)
    text: str = ""
    octets: bytes = b""
    day: date = date(2026, 1, 1)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    clock: time = time(1)
    span: timedelta = timedelta(0)
    key: UUID = UUID(int=1)


@dataclass
class Derived:
    whole: Whole = Whole(1)
    real: Real = Real(1.5)
    amount: Amount = field(default_factory=lambda: Amount("1.50"))
    text: Text = Text("a")
    octets: Octets = Octets(b"a")
    day: Day = Day(2026, 1, 1)
    at: Moment = Moment(2026, 1, 1, 2, tzinfo=UTC)
    key: Key = field(default_factory=lambda: Key(int=3))


@dataclass
class Rights:
    right: Right
    side: Side = Side.LEFT
    either: Right | str = "none"


class Row(TypedDict):
    a: int
    b: NotRequired[str]


@dataclass
class Rows:
    row: Row
    rows: list[Row] = field(default_factory=list)


@dataclass
class Sets:
    given: AbstractSet[int]


@dataclass
class Chosen:
    given: Color | Literal["auto"] | int | None
    by_mood: dict[str, int] = field(default_factory=dict)


def restored(given: object) -> Any:
    data = encode_object(given)
    header = read_object_header(data)
    assert header is not None
    return decode_object(data, header, [type(given)])


pd = pytest.importorskip("pandas")
LONG_AGO = datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Vienna"))
SECONDS = timezone(timedelta(seconds=3661))
RESTORED: list[Any] = [
    Scalars(whole=Whole(5)),
    Scalars(whole=Level.LOW),
    Scalars(real=Real(1.5)),
    Scalars(real=np.float64(1.5)),
    Scalars(real=Whole(4)),
    Scalars(real=4),
    Scalars(amount=Amount("1.50")),
    Scalars(text=Text("a")),
    Scalars(text=Mood.CALM),
    Scalars(octets=Octets(b"x")),
    Scalars(day=Day(2026, 1, 2)),
    Scalars(at=pd.Timestamp("2026-01-02", tz="UTC")),
    Scalars(at=Moment(2026, 1, 2, tzinfo=UTC)),
    Scalars(at=LONG_AGO),
    Scalars(at=datetime(2026, 1, 1, tzinfo=SECONDS)),
    Scalars(span=pd.Timedelta("1s")),
    Scalars(key=Key(int=4)),
    Derived(),
    *(Rights(right) for right in (Right.READ, Right.READ | Right.WRITE, Right(0))),
    Rights(Right.READ, Side.LEFT | Side.RIGHT, Right.WRITE),
    Rights(Right.READ, Side(0), "some"),
    Rows({"a": 1}, [{"a": 1, "b": "x"}, {"a": 2}]),
    Sets({1, 2}),
    Sets(frozenset({1})),
    *map(Chosen, (Color.RED, "auto", 1, None)),
    Chosen(1, {Mood.CALM: 1}),
]


@pytest.mark.parametrize("given", RESTORED, ids=repr)
def test_what_travels_is_equal_afterwards(given: Any) -> None:
    found = restored(given)
    assert found == given
    if isinstance(given, Derived | Rights | Sets | Chosen):
        classes = [*map(type, vars(found).values())]
        expected = [*map(type, vars(given).values())]
        assert [set if one is frozenset else one for one in expected] == classes


@dataclass
class EnumOrText:
    given: Color | str


@dataclass
class TextOrEnum:
    given: str | Color


@dataclass
class EnumOrAny:
    given: Level | float


@dataclass
class TwoEnums:
    given: Color | Literal["red"]


@dataclass
class FlagOrNumber:
    given: Right | int


@dataclass
class SetOrList:
    given: set[int] | list[int]


@dataclass
class DictionaryOrRow:
    given: dict[str, int] | Row


@dataclass
class DictionaryOrObject:
    given: Scalars | dict[str, int]


@dataclass
class Prepared:
    a: int
    b: InitVar[int]

    def __post_init__(self, b: int) -> None:
        self.c = b


class NameIsValue(Enum):
    A = (1, 2)
    B = "A"


class SameText(Enum):
    DAY = date(2026, 1, 1)
    TEXT = "2026-01-01"


@dataclass
class Held:
    given: NameIsValue


@dataclass
class HeldText:
    given: SameText


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


class Stubborn(int):
    def __new__(cls, value: int, _unit: str) -> Self:
        return super().__new__(cls, value)


@dataclass
class Made:
    given: Stubborn


REFUSED: list[tuple[Any, str]] = [
    (EnumOrText("red"), "given: it may be Color or str, which a reader could not tell apart"),
    (TextOrEnum(Color.RED), "given: it may be Color or str"),
    (EnumOrAny(1.0), "given: it may be Level or float"),
    (TwoEnums("red"), "given: it may be Color or one of 'red'"),
    (FlagOrNumber(1), "given: it may be Right or int"),
    (SetOrList([1]), "given: it may be one of several collections"),
    (DictionaryOrRow({"q": 1}), "given: it may be an object or a dictionary, or one of two"),
    (DictionaryOrObject({"q": 1}), "given: it may be an object or a dictionary"),
    (Rows({"a": 1, "c": 3}), "row: Row does not declare 'c', which would be lost"),
    (Rows({"b": "x"}), "row.a: None is not int, as declared"),
    (Open(a=1, b=2), "Open does not declare 'b', which would be lost"),
    (Prepared(1, 2), "'Prepared' cannot travel: its constructor needs 'b', which no field keeps"),
    (Held(NameIsValue.A), "NameIsValue.A and NameIsValue.B would be written alike"),
    (HeldText(SameText.DAY), "SameText.DAY and SameText.TEXT would be written alike"),
    (Made(Stubborn(1, "m")), "given: 1 makes no Stubborn: TypeError"),
    (Scalars(at=pd.Timestamp(1, tz="UTC")), "of the class Timestamp is equal to no datetime"),
    (Scalars(at=pd.NaT), "at: NaT of the class NaTType is equal to no datetime"),
    (Scalars(clock=time(1, tzinfo=SECONDS)), "clock: the zone's offset has seconds"),
    (Scalars(at=datetime.min.replace(tzinfo=SECONDS)), "at: the zone's offset has seconds"),
    (Scalars(real=2**53 + 1), "real: 9007199254740993 of the class int is equal to no float"),
    (Scalars(real=np.float64("nan")), "real: JSON has no number nan"),
    (Scalars(whole=Whole(2**63)), "whole: the integer does not fit in 64 bits"),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED, ids=[text[:60] for _, text in REFUSED])
def test_what_could_not_come_back_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(EventError) as caught:
        encode_object(given)
    assert sentence in str(caught.value)


@dataclass
class Private:
    _x: int
    y: int = 1


class Starred:
    def __init__(self, *given: int) -> None:
        self.given = given


def test_a_bus_says_what_is_wrong_with_a_class() -> None:
    with open_bus_sync() as bus:
        for given, sentence in (
            (Private(1), "the field '_x' is private, so it stays here"),
            (Prepared(1, 2), "its constructor needs 'b', which no field keeps"),
            (Starred(1), "objects of the class 'Starred' cannot travel: it declares no fields"),
            (5, "'int' is not an event; give a mapping"),
            (Decimal(5), "'Decimal' is not an event; give a mapping"),
        ):
            with pytest.raises(EventError) as caught:
                bus.publish(given)
            assert sentence in str(caught.value)
