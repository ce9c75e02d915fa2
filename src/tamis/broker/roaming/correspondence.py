"""Correspondence: questions to other brokers, however many links away, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import msgspec

from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.roaming.move_messages import MoveAnswer, MoveQuestion, MoveRefusal
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Code
from tamis.protocol.frames import FRAME_ERRORS
from tamis.routing.inputs import LetterGiven, RouterInput
from tamis.routing.messages import Letter

LOG: Final = get_logger("tamis.roaming")

RESEND_SECONDS: Final = 1.0
MAX_OPEN_QUESTIONS: Final = 200
"""Of other brokers, that are being answered."""
_QUESTIONS: Final[msgspec.json.Decoder[MoveQuestion]] = msgspec.json.Decoder(MoveQuestion)
_ANSWERS: Final[msgspec.json.Decoder[MoveAnswer]] = msgspec.json.Decoder(MoveAnswer)
_ENCODER: Final = msgspec.json.Encoder()

Answering = Callable[[str, MoveQuestion], Awaitable[MoveAnswer]]
"""Answers a question of a broker."""


class Correspondence:
    """Writes letters through the router, and hands answers to those who asked."""

    def __init__(
        self,
        broker: str,
        put: Callable[[RouterInput], None],
        supervisor: Supervisor,
        answering: Answering,
    ) -> None:
        self._broker = broker
        self._put = put
        self._supervisor = supervisor
        self._answering = answering
        self._refs = count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[MoveAnswer]]] = {}
        """By number: who is asked, and where the answer goes."""
        self._answered = 0

    async def ask(
        self, target: str, question: MoveQuestion, seconds: float, *, drains: bool = False
    ) -> MoveAnswer:
        """Return the answer of another broker; raise `DisconnectedError` if none comes in time."""
        ref = next(self._refs)
        answer: asyncio.Future[MoveAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[ref] = target, answer
        body = msgspec.Raw(_ENCODER.encode(question))
        letter = LetterGiven(Letter(self._broker, target, ref, body, drains=drains))
        try:
            async with asyncio.timeout(seconds):
                while not answer.done():
                    # A letter is lost if a link is down.
                    self._put(letter)
                    await asyncio.wait([answer], timeout=RESEND_SECONDS)
                found = answer.result()
        except TimeoutError:
            raise DisconnectedError(f"the broker {target[:8]} does not answer") from None
        finally:
            del self._waiting[ref]
        if isinstance(found, MoveRefusal):
            code = found.code if found.code in [*Code] else Code.CONFLICT
            raise RefusedError(code, found.message)
        return found

    def take(self, peer: str, letter: Letter) -> None:
        """Take a letter that a peer has passed on."""
        if letter.is_answer:
            self._take_answer(letter)
        elif self._answered < MAX_OPEN_QUESTIONS:
            self._answered += 1
            self._supervisor.start("letter", self._answer(peer, letter))
        else:
            LOG.warning("letter dropped: too many are being answered", peer=peer)

    def _take_answer(self, letter: Letter) -> None:
        target, answer = self._waiting.get(letter.ref, ("", None))
        if answer is None or answer.done() or target != letter.source:
            # It comes too late, and was asked again.
            return
        try:
            answer.set_result(_ANSWERS.decode(letter.body))
        except FRAME_ERRORS as error:
            LOG.warning("letter dropped: it is not an answer", source=letter.source, error=error)

    async def _answer(self, peer: str, letter: Letter) -> None:
        try:
            question = _QUESTIONS.decode(letter.body)
            found = await self._answering(letter.source, question)
        except FRAME_ERRORS as error:
            LOG.warning("letter dropped: it is not a question", peer=peer, error=str(error))
            return
        except DisconnectedError:
            return
        except RefusedError as error:
            found = MoveRefusal(code=error.code, message=str(error))
        finally:
            self._answered -= 1
        body = msgspec.Raw(_ENCODER.encode(found))
        answer = Letter(self._broker, letter.source, letter.ref, body, is_answer=True)
        self._put(LetterGiven(answer))
