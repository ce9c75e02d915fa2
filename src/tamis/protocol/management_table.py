"""The table of management calls: how each is made, answered and found.

Each call is a struct, declared once with its HTTP method and path, the method of the broker's
session that does it, and its result.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import field

from tamis.protocol.codes import Code

T = TypeVar("T")

_PATH_FIELD: Final = re.compile(r"{(\w+)}")
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class ManagementCall(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    """A call to the broker, and its arguments; `T` is the type of its result."""


class ManagementOperation(NamedTuple):
    """How one kind of call is made and answered."""

    call: type[ManagementCall[Any]]
    name: str
    """Its name in the OpenAPI document."""
    method: str
    path: str
    does: str
    """The method of the broker's session that does it, which takes the same arguments."""
    tag: str
    status: int
    refuses: tuple[Code, ...]
    result: Any
    """The type that the session's method returns."""
    response: Any
    """The type of the response's body: the result, or a struct with the result as only field."""
    payload: type[msgspec.Struct] | None
    """The arguments that are not part of the path; None if there are none."""

    @property
    def has_body(self) -> bool:
        """Return whether the arguments are the body of the request, rather than its query."""
        return self.payload is not None and self.method not in ("GET", "DELETE")

    @property
    def wrapper(self) -> str | None:
        """Return the field of the response that holds the result; None if it is the result."""
        return None if self.response is self.result else self.response.__struct_fields__[0]

    def path_arguments(self, call: ManagementCall[Any]) -> dict[str, str]:
        """Return the arguments in the path, by their names there."""
        fields = zip(self.call.__struct_encode_fields__, self.call.__struct_fields__, strict=True)
        names = _PATH_FIELD.findall(self.path)
        return {encoded: getattr(call, name) for encoded, name in fields if encoded in names}

    def arguments(self, call: ManagementCall[Any]) -> msgspec.Struct | None:
        """Return the arguments that are not part of the path."""
        if self.payload is None:
            return None
        return self.payload(**{f: getattr(call, f) for f in self.payload.__struct_fields__})

    def make_call(self, path: dict[str, str], payload: msgspec.Struct | None) -> Any:
        """Return the call with the given arguments, from the path and elsewhere."""
        fields = zip(self.call.__struct_encode_fields__, self.call.__struct_fields__, strict=True)
        values = {name: path[encoded] for encoded, name in fields if encoded in path}
        return self.call(**values, **({} if payload is None else msgspec.structs.asdict(payload)))


OPERATIONS: Final[dict[type[ManagementCall[Any]], ManagementOperation]] = {}


def operation(
    method: str,
    path: str,
    does: str,
    *,
    tag: str,
    name: str | None = None,
    status: int = 200,
    response: type[msgspec.Struct] | None = None,
    refuses: tuple[Code, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Enter a call into the table."""

    def enter(call: Any) -> Any:
        [base] = [b for b in call.__orig_bases__ if get_args(b)]
        [result] = get_args(base)
        OPERATIONS[call] = ManagementOperation(
            call,
            name or _WORD.sub("_", call.__name__).lower(),
            method,
            path,
            does,
            tag,
            204 if result is type(None) else status,
            refuses,
            result,
            response or result,
            _payload(call, _PATH_FIELD.findall(path)),
        )
        return call

    return enter


def _payload(call: type[ManagementCall[Any]], in_path: list[str]) -> type[msgspec.Struct] | None:
    types = get_type_hints(call, include_extras=True)
    fields = [f for f in msgspec.structs.fields(call) if f.encode_name not in in_path]
    if not fields:
        return None
    return msgspec.defstruct(
        call.__name__,
        [
            (
                f.name,
                types[f.name],
                _field(f),
            )
            for f in fields
        ],
        namespace={"__doc__": inspect.getdoc(call)},
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _field(info: msgspec.structs.FieldInfo) -> Any:
    if info.default is not msgspec.NODEFAULT:
        return field(default=info.default, name=info.encode_name)
    if info.default_factory is not msgspec.NODEFAULT:
        return field(default_factory=info.default_factory, name=info.encode_name)
    return field(name=info.encode_name)
