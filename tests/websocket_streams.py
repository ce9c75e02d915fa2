"""Random messages of a WebSocket, as frames, and as reads bring them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

from websockets.frames import Frame, Opcode


def random_frames(random: Random, count: int) -> tuple[list[Frame], list[bytes]]:
    """Return frames and their messages; some are in fragments, with pings among them."""
    frames, messages = [], []
    for number in range(count):
        size = random.choice([0, 1, 20, 20, 20, 125, 126, 300, 65_535, 65_536])
        message = (b"%d " % number) + bytes(size)
        messages.append(message)
        cuts = sorted(random.choices(range(len(message) + 1), k=random.choice([0, 0, 0, 1, 3])))
        places = [*itertools.pairwise([0, *cuts, len(message)])]
        for index, (begin, end) in enumerate(places):
            opcode = Opcode.CONT if index else random.choice([Opcode.TEXT, Opcode.BINARY])
            frames.append(Frame(opcode, message[begin:end], index == len(places) - 1))
            if random.random() < 0.1:
                frames.append(Frame(Opcode.PING, b"still there?"))
    return frames, messages


def random_reads(random: Random, frames: Sequence[Frame], *, mask: bool) -> list[bytes]:
    """Return frames as several reads might bring them, some of which end where frames do."""
    texts = [frame.serialize(mask=mask) for frame in frames]
    data, ends = b"".join(texts), [*itertools.accumulate(map(len, texts))]
    among = random.choice([0.0, 0.5, 1.0])
    cuts = {end for end in ends if random.random() < among}
    cuts.update(random.choices(range(1, len(data)), k=random.choice([0, 0, 2, 10, 200])))
    places = sorted({0, *cuts, len(data)})
    return [data[begin:end] for begin, end in itertools.pairwise(places)]
