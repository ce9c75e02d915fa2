"""One event to try something with: from the command line, a file or standard input."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tamis.cli.event_input import STDIN
from tamis.cli.options import mistake
from tamis.errors import EventError, LimitError
from tamis.events import Event, Schema, decode_json
from tamis.events.json_lines import in_line
from tamis.events.places import inside
from tamis.units import count

if TYPE_CHECKING:
    from tamis.xml import Document

_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"<\0", b"\0<")
"""What UTF-16 begins with, which is never JSON here."""


class SampleText(NamedTuple):
    """The text of one event, and where it stands."""

    text: bytes
    source: str = "the event"
    """What it was read from."""
    line: int | None = None
    """The line there, if there is an event on each."""

    @property
    def is_document(self) -> bool:
        """Return whether it is XML, with which no JSON begins."""
        return _is_xml(self.text)

    def decode(self, schema: Schema | None) -> Event:
        """Return the event, or raise an error that names the place."""
        try:
            return decode_json(self.text, schema=schema)
        except (EventError, LimitError) as error:
            placed = error if self.line is None else in_line(self.line, error)
            raise inside(self.source, placed) from None

    def document(self) -> Document:
        """Return the document, or raise an error that names the place."""
        from tamis.xml import Document  # noqa: PLC0415 - needs the extra `xml`

        try:
            return Document.parse(self.text)
        except (EventError, LimitError) as error:
            raise inside(self.source, error) from None

    def encode(self) -> msgspec.Raw:
        """Return it as a broker takes it: a document is a JSON string."""
        if not self.is_document:
            return msgspec.Raw(self.text)
        from tamis.xml.decoding import decode_document  # noqa: PLC0415 - needs the extra `xml`

        try:
            return msgspec.Raw(msgspec.json.encode(decode_document(self.text)))
        except EventError as error:
            raise inside(self.source, error) from None


def is_sample(given: str) -> bool:
    """Return whether an argument is an event, rather than a filter."""
    return given == STDIN or _is_event(given) or os.path.isfile(given)


def sample_text(given: str, line: int | None) -> SampleText:
    """Return the text of one event, from the command line, a file or standard input."""
    if _is_event(given):
        if line is not None:
            raise mistake("--line is for events in a file: leave it out")
        return SampleText(given.encode())
    content = sys.stdin.buffer.read() if given == STDIN else _read(given)
    source = "standard input" if given == STDIN else given
    if _is_xml(content):
        if line is not None:
            raise mistake(f"{source} is one XML document: leave --line out")
        return SampleText(content, source)
    # A file may also hold one event on several lines.
    if line is None and content.split(b"\n", 1)[0].strip() == b"{":
        return SampleText(content, source)
    lines, number = content.removesuffix(b"\n").split(b"\n"), line or 1
    if number > len(lines):
        raise mistake(f"{source} has {count(len(lines), 'line')}, so there is no line {number:,}")
    return SampleText(lines[number - 1], source, number)


def _is_event(given: str) -> bool:
    """Return whether an argument is an event itself; an array is meant as one."""
    return given.lstrip().startswith(("{", "[", "<"))


def _is_xml(text: bytes) -> bool:
    return text.startswith(_WIDE) or text.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"<")


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise mistake(
            f"{file} is neither an event as JSON or XML nor a file that can be read: "
            f"{error.strerror}"
        ) from None
