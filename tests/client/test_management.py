"""The table of management calls, and the session's methods that do what they ask."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from tamis.broker.sessions import Session
from tamis.client.management import HistorySearch
from tamis.protocol.management import (
    OPERATIONS,
    DeleteDeadLetters,
    ManagementOperation,
    ReadHistory,
    RenewSubscription,
)
from tamis.protocol.views import HistoryView

every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS.values(), ids=[operation.name for operation in OPERATIONS.values()]
)


@every_operation
def test_the_session_takes_the_arguments_of_a_call(operation: ManagementOperation) -> None:
    method = getattr(Session, operation.does)
    arguments = dict.fromkeys(operation.call.__struct_fields__)
    inspect.signature(method).bind(None, **arguments)


@every_operation
def test_the_session_returns_the_result_of_a_call(operation: ManagementOperation) -> None:
    method = getattr(Session, operation.does)
    returns = inspect.signature(method, eval_str=True).return_annotation
    assert returns == (None if operation.result is type(None) else operation.result)


@every_operation
def test_every_name_in_a_path_is_an_argument(operation: ManagementOperation) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(operation.call)}
    assert {*re.findall(r"{(\w+)}", operation.path)} <= names


@pytest.mark.parametrize(
    ("call", "path", "payload"),
    [
        (RenewSubscription("a/b", 5.0), {"subscription": "a/b"}, {"lifetime": 5.0}),
        (DeleteDeadLetters("x", [1, 2]), {"subscription": "x"}, {"sequence": [1, 2]}),
    ],
)
def test_a_call_survives_a_round_trip_through_path_and_payload(
    call: Any, path: dict[str, str], payload: dict[str, object]
) -> None:
    operation = OPERATIONS[type(call)]
    arguments = operation.arguments(call)
    assert operation.path_arguments(call) == path
    assert msgspec.to_builtins(arguments) == payload
    assert operation.make_call(path, arguments) == call


def test_a_search_through_past_events_warns_of_those_that_could_not_be_searched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = AsyncMock()
    bus.call.return_value = HistoryView([], next=9, end=9, damaged=2, invalid=3)
    assert asyncio.run(HistorySearch(ReadHistory("true")).next_page(bus)) == []
    damaged, invalid = [record.getMessage() for record in caplog.records]
    assert damaged.startswith("2 past events before 9 are damaged")
    assert invalid.startswith("3 past events before 9 no longer conform")
