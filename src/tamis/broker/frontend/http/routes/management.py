"""The routes of the management calls, generated from their table."""

from __future__ import annotations

from typing import Any

from tamis.broker.frontend.http.operations import (
    Operation,
    OperationCall,
    OperationHandler,
    describe_operation,
)
from tamis.protocol.management import OPERATIONS, ManagementOperation


def _handler(operation: ManagementOperation) -> OperationHandler:
    async def handle(call: OperationCall, body: Any = None, query: Any = None, **path: str) -> Any:
        result = await call.session.perform(operation.make_call(path, body or query))
        wrapper = operation.wrapper
        return result if wrapper is None else operation.response(**{wrapper: result})

    handle.__name__ = operation.name
    return handle


def _route(operation: ManagementOperation) -> Operation:
    summary, description = describe_operation(operation.call)
    return Operation(
        method=operation.method,
        path=operation.path,
        handler=_handler(operation),
        summary=summary,
        description=description,
        tag=operation.tag,
        body=operation.payload if operation.has_body else None,
        query=None if operation.has_body else operation.payload,
        result=operation.response,
        status=operation.status,
        takes=None,
        gives=None,
        headers=None,
        refuses=frozenset(operation.refuses),
        public=False,
    )


ROUTES = [_route(operation) for operation in OPERATIONS.values()]
