"""The OpenAPI document, generated from the operations and their types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

import msgspec
from starlette.responses import Response

from tamis.broker.frontend.http.operations import Content, Operation
from tamis.broker.frontend.http.problems import MEDIA_TYPE, TITLES, ProblemDetails
from tamis.broker.frontend.http.reading import JSON
from tamis.protocol import Code
from tamis.protocol.codes import STATUS

_REF: Final = "#/components/schemas/{name}"
_PATH_PART: Final = re.compile(r"{(\w+)}")

ALWAYS: Final = frozenset({Code.BAD_REQUEST, Code.UNAVAILABLE})
WITH_A_TOKEN: Final = frozenset({Code.UNAUTHENTICATED, Code.FORBIDDEN, Code.TOO_MANY})
WITH_A_BODY: Final = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)

# Clients are generated from the document, so a component keeps its name when its class changes it.
COMPONENT_NAMES: Final = {
    "AuditEntryView": "AuditEntry",
    "CountView": "Count",
    "DeadLetterList": "Letters",
    "ExplainFilter": "Question",
    "ExplainSubscription": "Sample",
    "ExplanationView": "Explanation",
    "IssueToken": "NewToken",
    "ProblemDetails": "Problem",
    "RenewSubscription": "Renewal",
    "RequeueDeadLetters": "Chosen",
    "TryFilter": "Trials",
}

DESCRIPTION: Final = """Content-based publish/subscribe: publishers send events, subscribers send
filters, and the broker brings each event to everyone whose filter it satisfies.

Whatever is refused comes as `application/problem+json`, with a `code` for programs and a `detail`
for people. The WebSocket is at `/v1/connect`."""


def document(operations: Sequence[Operation], *, tokens_required: bool) -> dict[str, Any]:
    """Return the document for all operations."""
    security: list[dict[str, list[str]]] = (
        [{"token": []}] if tokens_required else [{"token": []}, {}]
    )
    types = [kind for operation in operations for kind in _types(operation)]
    schemas, components = _rename_components(
        msgspec.json.schema_components([*types, ProblemDetails], ref_template=_REF)
    )
    known = dict(zip(map(_key, [*types, ProblemDetails]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _describe(operation, known)
        if not operation.public:
            described["security"] = security
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tamis broker",
            "version": version("tamis"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {f"Refused{status}": _refused(status) for status in _statuses()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _rename_components(data: Any) -> Any:
    """Return schemas in which components, references and titles have the names of the document."""
    match data:
        case dict():
            return {
                COMPONENT_NAMES.get(key, key): _rename_components(value)
                for key, value in data.items()
            }
        case list() | tuple():
            return [_rename_components(one) for one in data]
        case str():
            place, separator, name = data.rpartition("/")
            return f"{place}{separator}{COMPONENT_NAMES.get(name, name)}"
        case _:
            return data


def _key(kind: object) -> str:
    return repr(kind)


def _types(operation: Operation) -> Iterable[Any]:
    for kind in (operation.body, operation.result):
        if kind is not None and kind is not type(None) and kind is not Response:
            yield kind
    for content in (operation.takes, operation.gives):
        if content is not None:
            yield from (kind for kind in content.kinds.values() if not isinstance(kind, Mapping))


def _describe(operation: Operation, known: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, known),
    }
    if operation.description:
        described["description"] = operation.description
    parameters = [
        *_in_path(operation.path),
        *_of_struct(operation.query, "query"),
        *_of_struct(operation.headers, "header"),
    ]
    if parameters:
        described["parameters"] = parameters
    body = operation.takes or (Content({JSON: operation.body}) if operation.body else None)
    if body is not None:
        described["requestBody"] = {"required": True, "content": _content(body, known)}
    return described


def _content(content: Content, known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        media_type: {"schema": kind if isinstance(kind, Mapping) else known[_key(kind)]}
        for media_type, kind in content.kinds.items()
    }


def _responses(operation: Operation, known: Mapping[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": operation.summary}
    gives = operation.gives
    if gives is None and operation.result is not type(None):
        gives = Content({JSON: operation.result})
    if gives is not None:
        good["content"] = _content(gives, known)
    refused = {
        str(status): {"$ref": f"#/components/responses/Refused{status}"}
        for status in sorted(_refusals(operation))
    }
    statuses = [operation.status] + [HTTPStatus.OK.value] * operation.creates
    empty = {"204": {"description": "There is nothing to give"}} if operation.may_be_empty else {}
    return {str(status): good for status in statuses} | empty | refused


def _refusals(operation: Operation) -> set[int]:
    codes = operation.refuses | ALWAYS | (frozenset() if operation.public else WITH_A_TOKEN)
    statuses = {STATUS[code] for code in codes}
    if operation.body is not None or operation.takes is not None:
        statuses.update(map(int, WITH_A_BODY))
    return statuses


def _statuses() -> list[int]:
    return sorted({*STATUS.values(), *map(int, WITH_A_BODY)})


def _refused(status: int) -> dict[str, Any]:
    titles = [title for code, title in TITLES.items() if STATUS[code] == status]
    described: dict[str, Any] = {
        "description": ", or: ".join(titles) or HTTPStatus(status).phrase,
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": _REF.format(name=COMPONENT_NAMES[ProblemDetails.__name__])}
            }
        },
    }
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        described["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        }
    return described


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        }
        for name in _PATH_PART.findall(path)
    ]


def _of_struct(kind: Any, place: str) -> list[dict[str, Any]]:
    if kind is None:
        return []
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    described = components[kind.__name__]
    return [
        {
            "name": name,
            "in": place,
            "required": name in described.get("required", ()),
            "schema": {key: value for key, value in field.items() if key != "description"},
        }
        | ({"description": field["description"]} if "description" in field else {})
        for name, field in described["properties"].items()
    ]
