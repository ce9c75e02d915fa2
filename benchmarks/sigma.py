"""Detection rules against log events: `python -m benchmarks.sigma`.

The rules are in the manner of SigmaHQ's: lists of endings, parts and wildcards without regard to
case, and regular expressions (`benchmarks/workloads/sigma.py`). SQLite runs one query for each
rule over a table of the same events, as pySigma's backend for it does. Its REGEXP is RE2, too. A
quarter as many look for keywords in any field.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import re2
from numpy.typing import NDArray

from benchmarks.harness import Contender, agree, measure, options, step
from benchmarks.reporting import Sheet, bars, rates, report
from benchmarks.workloads import sigma
from tamis.filters.patterns import pattern_options
from tamis.matching import Engine, Subscription

TITLE = "Sigma-like rules"
RULES = 3_700
EVENTS = 2_000
SEED = 11

Counts = NDArray[np.int64]


class SqliteRules:
    """A table of events in memory, and a query for each rule."""

    def __init__(
        self, rules: Sequence[sigma.Rule], events: Sequence[dict[str, object]], *, indexed: bool
    ) -> None:
        """Fill the table; with an index, a query looks at the events of one id only."""
        self._size = len(events)
        self._database = sqlite3.connect(":memory:")
        self._database.create_function("regexp", 2, _found, deterministic=True)
        names = sigma.columns()
        self._database.execute(f"CREATE TABLE events ({', '.join(names)})")
        if indexed:
            self._database.execute("CREATE INDEX ids ON events (EventID)")
        insert = f"INSERT INTO events VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - marks
        self._database.executemany(insert, sigma.rows(events))
        self._queries = [
            f"SELECT rowid FROM events WHERE {rule.sql()}"  # noqa: S608 - drawn, not given
            for rule in rules
        ]

    def counts(self) -> Counts:
        """Run all queries; return how many rules match each event."""
        counts = np.zeros(self._size, np.int64)
        for query in self._queries:
            for (number,) in self._database.execute(query):
                counts[number - 1] += 1
        return counts


@cache
def _pattern(pattern: str) -> re2._Regexp:
    flags = pattern_options()
    flags.case_sensitive = False
    return re2.compile(pattern, options=flags)


def _found(pattern: str, text: str | None) -> bool | None:
    return None if text is None else _pattern(pattern).search(text) is not None


def engine_of(rules: Sequence[sigma.Rule]) -> Engine:
    """Return an engine with the rules, compiled."""
    engine = Engine()
    added = engine.add_many(Subscription(number, rule.tamis()) for number, rule in enumerate(rules))
    assert not added.rejected, added.rejected[:3]  # noqa: S101
    engine.compact()
    return engine


def checked(engine: Engine) -> Sheet:
    """Check all rules; return what that took and found."""
    started, processor = time.perf_counter(), time.process_time()
    findings = engine.lint()
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    return Sheet(
        ("lint of all rules", ""),
        [
            ("seconds", f"{seconds:.1f}"),
            ("seconds of the processor", f"{processor:.1f}"),
            ("findings", f"{len(findings):,}"),
            ("pairs not asked", f"{findings.unasked:,}"),
            ("questions that stayed open", f"{findings.open:,}"),
        ],
    )


def contenders(
    rules: Sequence[sigma.Rule], engine: Engine, events: Sequence[dict[str, object]], group: str
) -> list[Contender]:
    """Return all ways to match events with rules, once they agree."""
    plain = SqliteRules(rules, events, indexed=False)
    indexed = SqliteRules(rules, events, indexed=True)
    table = pa.table({n: [event.get(n) for event in events] for n in sigma.columns()})
    lines = "\n".join(map(json.dumps, events))
    alternatives: dict[str, Callable[[], Counts]] = {
        "SQLite, a query for each rule": plain.counts,
        "SQLite, with an index of event ids": indexed.counts,
        "Tamis, list of dicts": lambda: engine.match_batch(events).counts(),
        "Tamis, JSON lines": lambda: engine.match_json_lines(lines).counts(),
        "Tamis, Arrow": lambda: engine.match_batch(table).counts(),
    }
    agree({name: np.asarray(run(), np.int64) for name, run in alternatives.items()})
    return [Contender(name, run, len(events), group) for name, run in alternatives.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    given = options(__doc__, arguments, rules=RULES, events=EVENTS)
    rules = sigma.rules(given.rules, SEED)
    # A query looks at all columns, so fewer rules take SQLite as long.
    keywords = sigma.keyword_rules(given.rules // 4, SEED, given.rules)
    events = sigma.events(given.events, SEED, given.rules)
    with step("compiled the rules"):
        engine, of_keywords = engine_of(rules), engine_of(keywords)
    found = measure(
        [
            *contenders(rules, engine, events, f"{given.rules:,} rules"),
            *contenders(keywords, of_keywords, events, f"{len(keywords):,} with keywords"),
        ]
    )
    sheets = [rates("events", found), checked(engine)]
    report("sigma", TITLE, sheets, bars(TITLE, "events", found), folder=given.out)


if __name__ == "__main__":
    main()
