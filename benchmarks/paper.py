"""Section 8 of the paper, then and now: `python -m benchmarks.paper [--filters 100000]`.

The paper's BDD is built as it says, plain and restricted, and evaluated one message after the
other by EvalBDD and, on partial messages, by MVEvalBDD. The engine evaluates the same messages as
one batch, as bits of every subscription. Mode `total` stands for SiSL, `strict` for StSL.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.baselines.plain_bdd import Builder
from benchmarks.harness import Contender, arguments, measure, report
from benchmarks.workloads import paper
from benchmarks.workloads.events import Events
from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.matching.compiled import Compiled
from tamis.matching.evaluation import Evaluator
from tamis.matching.programs import compile_filter
from tamis.matching.vocabulary import Vocabulary

MESSAGES = 4_096
PARTIAL = 0.154


def compiled(work: paper.Workload, mode: Mode) -> Compiled:
    """Return the engine's form of the workload."""
    vocabulary = Vocabulary(work.schema, total=mode is Mode.TOTAL)
    programs = [
        np.array(compile_filter(filter_, mode, vocabulary), np.int32) for filter_ in work.filters()
    ]
    return Compiled(programs, vocabulary)


def main() -> None:
    """Measure, print and write the table."""
    options = arguments("The paper's section 8", filters=100_000)
    work = paper.subscriptions(options.filters, seed=1)
    builder = Builder(work.programs, every=True)
    plain = builder.bdd()
    builder.restrict()
    restricted = builder.bdd()
    total, strict = compiled(work, Mode.TOTAL), compiled(work, Mode.STRICT)
    messages, partial_messages = work.events(MESSAGES, 2), work.events(MESSAGES, 2, PARTIAL)
    batches = {events: _batch(work, events) for events in (messages, partial_messages)}
    on_total, on_strict = Evaluator(total), Evaluator(strict)
    rows = measure(
        [
            Contender("EvalBDD, plain", partial(plain.evaluate, messages.rows), MESSAGES),
            Contender("EvalBDD, restricted", partial(restricted.evaluate, messages.rows), MESSAGES),
            Contender(
                f"MVEvalBDD, density {PARTIAL:.1%}",
                partial(plain.evaluate, partial_messages.rows, partial=True),
                MESSAGES,
            ),
            Contender("Tamis, one core", partial(on_total.evaluate, batches[messages]), MESSAGES),
            Contender(
                "Tamis, two cores", partial(on_total.evaluate, batches[messages], 2), MESSAGES
            ),
            Contender(
                f"Tamis, strict, density {PARTIAL:.1%}",
                partial(on_strict.evaluate, batches[partial_messages]),
                MESSAGES,
            ),
        ]
    )
    count = options.filters
    nodes = (
        f"Nodes per filter: plain {plain.node_count / count:.2f}, restricted "
        f"{restricted.node_count / count:.2f}, Tamis {total.nodes / count:.2f}, which is "
        f"{total.nodes / plain.node_count:.2f} of the plain ones."
    )
    title = f"Section 8, {count:,} filters"
    report("paper", title, "messages", rows, notes=[nodes], folder=options.out)


def _batch(work: paper.Workload, events: Events) -> EventBatch:
    return EventBatch.of_events(events.dicts(), work.schema)


if __name__ == "__main__":
    main()
