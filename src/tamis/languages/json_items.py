"""JSON arrays item by item, each with its place in the text, so that errors can point at it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tamis.errors import FilterSyntaxError
from tamis.events.strict_json import DECODER, RejectedValue

_SPACE: Final = re.compile(r"[ \t\r\n]*+")


class JSONItems:
    """A JSON text and a place in it: `items` steps through an array, `value` reads whatever comes.

    The standard library does the reading, one value at a time.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip_space()

    @property
    def character(self) -> str:
        """Return the character that is next to be read; empty at the end."""
        return self.text[self.at : self.at + 1]

    def items(self) -> Iterator[int]:
        """Yield the place of each item of the array that begins here; each must then be read."""
        self._step()
        if self.character == "]":
            self._step()
            return
        while True:
            yield self.at
            mark, place = self.character, self.at
            if mark not in (",", "]"):
                raise self.error('"," or "]" is missing in the array', place)
            self._step()
            if mark == "]":
                return

    def value(self) -> Any:
        """Read one value of any kind."""
        start = self.at
        try:
            found, self.at = DECODER.raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
            raise self.error(f"this is not JSON: {reason}", error.pos) from None
        except RecursionError:
            raise self.error("this is nested too deeply", start) from None
        reason = _refused(found)
        if reason:
            raise self.error(reason, start)
        self._skip_space()
        return found

    def end(self) -> None:
        """Check that nothing follows."""
        if self.character:
            raise self.error("there is more text after the end of the array", self.at)

    def error(self, reason: str, at: int) -> FilterSyntaxError:
        """Return an error at a place in the text."""
        return FilterSyntaxError(reason, text=self.text, offset=at)

    def _step(self) -> None:
        self.at += 1
        self._skip_space()

    def _skip_space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at


def _refused(found: object) -> str:
    """Return why something in a value must be refused, or nothing."""
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    for item in (found, *inside):
        if isinstance(item, RejectedValue):
            return item.reason
    return ""
