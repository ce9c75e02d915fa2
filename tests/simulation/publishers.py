"""Simulated publishers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from simulation.clients import FrameClient, request
from simulation.model import PublicationModel
from tamis.broker import Session
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Publish
from tamis.protocol.views import Receipt

if TYPE_CHECKING:
    from simulation.world import World

MAX_UNANSWERED = 8


class Publisher:
    """Publishes over connections or by requests, and sends again what was not acknowledged."""

    def __init__(self, world: World, principal: str, name: str, *, numbered: bool) -> None:
        self._world = world
        self._random = world.stream(f"publisher {name}")
        self._principal = principal
        self.name = name
        self._numbered = numbered
        self._last = 0
        self.unanswered: list[PublicationModel] = []
        self._pause = self._random.choice([0.02, 0.1, 0.4])
        self._careful = self._random.random() < 0.3
        """Whether it sends nothing more until the last publication is answered."""

    async def run(self) -> None:
        """Publish until the end, then until everything is stored."""
        world = self._world
        while not world.is_winding_down or self.unanswered:
            if not (world.wants_events or self.unanswered):
                await asyncio.sleep(0.5)  # virtual: there are enough events
                continue
            try:
                if self._random.random() < 0.3:
                    await self._round_of_requests()
                else:
                    await self._connection()
            except (DisconnectedError, RefusedError, TimeoutError):
                self._give_up_unnumbered()
            await asyncio.sleep(self._random.random() * self._pause)  # virtual

    async def _connection(self) -> None:
        client = FrameClient(self._world, self._world.credential(self._principal))
        try:
            await client.open()
            for _ in range(self._random.randint(1, 12)):
                await self._round(client)
                await asyncio.sleep(self._random.random() * self._pause)  # virtual
                if self._world.is_winding_down and not self.unanswered:
                    return
        finally:
            client.die()

    async def _round(self, client: FrameClient) -> None:
        """Send everything that is not acknowledged, one after another, and then wait."""
        self._make()
        answers = []
        for publication in [*self.unanswered]:
            frame = Publish(
                ref=0,
                events=[msgspec.Raw(one.text) for one in publication.events],
                publisher=self.name if self._numbered else "",
                sequence=publication.sequence,
            )
            answers.append((publication, await client.ask(frame)))
            if self._careful:
                break
        longest = 0.0
        async with asyncio.timeout(40):
            for publication, answer in answers:
                try:
                    await answer
                    self.unanswered.remove(publication)
                except RefusedError as error:
                    longest = max(longest, error.retry_after or 0.1)
                    if not self._numbered:
                        self.unanswered.remove(publication)
        await asyncio.sleep(min(longest, 2.0))  # virtual: as the broker asks

    async def _round_of_requests(self) -> None:
        self._make()
        credential = self._world.credential(self._principal)
        for publication in [*self.unanswered]:

            async def publish(session: Session, one: PublicationModel = publication) -> Receipt:
                receipt = await session.publish(
                    [event.text for event in one.events],
                    publisher=self.name if self._numbered else "",
                    sequence=one.sequence,
                )
                self._world.checker.published(one, receipt.duplicates, receipt.first)
                return receipt

            try:
                await request(self._world, credential, publish)
            except DisconnectedError:
                raise
            except RefusedError as error:
                self._world.checker.request_refused(publication, error)
                if not self._numbered:
                    self.unanswered.remove(publication)
                raise
            self.unanswered.remove(publication)

    def _make(self) -> None:
        """Add new publications."""
        if not self._world.wants_events:
            return
        for _ in range(self._random.choice([0, 1, 1, 2, 4])):
            if len(self.unanswered) >= MAX_UNANSWERED:
                return
            events = [self._world.new_event() for _ in range(self._random.choice([1, 1, 1, 2, 3]))]
            sequence = self._last + 1 if self._numbered else 0
            self._last += len(events)
            publication = PublicationModel(self.name, sequence, events)
            self._world.checker.publishing(publication)
            self.unanswered.append(publication)

    def _give_up_unnumbered(self) -> None:
        if not self._numbered:
            self.unanswered.clear()
