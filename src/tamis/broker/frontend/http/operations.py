"""The HTTP operations as data, from which the routes and the OpenAPI document are generated.

An operation is a function. The types of its parameters define the body and the query, and its
return type defines the response, so the document always agrees with the code:

- `call`: the request, and the session of the caller
- `body`, `query`, `headers`: structs
- all other parameters come from the path
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request

from tamis.broker.broker import Broker
from tamis.broker.frontend.streams import OpenStreams
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.sessions import Session
from tamis.errors import RefusedError
from tamis.protocol import Code

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Awaitable[object]])


class Frontend(NamedTuple):
    """What all requests share."""

    broker: Broker
    settings: BrokerSettings
    streams: OpenStreams


class OperationCall(NamedTuple):
    """One request."""

    request: Request
    frontend: Frontend
    authenticated: Session | None
    """The session of the caller; None if the operation is open to everyone."""

    @property
    def session(self) -> Session:
        """Return the session of the caller."""
        if self.authenticated is None:
            raise RefusedError(Code.UNAUTHENTICATED, "a token is required")
        return self.authenticated

    def require_admin(self) -> None:
        """Refuse a caller that is not an administrator."""
        if not self.session.rights.is_admin:
            raise RefusedError(Code.FORBIDDEN, "only administrators may do this")

    @property
    def broker(self) -> Broker:
        """Return the broker."""
        return self.frontend.broker

    @property
    def settings(self) -> BrokerSettings:
        """Return the settings of the broker."""
        return self.frontend.settings


class Created(NamedTuple, Generic[T]):
    """The result of an operation that creates something, unless it exists already."""

    value: T
    is_new: bool
    """True: the status is 201; False: 200."""


class Content(NamedTuple):
    """The content of a request or response that is not a single JSON struct."""

    kinds: Mapping[str, Any]
    """The type for each media type, or a JSON schema."""


OperationHandler = Callable[..., Awaitable[object]]
"""Returns the result: a struct, None, or a finished response."""


class Operation(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    handler: OperationHandler
    summary: str
    description: str
    tag: str
    body: Any
    """The type of the body; None if there is none."""
    query: Any
    result: Any
    status: int
    takes: Content | None
    """The media types of bodies, if there are several; the handler then reads the body."""
    gives: Content | None
    headers: Any
    refuses: frozenset[Code]
    public: bool
    creates: bool = False
    """Whether the status is 200 instead if there was nothing to create."""
    may_be_empty: bool = False
    """Whether the status is 204 instead if there is nothing to give."""

    @property
    def name(self) -> str:
        """Return the operation id, which generated clients use as a name."""
        return self.handler.__name__


def describe_operation(documented: object) -> tuple[str, str]:
    """Return the summary and the description of an operation, from its docstring."""
    summary, _, description = (inspect.getdoc(documented) or "").partition("\n\n")
    return summary.rstrip("."), description


class Operations:
    """The operations of one subject, collected by a decorator."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Operation] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        status: int = 200,
        refuses: tuple[Code, ...] = (),
        takes: Content | None = None,
        gives: Content | None = None,
        public: bool = False,
        may_be_empty: bool = False,
    ) -> Callable[[H], H]:
        """Turn a function into an operation."""

        def register(handler: H) -> H:
            types = typing.get_type_hints(handler, include_extras=True)
            summary, description = describe_operation(handler)
            result = types["return"]
            creates = typing.get_origin(result) is Created
            if creates:
                [result] = typing.get_args(result)
            self.all.append(
                Operation(
                    method,
                    path,
                    handler,
                    summary,
                    description,
                    self.tag,
                    types.get("body"),
                    types.get("query"),
                    result,
                    204 if result is type(None) else status,
                    takes,
                    gives,
                    types.get("headers"),
                    frozenset(refuses),
                    public,
                    creates,
                    may_be_empty,
                )
            )
            return handler

        return register
