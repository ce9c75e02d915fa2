"""What differs between the versions of Spark that Tamis runs on, and what stands in for it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from tamis.errors import SparkError

SparkRelease = tuple[int, int]

_SEED: Final = 42
_WORD: Final = 0xFFFFFFFF


def release_of(version: str) -> SparkRelease:
    """Return the release that a version belongs to.

    >>> release_of("4.1.0.dev3")
    (4, 1)
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


SPARK: Final = release_of(pyspark.__version__)


def require_spark(oldest: SparkRelease, what: str) -> None:
    """Raise if Spark is too old for something."""
    if oldest > SPARK:
        major, minor = oldest
        raise SparkError(
            f"{what} Spark {major}.{minor} or newer, and this is Spark {pyspark.__version__}"
        )


def arrow_type(type_: T.DataType, zone: str = "UTC") -> pa.DataType:
    """Return the Arrow type in which Spark hands over a column."""
    convert: Any = to_arrow_type
    if SPARK >= (4, 2):
        return convert(type_, timezone=zone)
    try:
        return convert(type_)
    except ModuleNotFoundError as error:
        raise SparkError(
            f"Spark {pyspark.__version__} uses the module {error.name}, which this version of "
            "Python lacks; install the package setuptools, which has it"
        ) from None


def collect_table(frame: DataFrame) -> pa.Table:
    """Return all rows as an Arrow table."""
    if SPARK >= (4, 0):
        return frame.toArrow()
    whole: Any = frame
    batches = whole._collect_as_arrow()  # noqa: SLF001 - since 4.0, this is `toArrow`
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({f.name: pa.array([], arrow_type(f.dataType)) for f in frame.schema})


# --- partitions by number ------------------------------------------------------------------------


def repartition_by_number(frame: DataFrame, partitions: int, number: Column) -> DataFrame:
    """Return the rows with each in the partition that a column numbers."""
    if SPARK >= (4, 1):
        return frame.repartitionById(partitions, number)
    # Spark hashes what it partitions by, so give it integers that hash to the numbers.
    known = F.element_at(F.lit(_integers_by_partition(partitions)), number.cast("int") + 1)
    return frame.repartition(partitions, known)


@lru_cache(maxsize=64)
def _integers_by_partition(partitions: int) -> list[int]:
    """Return for each partition an integer that Spark would put there."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < partitions:
        found.setdefault(hash_of_integer(candidate) % partitions, candidate)
        candidate += 1
    return [found[partition] for partition in range(partitions)]


def hash_of_integer(number: int) -> int:
    """Return Spark's hash of an integer of 32 bits: Murmur3 with the seed 42.

    >>> hash_of_integer(1)
    -559580957
    """
    mixed = number * 0xCC9E2D51 & _WORD
    mixed = _rotated(mixed, 15) * 0x1B873593 & _WORD
    mixed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    mixed ^= 4  # the bytes of the integer
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (mixed >> 31 << 32)


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
