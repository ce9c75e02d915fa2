"""The options of a stream from or to a Tamis broker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tamis.errors import SparkError

SCHEMES: Final = ("http://", "https://")

# Where an option is called as Spark calls the like.
_OTHERWISE: Final = {"limit": "maxEventsPerTrigger", "fails_on_loss": "failOnDataLoss"}
_TRUTHS: Final = {"true": True, "false": False}


class Settings(NamedTuple):
    """What a stream from or to a broker goes by, wherever a part of it runs."""

    url: str
    filter: str = "true"
    language: str = "tamis"
    mode: str | None = None
    start: str = "latest"
    """Where a new stream begins: `latest`, `earliest`, a sequence or a time."""
    end: str = "latest"
    """Where a batch job ends."""
    token: str | None = None
    """Without one, the variable TAMIS_TOKEN of the driver."""
    ca: str | None = None
    """A PEM file of certificates to trust, on every machine."""
    limit: int | None = None
    """The most events of the log in a batch, matching or not."""
    tasks: int = 1
    """In how many parts a batch is read."""
    publishers: int = 4
    """As how many publishers a sink publishes, side by side; fixed for the life of a stream."""
    fails_on_loss: bool = True
    patience: float = 60.0
    """How long the broker may be away, in seconds."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Read options, or say which is wrong.

        >>> Settings.of({"url": "http://localhost:8765", "tasks": "2"}).tasks
        2
        """
        given = dict(_read(name, value) for name, value in options.items())
        if not str(given.get("url", "")).startswith(SCHEMES):
            raise SparkError("the option url is missing: where the broker is, http://host:port")
        given.setdefault("token", os.environ.get("TAMIS_TOKEN") or None)
        return cls(**given)


def _read(name: str, value: str) -> tuple[str, Any]:
    names = {field: _OTHERWISE.get(field, field) for field in Settings._fields}
    # Spark does not care for case, and may have given it up.
    found = [field for field, known in names.items() if known.lower() == name.lower()]
    if not found:
        raise SparkError(f"there is no option {name!r}; there are {', '.join(names.values())}")
    [field] = found
    try:
        match field:
            case "limit" | "tasks" | "publishers":
                return field, _positive(int(value))
            case "patience":
                return field, _positive(float(value))
            case "fails_on_loss":
                return field, _TRUTHS[value.lower()]
    except (ValueError, KeyError):
        raise SparkError(f"the option {names[field]} cannot be {value!r}") from None
    return field, value


def _positive(number: Any) -> Any:
    if not number > 0:
        raise ValueError
    return number
