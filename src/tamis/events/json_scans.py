"""What a scan of JSON needs: the names to look for, limits, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tamis.events.event import EventLimits
from tamis.events.json_kernels import (
    ExpectedNames,
    ScanLimits,
    ScannedValues,
    ScanWorkspace,
    WantedPaths,
    fill_slots,
)

_POWERS: Final = np.array([10.0**n for n in range(23)])
_EXPECTED_NAMES: Final = 64
_EXPECTED_BYTES: Final = 2_048


def wanted_paths(names: Sequence[str], *, any_text: bool = False) -> WantedPaths:
    """Return a hash table of names; with `any_text`, all other texts get the next number."""
    encoded = [name.encode() for name in names]
    sizes = np.array([0, *map(len, encoded)], np.int64)
    slots = 1 << max(3, (2 * len(names)).bit_length())
    paths = WantedPaths(
        slots=np.full(slots, -1, np.int32),
        hashes=np.zeros(len(names), np.int64),
        starts=np.cumsum(sizes),
        # Copied, because kernels see a binding as memory that may be written.
        text=np.frombuffer(b"".join(encoded) + b"\0", np.uint8).copy(),
        any_text=np.array([len(names) if any_text else -1], np.int32),
    )
    fill_slots(paths)
    return paths


def scan_limits(limits: EventLimits) -> ScanLimits:
    """Return limits as kernels take them."""
    return ScanLimits(
        size=limits.size,
        depth=limits.depth,
        attributes=min(limits.attributes, limits.values),
        name=limits.name,
    )


def scan_workspace(limits: EventLimits) -> ScanWorkspace:
    """Return memory for scans within limits."""
    depth = limits.depth
    return ScanWorkspace(
        is_array=np.zeros(depth + 1, np.bool_),
        hashes=np.zeros(depth + 1, np.int64),
        sizes=np.zeros(depth + 1, np.int64),
        paths=np.zeros(depth + 1, np.int32),
        first_names=np.zeros(depth + 1, np.int64),
        names=np.zeros(scan_limits(limits).attributes + depth + 1, np.int64),
        path=np.zeros(limits.name + 8, np.uint8),
        powers=_POWERS,
        expected=ExpectedNames(
            number=np.zeros(1, np.int64),
            starts=np.zeros(_EXPECTED_NAMES + 1, np.int64),
            text=np.zeros(_EXPECTED_BYTES, np.uint8),
            hashes=np.zeros(_EXPECTED_NAMES, np.int64),
            paths=np.zeros(_EXPECTED_NAMES, np.int32),
            has_dot=np.zeros(_EXPECTED_NAMES, np.bool_),
        ),
    )


def scanned_values(size: int) -> ScannedValues:
    """Return memory for this many values."""
    return ScannedValues(
        events=np.empty(size, np.int32),
        paths=np.empty(size, np.int32),
        forms=np.empty(size, np.int8),
        integers=np.empty(size, np.int64),
        floats=np.empty(size, np.float64),
        lengths=np.empty(size, np.int32),
    )
