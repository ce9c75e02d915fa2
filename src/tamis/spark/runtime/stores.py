"""Where libraries and records may lie beside a folder: object stores and Hadoop's file systems.

A store offers less than a folder: it writes an object as a whole, reads and lists, and has no
rename. Arrow's file systems reach it, on the driver and in workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tamis.errors import LibraryError
from tamis.spark.runtime.addresses import StoreAddress, StoreErrors

BYTES_PER_READ: Final = 4 * 1024 * 1024

# File systems of Arrow that rename, and that show a file while it is written.
_WITH_RENAME: Final = ("local", "hdfs")
_WRITING: Final = "_writing"
# Options of S3 by the names that Hadoop, and so Spark, has for them.
_S3_OPTIONS: Final = {
    "fs.s3a.access.key": "access_key",
    "fs.s3a.secret.key": "secret_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint_override",
    "fs.s3a.endpoint.region": "region",
}
_CENTRAL_ENDPOINT: Final = "s3.amazonaws.com"
"""The default of older releases of Hadoop: it stands for the endpoint of the bucket's region."""
_TLS: Final = "fs.s3a.connection.ssl.enabled"
HADOOP_OPTIONS: Final = (*_S3_OPTIONS, _TLS)
ALL_BUCKETS: Final = "fs.s3a."
ONE_BUCKET: Final = "fs.s3a.bucket."
"""How the names of options begin that are those of one bucket, after which its name follows."""


class StoreAccess:
    """The options that open a store, as Spark has them; they may be secret, so they never show."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._options: Final = dict(options or {})

    def file_system(
        self, url: str, error_of: StoreErrors = LibraryError
    ) -> tuple[fs.FileSystem, str]:
        """Return the file system of an address, and the path in it.

        What the options lack comes from the environment, as Arrow finds it.
        """
        address = StoreAddress.of(url, error_of)
        try:
            if address.is_s3:
                path = f"{address.host}{address.path}"
                return fs.S3FileSystem(**self.s3_options(address.host)), path.rstrip("/")
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(url)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise error_of(
                url, f"Arrow does not reach such a store: {_first_line(error)}"
            ) from None
        return found[0], found[1].rstrip("/")

    def s3_options(self, bucket: str) -> dict[str, Any]:
        """Return the options of a bucket, by the names that Arrow has for them."""
        found = {key: self._option(key, bucket) for key in HADOOP_OPTIONS}
        given: dict[str, Any] = {
            name: found[key] for key, name in _S3_OPTIONS.items() if found[key]
        }
        address = str(given.get("endpoint_override", ""))
        if "://" in address:
            given["scheme"], _, given["endpoint_override"] = address.partition("://")
        elif found[_TLS] == "false":
            given["scheme"] = "http"
        if given.get("endpoint_override") == _CENTRAL_ENDPOINT:
            del given["endpoint_override"]
        return given

    def _option(self, key: str, bucket: str) -> str | None:
        of_bucket = f"{ONE_BUCKET}{bucket}.{key.removeprefix(ALL_BUCKETS)}"
        return self._options.get(of_bucket) or self._options.get(key)

    def __bool__(self) -> bool:
        return bool(self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreAccess) and self._options == other._options

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._options.items())))

    def __repr__(self) -> str:
        return "<StoreAccess>"


class StoredObject(NamedTuple):
    """An object in a store: its name, its size, and when it was written, if the store tells."""

    name: str
    size: int
    modified: datetime | None

    def is_older_than(self, seconds: float) -> bool:
        """Return whether it is known to be older than some seconds."""
        if self.modified is None:
            return False
        return (datetime.now(UTC) - self.modified).total_seconds() > seconds


def _stored(info: fs.FileInfo, name: str) -> StoredObject:
    return StoredObject(name, info.size, info.mtime)


class ObjectStore:
    """The objects below one address."""

    def __init__(
        self,
        url: str,
        access: StoreAccess | None = None,
        error_of: StoreErrors = LibraryError,
    ) -> None:
        self.url: Final = url.rstrip("/")
        self.access: Final = access or StoreAccess()
        self._error_of: Final = error_of
        self._system, self._root = self.access.file_system(self.url, error_of)

    @property
    def location(self) -> str:
        """Return the address."""
        return self.url

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder, relative to it, in order."""
        return [one.name for one in self.objects(folder)]

    def objects(self, folder: str) -> list[StoredObject]:
        """Return all objects below a folder, by their names relative to it, in order."""
        place = self._place(folder)
        with self._errors(folder):
            selector = fs.FileSelector(place, allow_not_found=True, recursive=True)
            found = self._system.get_file_info(selector)
        files = (info for info in found if info.type == fs.FileType.File)
        stored = (_stored(info, info.path.removeprefix(place).lstrip("/")) for info in files)
        return sorted(one for one in stored if not one.name.startswith(f"{_WRITING}/"))

    def object(self, name: str) -> StoredObject | None:
        """Return what is known of an object, None if there is none."""
        with self._errors(name):
            info = self._system.get_file_info(self._place(name))
        return _stored(info, name) if info.type == fs.FileType.File else None

    def size(self, name: str) -> int | None:
        """Return the size of an object, None if there is none."""
        found = self.object(name)
        return None if found is None else found.size

    def read(self, name: str) -> bytes | None:
        """Return an object, None if there is none."""
        if self.size(name) is None:
            return None
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield an object in parts."""
        with self._errors(name), self._system.open_input_stream(self._place(name)) as stream:
            while data := stream.read(BYTES_PER_READ):
                yield data

    def write(self, name: str, data: bytes | Path) -> None:
        """Write an object as a whole, so that a reader finds the old one or the new one."""
        place = self._place(name)
        with self._errors(name):
            if self._system.type_name in _WITH_RENAME:
                self._write_beside(place, data)
            else:
                self._write(place, data)

    def _write_beside(self, place: str, data: bytes | Path) -> None:
        """Write a file that nobody lists, and rename it: a file system shows half of a file."""
        beside = self._place(f"{_WRITING}/{uuid4().hex}")
        for folder in (beside, place):
            self._system.create_dir(folder.rpartition("/")[0], recursive=True)
        try:
            self._write(beside, data)
            try:
                self._system.move(beside, place)
            except OSError:
                # HDFS renames to no name that is taken.
                self._system.delete_file(place)
                self._system.move(beside, place)
        except BaseException:
            with suppress(OSError):
                self._system.delete_file(beside)
            raise

    def _write(self, place: str, data: bytes | Path) -> None:
        with self._system.open_output_stream(place) as stream:
            for part in [data] if isinstance(data, bytes) else _parts(data):
                stream.write(part)

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with self._errors(name), suppress(FileNotFoundError):
            self._system.delete_file(self._place(name))

    def table(self, folder: str) -> pa.Table:
        """Return the Parquet files in a folder as one table."""
        with self._errors(folder):
            return pq.read_table(self._place(folder), filesystem=self._system)

    def address(self, name: str) -> str:
        """Return the address of an object."""
        return f"{self.url}/{name}"

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise self._error_of(self.address(name), _reason(error)) from None


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(BYTES_PER_READ):
            yield data


def _reason(error: Exception) -> str:
    line = _first_line(error)
    if isinstance(error, FileNotFoundError):
        return "there is no such object or bucket"
    if any(word in line for word in ("ACCESS_DENIED", "INVALID_ACCESS_KEY", "SIGNATURE", "403")):
        return f"the store refuses the credentials, which are Spark's or the environment's: {line}"
    return f"the store does not answer as it should: {line}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0]
