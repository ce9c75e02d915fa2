"""A process that appends without end and says what was acknowledged, to be killed at any moment.

`python -m storage.appending FOLDER SEED [early]`: with `early` it acknowledges before it appends,
which is the mistake that the tests must find.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from tamis.storage import NewRecord, PublisherTail, Storage

SEGMENT_BYTES = 20_000


def payload_of(sequence: int) -> bytes:
    """Return what the event of a sequence must hold."""
    return f"event {sequence} ".encode() * Random(sequence).randrange(1, 40)


def main(folder: Path, seed: int, early: bool) -> None:
    rng = Random(seed)
    with Storage.open(folder, segment_bytes=SEGMENT_BYTES) as store:
        own = store.publishers.get("p", PublisherTail()).last
        while True:
            size, first = rng.choice((1, 1, 3, 30)), store.log.next_sequence
            group = [
                NewRecord("p", own + place + 1, 0, payload_of(first + place))
                for place in range(size)
            ]
            if early:
                acknowledge(first + size - 1)
            store.log.append(group)
            if not early:
                acknowledge(first + size - 1)
            own += size
            if rng.random() < 0.2:
                store.state.commit_matches(first + size - 1, [], {"p": PublisherTail(own)})


def acknowledge(sequence: int) -> None:
    sys.stdout.write(f"{sequence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), early="early" in sys.argv)
