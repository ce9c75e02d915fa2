"""What opens stores: found in Spark's configuration on the driver, broadcast to workers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tamis.spark.runtime.stores import (
    ALL_BUCKETS,
    HADOOP_OPTIONS,
    ONE_BUCKET,
    ObjectStore,
    StoreAccess,
)

NO_ACCESS: Final = StoreAccess()


def driver_access() -> StoreAccess:
    """Return what Spark's own configuration says about stores."""
    context: Any = getattr(_session(), "_jsc", None)
    if context is None:
        return NO_ACCESS
    known = context.hadoopConfiguration()
    values = {name: known.get(name) for name in HADOOP_OPTIONS}
    names = tuple(name.removeprefix(ALL_BUCKETS) for name in HADOOP_OPTIONS)
    of_buckets = known.getPropsWithPrefix(ONE_BUCKET).items()
    values |= {f"{ONE_BUCKET}{key}": value for key, value in of_buckets if key.endswith(names)}
    return StoreAccess({name: value for name, value in values.items() if value})


def _session() -> SparkSession | None:
    """Return the session of this thread, or else of this process; None if there is none.

    A thread that Python has started has no active session, and may use the one of another.
    """
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def shared_access(access: StoreAccess) -> Any:
    """Return access as workers get it: broadcast, since what is in a plan may be shown."""
    session = _session()
    if not access or getattr(session, "_jsc", None) is None or session is None:
        return None
    return _broadcast(session.sparkContext.applicationId, access)


@lru_cache(maxsize=8)
def _broadcast(application: str, access: StoreAccess) -> Any:  # noqa: ARG001 - it is a key
    """Broadcast access once: a stream asks for it in every batch."""
    return SparkSession.active().sparkContext.broadcast(access)


def opened_store(location: str, access: Any) -> ObjectStore:
    """Return the store at an address, with access as the driver or as workers have it."""
    return _opened(location, getattr(access, "value", access) or NO_ACCESS)


@lru_cache(maxsize=8)
def _opened(location: str, access: StoreAccess) -> ObjectStore:
    return ObjectStore(location, access)
