"""A compiled set of subscriptions as one file, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.value_order import KIND_OF_BRACKET, Breakpoint, Partition
from tamis.errors import SnapshotError
from tamis.events import Schema
from tamis.events.json_text import schema_data, schema_of
from tamis.events.kinds import KINDS
from tamis.filters import Id, Mode
from tamis.filters.limits import NO_LIMITS
from tamis.languages import parse
from tamis.matching.compile.compiled import Compiled, CompiledArrays
from tamis.matching.compile.leaves import Predicate
from tamis.matching.compile.program_kernels import Leaves
from tamis.matching.compile.variables import Block, Variables
from tamis.matching.compile.vocabulary import SavedLeaves, Vocabulary
from tamis.matching.evaluate.evaluator import Evaluator
from tamis.matching.store.saved_residuals import residual_arrays, restored_residuals
from tamis.matching.store.segments import Segment, SubscriptionColumns
from tamis.matching.store.snapshot_file import read_file, write_file

Arrays = Mapping[str, NDArray[Any]]
Tuple = TypeVar("Tuple", bound=tuple[Any, ...])

# Fields keep their original names in the file format.
_NAME_ON_DISK: Final = {
    "unindexed": "everyday",
    "compound": "meeting",
    "breakpoints": "cuts",
    "absence_rules": "readings",
}


class Restored(NamedTuple):
    """The content of a snapshot."""

    schema: Schema | None
    mode: Mode
    vocabulary: Vocabulary
    segment: Segment


def save(path: Path, segment: Segment, vocabulary: Vocabulary, mode: Mode) -> None:
    """Write a segment without tombstones."""
    about = {
        "schema": None if vocabulary.schema is None else schema_data(vocabulary.schema),
        "mode": mode.value,
        "subscriptions": segment.size,
    }
    compiled = segment.evaluator.compiled
    arrays: dict[str, NDArray[Any]] = {
        **dict(_named("vocabulary", vocabulary.saved())),
        "modes": segment.columns.modes,
        "expires_at": segment.columns.expires_at,
        **_id_arrays(segment.columns.ids.objects),
        "compiled.leaves": segment.leaves,
        **dict(_named("compiled", compiled.arrays)),
        **_variable_arrays(compiled.variables),
        **residual_arrays(segment.columns),
    }
    write_file(path, about, arrays, is_left_to_check=segment.columns.left is not None)


def load(path: Path) -> Restored:
    """Read a segment; its arrays stay in the file and are mapped into memory."""
    about, arrays = read_file(path)
    schema = None if about["schema"] is None else schema_of(about["schema"])
    mode = Mode(about["mode"])
    try:
        saved = _rebuilt(SavedLeaves, "vocabulary", arrays)
        vocabulary = Vocabulary(schema, total=mode is Mode.TOTAL, saved=saved)
        compiled_arrays = _rebuilt(CompiledArrays, "compiled", arrays)
        compiled = Compiled(compiled_arrays, _variables(arrays), schema)
        leaves = arrays["compiled.leaves"]
    except KeyError as missing:
        raise SnapshotError(
            path, str(missing.args[0]), "it is missing: another version of Tamis wrote the file"
        ) from None
    ids = _ids(arrays)
    left = restored_residuals(arrays, len(ids), schema)
    columns = SubscriptionColumns.of(ids, arrays["modes"], arrays["expires_at"], left)
    alive = np.ones(len(columns.ids.objects), np.bool_)
    return Restored(schema, mode, vocabulary, Segment(Evaluator(compiled), columns, alive, leaves))


def _variable_arrays(variables: Variables) -> dict[str, NDArray[Any]]:
    """Return variables as arrays: breakpoints of each value order, predicates, leaves."""
    blocks = [
        [name, block.first, [_plain(point) for point in block.partition.breakpoints]]
        for name, block in variables.blocks.items()
    ]
    predicates = [
        [str(predicate.atom), predicate.truth, predicate.completed, number]
        for predicate, number in variables.predicates.items()
    ]
    return {
        "variables.blocks": _bytes(json.dumps(blocks)),
        "variables.predicates": _bytes(json.dumps(predicates)),
        "variables.lines": variables.chains,
        **dict(_named("variables.leaves", variables.leaves)),
    }


def _variables(arrays: Arrays) -> Variables:
    blocks = {
        name: Block(Partition(map(_breakpoint, breakpoints)), first)
        for name, first, breakpoints in json.loads(arrays["variables.blocks"].tobytes())
    }
    predicates = {
        Predicate(parse(text, limits=NO_LIMITS), truth, completed): number
        for text, truth, completed, number in json.loads(arrays["variables.predicates"].tobytes())
    }
    leaves = _rebuilt(Leaves, "variables.leaves", arrays)
    return Variables(blocks, predicates, arrays["variables.lines"], leaves)


def _plain(point: Breakpoint) -> list[Any]:
    """Return a breakpoint as JSON; timestamps as microseconds."""
    store = KINDS[KIND_OF_BRACKET[point[0]]].store if len(point) == 2 else None
    return list(point) if store is None else [point[0], store(point[1])]


def _breakpoint(plain: list[Any]) -> Breakpoint:
    restore = KINDS[KIND_OF_BRACKET[plain[0]]].restore if len(plain) == 2 else None
    return tuple(plain) if restore is None else (plain[0], restore(plain[1]))


def _named(name: str, value: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of nested tuples under dotted names."""
    if isinstance(value, np.ndarray):
        yield name, value
        return
    for field, inner in value._asdict().items():
        yield from _named(f"{name}.{_NAME_ON_DISK.get(field, field)}", inner)


def _rebuilt(cls: type[Tuple], name: str, arrays: Arrays) -> Tuple:
    """Return the nested tuples that `_named` flattened."""
    fields: list[Any] = []
    for field, nested in _nested_tuples(cls).items():
        inner = f"{name}.{_NAME_ON_DISK.get(field, field)}"
        fields.append(arrays[inner] if nested is None else _rebuilt(nested, inner, arrays))
    return cls(*fields)


@cache
def _nested_tuples(cls: type[tuple[Any, ...]]) -> dict[str, type[tuple[Any, ...]] | None]:
    """Return for each field its class, if that is a tuple; to evaluate hints takes a while."""
    hints = get_type_hints(cls)
    return {
        field: hint if isinstance(hint, type) and issubclass(hint, tuple) else None
        for field, hint in hints.items()
    }


def _id_arrays(ids: Iterable[Id]) -> dict[str, NDArray[Any]]:
    """Return ids as arrays: which are texts, the integers, and the texts as JSON."""
    given = list(ids)
    if {*map(type, given)} <= {int}:
        # Nearly always; to look at each three times takes as long as to write the file.
        return {
            "ids.are_texts": np.zeros(len(given), np.bool_),
            "ids.integers": np.array(given, np.int64),
            "ids.texts": _bytes("[]"),
        }
    return {
        "ids.are_texts": np.array([isinstance(id_, str) for id_ in given], np.bool_),
        "ids.integers": np.array([id_ for id_ in given if isinstance(id_, int)], np.int64),
        "ids.texts": _bytes(json.dumps([id_ for id_ in given if isinstance(id_, str)])),
    }


def _ids(arrays: Arrays) -> NDArray[np.object_]:
    are_texts = arrays["ids.are_texts"]
    ids = np.empty(len(are_texts), np.object_)
    ids[~are_texts] = arrays["ids.integers"].tolist()
    ids[are_texts] = json.loads(arrays["ids.texts"].tobytes())
    return ids


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
