"""Paths and addresses as people write them: of folders of this machine, and of stores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from tamis.errors import LibraryError, SparkError, StreamError

# One letter is no scheme, but a drive, or a folder with a strange name.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_PATTERN: Final = re.compile(r"[\\\[\]{}*?]")
_LOCAL: Final = "file"
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]+")
_S3: Final = ("s3", "s3a", "s3n")
# What Arrow reaches; of others it says itself that it does not.
_KNOWN: Final = (*_S3, "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_SECRETS: Final = ("signature", "secret", "token", "password", "credential", "key")

StoreErrors = type[LibraryError] | type[StreamError]
"""What is raised about a store: it depends on what lies there."""


def is_remote(path: object) -> bool:
    """Return whether a path is the address of a store, and not of a folder.

    >>> is_remote("s3a://bucket/library"), is_remote("file:/data"), is_remote("data")
    (True, False, False)
    """
    found = _SCHEME.match(str(path))
    return found is not None and found[1].lower() != _LOCAL


def local_path(path: object) -> Path:
    """Return a path of this machine; people write `file:` because Spark takes it.

    >>> str(local_path("file:///data/library")), str(local_path("file:/data/library"))
    ('/data/library', '/data/library')
    """
    text = str(path)
    if not text.lower().startswith(f"{_LOCAL}:/"):
        return Path(text).absolute()
    text = text[len(_LOCAL) + 1 :]
    if text.startswith("//"):
        host, _, rest = text.removeprefix("//").partition("/")
        if host not in ("", "localhost"):
            raise SparkError(
                f"{path} names the machine {host!r}; a path of this machine has three slashes, as "
                "in file:///data"
            )
        text = f"/{rest}"
    return Path(text).absolute()


def escape_glob(path: object) -> str:
    r"""Return a path as Spark's readers take it, which read unescaped `[ ] { } * ?` as patterns.

    >>> print(escape_glob("/data/run[1]"))
    /data/run\[1\]
    """
    return _PATTERN.sub(r"\\\g<0>", str(path))


class StoreAddress(NamedTuple):
    """The parts of an address: a scheme, a bucket or host, and a path."""

    scheme: str
    host: str
    path: str

    @property
    def is_s3(self) -> bool:
        """Return whether it is one of S3, by any of the names that Hadoop has had for it."""
        return self.scheme in _S3

    @classmethod
    def of(cls, url: str, error_of: StoreErrors) -> StoreAddress:
        """Take an address to pieces, as Hadoop does, to which `?` and `#` are parts of a path."""
        scheme, _, rest = url.partition(":")
        host, slash, path = rest.removeprefix("//").partition("/")
        found = cls(scheme.lower(), host, f"{slash}{path}")
        found._require_no_secret(error_of)
        if not rest.startswith("//") and found.scheme in _KNOWN:
            raise error_of(
                url,
                f"the address has one slash after {scheme}:, which needs two, and a bucket or a "
                f"host: write {scheme}://…, and as a text, since a Path joins slashes",
            )
        if found.is_s3 and not _BUCKET.fullmatch(host):
            raise error_of(url, f"{host!r} cannot be the name of a bucket")
        if "#" in url and not found.is_s3:
            raise error_of(url, "Arrow does not read an address after #; choose another name")
        return found

    def _require_no_secret(self, error_of: StoreErrors) -> None:
        """Raise if it holds a password or a signature: addresses are written and shown."""
        user, at, host = self.host.rpartition("@")
        path, _, query = f"{host}{self.path}".partition("?")
        names = (name.lower() for name in parse_qs(query, keep_blank_values=True))
        is_secret = any(name == "sig" or any(word in name for word in _SECRETS) for name in names)
        # A container of Azure is written as a user.
        if is_secret or ":" in user or (at and self.is_s3):
            raise error_of(
                f"{self.scheme}://…@{path}" if at else f"{self.scheme}://{path}?…",
                "the address holds a secret; give it to Spark or to the environment instead",
            )
