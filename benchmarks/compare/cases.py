"""The measured side of `benchmarks.compare`: a process that runs against one checkout.

The parent starts it once per checkout with `PYTHONPATH` set to that checkout's `src`, and it uses
only names that both checkouts export. It sets up one case, prints the rows it can measure, then
reads a row and a number of runs per line and prints what they took:

    python -m benchmarks.compare.cases CASE INPUTS SCRATCH
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from benchmarks.compare import served
from benchmarks.compare.runs import Case, Rows, Run, Timed, dicts, events, schema, texts
from tamis import Engine, Mode, Schema, Subscription

EVENTS_PER_CHANGE = 9
EVENTS_PER_BATCH = 90
APPENDED = {1: 60, 256: 20}
"""Groups of each size that one run appends."""
SPARK_COPIES = 100


# --- cases ---------------------------------------------------------------------------------------


def engine_of(
    filters: Sequence[Any], schema: Schema | None = None, mode: Mode = Mode.SQL
) -> Engine:
    """Return a compiled engine with these filters, numbered from 0."""
    engine = Engine(schema, mode)
    added = engine.add_many(Subscription(number, each) for number, each in enumerate(filters))
    if added.rejected:
        raise ValueError(f"{len(added.rejected):,} filters were rejected: {added.rejected[0]}")
    engine.compact()
    return engine


def batch_run(engine: Engine, batch: pa.RecordBatch) -> Run:
    """Match one Arrow batch."""
    return Run(len(batch), lambda: int(engine.match_batch(batch).counts().sum()))


def single_run(engine: Engine, found: Sequence[Mapping[str, object]]) -> Run:
    """Match one event after the other."""
    return Run(len(found), lambda: sum(len(engine.match(event)) for event in found))


@contextmanager
def parsing(inputs: Path, _: Path) -> Iterator[Rows]:
    """Read filters in each language."""

    def run(language: str) -> Run:
        found = texts(inputs, f"parsing-{language}")
        return Run(
            len(found), lambda: sum(tamis.parse(text, language) is not None for text in found)
        )

    yield {language: run(language) for language in ("tamis", "jms", "siena")}


@contextmanager
def relations(inputs: Path, _: Path) -> Iterator[Rows]:
    """Compare pairs of filters."""

    def run(kind: str, relation: Callable[..., object]) -> Run:
        found = [tamis.parse(text) for text in texts(inputs, f"relations-{kind}")]
        pairs = list(zip(found[::2], found[1::2], strict=True))
        return Run(len(pairs), lambda: sum(bool(relation(a, b)) for a, b in pairs))

    yield {
        "covers, conjunctions": run("conjunctions", tamis.covers),
        "intersects, conjunctions": run("conjunctions", tamis.intersects),
        "covers, and/or/not": run("boolean", tamis.covers),
    }


@contextmanager
def paper(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match the paper's total and partial messages."""
    declared, filters = schema(inputs, "paper"), texts(inputs, "paper")
    yield {
        "total messages": batch_run(
            engine_of(filters, declared, Mode.TOTAL), events(inputs, "paper")
        ),
        "partial messages, strict": batch_run(
            engine_of(filters, declared, Mode.STRICT), events(inputs, "paper-partial")
        ),
    }


@contextmanager
def boolean(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match Boolean expressions of ABE-Gen."""
    engine, batch = engine_of(texts(inputs, "abe")), events(inputs, "abe")
    yield {
        "Arrow": batch_run(engine, batch),
        "one event at a time": single_run(engine, dicts(batch.slice(0, 300))),
    }


@contextmanager
def conjunctions(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match the conjunctions of BE-Gen from Arrow and from JSON."""
    rows = {}
    for name in ("a", "b", "c"):
        engine, batch = engine_of(texts(inputs, f"be-{name}")), events(inputs, f"be-{name}")
        rows[f"{name.upper()}, Arrow"] = batch_run(engine, batch)
        rows[f"{name.upper()}, JSON"] = _json_run(engine, batch)
    yield rows


@contextmanager
def single(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match JSON texts one by one against very many ranges and Boolean expressions."""
    rows = {}
    for name, label in (("be-c", "C"), ("abe", "Boolean")):
        engine = engine_of(texts(inputs, f"single-{name}"))
        found = dicts(events(inputs, f"single-{name}").slice(0, 200))
        rows[f"{label}, one JSON event at a time"] = _single_json_run(engine, found)
    yield rows


def _single_json_run(engine: Engine, found: Sequence[Mapping[str, object]]) -> Run:
    lines = [json.dumps(event) for event in found]
    # Earlier checkouts have only the first way.
    match = getattr(engine, "match_json", lambda line: engine.match(tamis.decode_json(line)))
    return Run(len(lines), lambda: sum(len(match(line)) for line in lines))


def _json_run(engine: Engine, batch: pa.RecordBatch) -> Run:
    lines = [json.dumps(event) for event in dicts(batch)]

    def call() -> int:
        found = engine.match_batch([tamis.decode_json(line) for line in lines])
        return int(found.counts().sum())

    return Run(len(lines), call)


@contextmanager
def growth(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match among few and among many subscriptions at ten matches per event."""
    rows = {}
    for path in sorted(inputs.glob("growth-*.parquet")):
        count = int(path.stem.removeprefix("growth-"))
        engine, batch = engine_of(texts(inputs, path.stem)), events(inputs, path.stem)
        rows[f"{count:,}, Arrow"] = batch_run(engine, batch)
        rows[f"{count:,}, one event at a time"] = single_run(engine, dicts(batch.slice(0, 500)))
    yield rows


@contextmanager
def churn(inputs: Path, _: Path) -> Iterator[Rows]:
    """Match while subscriptions come and go."""
    filters, found = texts(inputs, "abe"), dicts(events(inputs, "abe").slice(0, 180))
    yield {
        "one event at a time": _churn_run(Changing(filters), found, EVENTS_PER_CHANGE, 1),
        "batches of 90": _churn_run(Changing(filters), found, EVENTS_PER_BATCH, 10),
    }


class Changing:
    """An engine that loses its oldest subscription or gets it back under a new id, in turns."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.engine = engine_of(filters)
        self._parsed = cycle([tamis.parse(text) for text in filters[:1000]])
        self._oldest, self._next = 0, len(filters)
        self._adds = False

    def change(self) -> None:
        """Remove a subscription, or add one."""
        if self._adds:
            self.engine.add(self._next, next(self._parsed))
            self._next += 1
        else:
            self.engine.remove(self._oldest)
            self._oldest += 1
        self._adds = not self._adds


def _churn_run(
    changing: Changing, found: Sequence[Mapping[str, object]], round_: int, changes: int
) -> Run:
    rounds = [found[first : first + round_] for first in range(0, len(found), round_)]

    def call() -> int:
        matches = 0
        for some in rounds:
            if changes > 1:
                matches += int(changing.engine.match_batch(some).counts().sum())
            else:
                matches += sum(len(changing.engine.match(event)) for event in some)
            for _ in range(changes):
                changing.change()
        return matches

    return Run(len(found), call)


@contextmanager
def building(inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Build engines of filters that are parsed already; save and load one."""
    rows = {}
    for name, count in {"paper": 3000, "abe": 1000, "be-a": 10_000}.items():
        filters = [tamis.parse(text) for text in texts(inputs, name)[:count]]
        rows[f"build, {name}"] = _build_run(filters)
    path = scratch / "engine.tamis"
    engine = engine_of(texts(inputs, "paper"))

    def save() -> int:
        engine.save(path)
        return len(engine)

    save()
    yield rows | {
        "save, paper": Run(len(engine), save),
        "load, paper": Run(len(engine), lambda: len(Engine.load(path))),
    }


def _build_run(filters: Sequence[Any]) -> Run:
    return Run(len(filters), lambda: len(engine_of(filters)))


@contextmanager
def storage(_: Path, scratch: Path) -> Iterator[Rows]:
    """Append to the event log and read it."""
    from tamis.storage import EventLog, NewRecord  # noqa: PLC0415 - other cases do without

    payload = bytes(range(256)) + bytes(44)
    log = EventLog(scratch / "appended")
    full = EventLog(scratch / "full")
    count = 20_000
    for first in range(0, count, 1000):
        full.append([NewRecord("p", first + n + 1, 0, payload) for n in range(1000)])
    sequence = iter(range(1, 10**9))

    def append(size: int) -> int:
        for _ in range(APPENDED[size]):
            log.append([NewRecord("p", n, 0, payload) for n in islice(sequence, size)])
        return size * APPENDED[size]

    def read() -> int:
        at, total = 1, 0
        while found := full.read(at, 1024):
            at = found[-1].sequence + 1
            total += len(found)
        return total

    yield {
        "append 1 at a time": Run(APPENDED[1], lambda: append(1)),
        "append 256 at a time": Run(256 * APPENDED[256], lambda: append(256)),
        "read in order": Run(count, read),
    }
    log.close()
    full.close()


@contextmanager
def spark(inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Compile a library, and match a DataFrame and files against it."""
    import tamis.spark as ts  # noqa: PLC0415 - other cases do without

    table = pq.read_table(inputs / "be-a.parquet")
    place, library = str(scratch / "events.parquet"), str(scratch / "library")
    pq.write_table(pa.concat_tables([table] * SPARK_COPIES), place)
    filters = texts(inputs, "be-a")
    session = ts.local_session("local[2]")
    rules = session.createDataFrame(list(enumerate(filters)), "id long, filter string")
    ts.compile_subscriptions(rules, library)
    rows = session.read.parquet(place)

    def compiled() -> int:
        return ts.compile_subscriptions(rules, str(scratch / "compiled")).subscriptions

    def total(found: Any, expression: str) -> int:
        return int(found.selectExpr(f"sum({expression}) as total").first().total)

    def in_files() -> Any:
        return ts.match_files(session, library, place, output="counts")

    count = len(table) * SPARK_COPIES
    yield {
        "compile": Run(len(filters), compiled),
        "DataFrame, counts": Run(
            count, lambda: total(rows.transform(ts.match(library, output="counts")), "matches")
        ),
        "DataFrame, ids": Run(
            count,
            lambda: total(rows.transform(ts.match(library, output="ids")), "size(subscriptions)"),
        ),
        "files, counts": Run(count, lambda: total(in_files(), "matches")),
    }
    session.stop()


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        parsing,
        relations,
        paper,
        boolean,
        conjunctions,
        single,
        growth,
        churn,
        building,
        storage,
        spark,
        served.broker,
        served.beside,
        served.stalled,
        served.restart,
    )
}


# --- the dialogue with the parent ----------------------------------------------------------------


def answer(value: object) -> None:
    """Send one line to the parent."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Set up a case, then measure the rows that the parent asks for."""
    name, inputs, scratch = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with CASES[name](inputs, scratch) as rows:
        answer({"tamis": tamis.__file__, "rows": {row: run.things for row, run in rows.items()}})
        gc.collect()
        gc.freeze()
        for line in sys.stdin:
            row, loops = json.loads(line)
            call = rows[row].call
            gc.collect()
            start = time.perf_counter()
            results = [call() for _ in range(loops)]
            seconds = time.perf_counter() - start
            first = results[0]
            if isinstance(first, Timed):
                seconds = sum(one.seconds for one in results if isinstance(one, Timed))
                first = first.checksum
            answer({"seconds": seconds, "checksum": first})


if __name__ == "__main__":
    main()
