"""Classes of messages for the tests, of every make that Python has."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic

T = TypeVar("T")
Sku = NewType("Sku", str)


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Shape(Enum):
    SQUARE = (1, 1)


@dataclass
class Address:
    city: str
    postcode: int | None = None


@dataclass
class Line:
    sku: Sku
    price: float
    quantity: int = 1

    def cost(self) -> float:
        return self.price * self.quantity


class Box(Generic[T]):
    content: T

    def __init__(self, content: T) -> None:
        self.content = content

    def unpacked(self) -> T:
        return self.content


class TextBox(Box[str]):
    pass


@dataclass
class Trade:
    symbol: str
    price: Decimal
    quantity: int = 0
    side: Side = Side.BUY
    tags: list[str] = field(default_factory=list)
    address: Address | None = None
    lines: list[Line] = field(default_factory=list)
    on: date | None = None
    at: datetime | None = None
    key: UUID | None = None
    meta: dict[str, int] = field(default_factory=dict)
    box: Box[int] | None = None
    pair: tuple[int, str] = (0, "")
    either: int | str = 0
    kind: Literal["a", "b"] = "a"
    is_open: bool = True
    blob: bytes = b""
    anything: Any = None
    ratios: Sequence[float] = ()
    recent: deque[int] = field(default_factory=deque)
    level: Level = Level.LOW

    def notional(self) -> Decimal:
        return self.price * self.quantity

    def discounted(self, percent: float, rounded: bool = False) -> float:
        value = float(self.price) * (1 - percent / 100)
        return round(value) if rounded else value

    def taxed(self, *, rate: float) -> float:
        return float(self.price) * rate

    @property
    def customer(self) -> Address | None:
        return self.address

    def broken(self) -> int:
        raise ValueError("broken")

    def unannotated(self):  # type: ignore[no-untyped-def]
        return self.quantity

    @staticmethod
    def version() -> int:
        return 7

    def _secret(self) -> int:
        return 1


class BlockTrade(Trade):
    pass


class Priced(Protocol):
    price: float

    def cost(self) -> float: ...


class Row(TypedDict):
    symbol: str
    price: float


class Point(NamedTuple):
    x: int
    y: float


class Packed(msgspec.Struct):
    symbol: str
    price: float


class Checked(pydantic.BaseModel):
    symbol: str
    price: float


class Plain:
    def __init__(self, symbol: str, price: float) -> None:
        self.symbol = symbol
        self.price = price


class Slotted:
    __slots__ = ("price", "symbol")

    symbol: str
    price: float

    def __init__(self, symbol: str, price: float) -> None:
        self.symbol = symbol
        self.price = price


class Anything:
    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        return len(name)
