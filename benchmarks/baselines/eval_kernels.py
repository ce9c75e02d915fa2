"""The evaluation algorithms of the paper (figures 3 and 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.truths import FALSE, TRUE, UNKNOWN, assign
from benchmarks.workloads.forms import Predicates, Rows
from tamis.jit import kernel

# A record of the paper's array: successors, variable, and the value that a message gives it.
LOW, HIGH, LABEL, VALUE = range(4)


class Diagram(NamedTuple):
    """Nodes in the order of their variables, so that successors come later; the terminals last."""

    label: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    output: NDArray[np.int32]
    """The node of each filter."""


@kernel
def eval_records(records: NDArray[np.int32], assignment: NDArray[np.uint8]) -> None:
    """Set the value of every node for a total message: figure 3 on the paper's data structure."""
    for node in range(len(records) - 3, -1, -1):
        successor = HIGH if assignment[records[node, LABEL]] else LOW
        records[node, VALUE] = records[records[node, successor], VALUE]


@kernel
def eval_split(diagram: Diagram, assignment: NDArray[np.uint8], value: NDArray[np.uint8]) -> None:
    """Do the same with the values in a separate array of bytes, which uses the cache better."""
    label, low, high = diagram.label, diagram.low, diagram.high
    value[len(label)], value[len(label) + 1] = FALSE, TRUE
    for node in range(len(label) - 1, -1, -1):
        successor = high[node] if assignment[label[node]] else low[node]
        value[node] = value[successor]


@kernel
def mv_eval_records(records: NDArray[np.int32], assignment: NDArray[np.uint8]) -> None:
    """Set the value of every node, undefined where a label below is: figure 5."""
    for node in range(len(records) - 3, -1, -1):
        decision = assignment[records[node, LABEL]]
        if decision != UNKNOWN:
            if_false = records[records[node, LOW], VALUE]
            if_true = records[records[node, HIGH], VALUE]
            if if_false == UNKNOWN or if_true == UNKNOWN:
                records[node, VALUE] = UNKNOWN
            else:
                records[node, VALUE] = if_true if decision else if_false
        else:
            records[node, VALUE] = UNKNOWN


@kernel
def mv_eval_split(
    diagram: Diagram, assignment: NDArray[np.uint8], value: NDArray[np.uint8]
) -> None:
    """Do the same with the values in a separate array."""
    label, low, high = diagram.label, diagram.low, diagram.high
    value[len(label)], value[len(label) + 1] = FALSE, TRUE
    for node in range(len(label) - 1, -1, -1):
        decision = assignment[label[node]]
        if decision != UNKNOWN:
            if_false, if_true = value[low[node]], value[high[node]]
            if if_false == UNKNOWN or if_true == UNKNOWN:
                value[node] = UNKNOWN
            else:
                value[node] = if_true if decision else if_false
        else:
            value[node] = UNKNOWN


class Message(NamedTuple):
    """The buffers of an evaluation."""

    variables: Predicates
    by_attribute: NDArray[np.int64]
    assignment: NDArray[np.uint8]
    value: NDArray[np.uint8]
    """The values of the nodes, if they are not in the records."""


@kernel
def assign_messages(message: Message, rows: Rows) -> None:
    """Evaluate the atoms alone, message by message."""
    for event in range(len(rows.start) - 1):
        assign(message.variables, message.by_attribute, rows, event, message.assignment)


@kernel
def evaluate_records(
    records: NDArray[np.int32], message: Message, rows: Rows, partial: bool
) -> None:
    """Run figure 3, or for partial messages figure 5, message by message."""
    for event in range(len(rows.start) - 1):
        assign(message.variables, message.by_attribute, rows, event, message.assignment)
        if partial:
            mv_eval_records(records, message.assignment)
        else:
            eval_records(records, message.assignment)


@kernel
def evaluate_split(diagram: Diagram, message: Message, rows: Rows, partial: bool) -> None:
    """Do the same with the values in a separate array."""
    for event in range(len(rows.start) - 1):
        assign(message.variables, message.by_attribute, rows, event, message.assignment)
        if partial:
            mv_eval_split(diagram, message.assignment, message.value)
        else:
            eval_split(diagram, message.assignment, message.value)
