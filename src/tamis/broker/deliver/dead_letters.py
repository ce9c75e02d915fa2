"""Dead letters that a principal may see now; the others are treated as absent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tamis.access import Rights
from tamis.broker.deliver.exact_checks import has_passed
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.deliver.visibility import visible_data
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.payloads import NAME_OF, PayloadDecoder
from tamis.errors import TamisError
from tamis.protocol.views import DeadLetterView
from tamis.storage import DeadLetter, StateStore

LETTERS_PER_READ: Final = 50
# A consumer that sees more may have quoted that in the reason.
HIDDEN_REASON: Final = "not shown: a credential with other roles may have written it"


class DeadLetterReader:
    """Reads the dead letters of subscriptions; for any thread."""

    def __init__(self, state: StateStore, decoder: PayloadDecoder) -> None:
        self._state = state
        self._decoder = decoder

    def read_page(
        self, subscription: ActiveSubscription, rights: Rights, after: int, most: int
    ) -> Slices[list[DeadLetterView]]:
        """Return visible dead letters after a sequence, in order."""
        views: list[DeadLetterView] = []
        while len(views) < most:
            yield
            letters = self._state.dead_letters(subscription.number, after, LETTERS_PER_READ)
            if not letters:
                break
            after = letters[-1].sequence
            views += filter(None, (self._view(subscription, rights, one) for one in letters))
        return views[:most]

    def find_visible(
        self, subscription: ActiveSubscription, rights: Rights, sequences: Iterable[int]
    ) -> Slices[list[int]]:
        """Return the sequences that belong to visible dead letters."""
        visible = []
        for sequence in sequences:
            yield
            if self._is_visible(subscription, rights, sequence):
                visible.append(sequence)
        return visible

    def _is_visible(self, subscription: ActiveSubscription, rights: Rights, sequence: int) -> bool:
        found = self._state.dead_letters(subscription.number, sequence - 1, 1)
        return any(
            letter.sequence == sequence and self._view(subscription, rights, letter) is not None
            for letter in found
        )

    def _view(
        self, subscription: ActiveSubscription, rights: Rights, letter: DeadLetter
    ) -> DeadLetterView | None:
        try:
            payload = self._decoder.decode_stored(letter.payload, NAME_OF[letter.format])
            # It may have been rejected before it was checked.
            if not has_passed(subscription, letter.sequence, payload):
                return None
        except TamisError:
            # The schema has changed since, so what may be seen is unknown.
            return None
        data = visible_data(subscription.filter_at(letter.sequence), rights, payload)
        if data is None:
            return None
        return DeadLetterView(
            sequence=letter.sequence,
            time=letter.time,
            died_at=letter.died_at,
            publisher=letter.publisher,
            attempts=letter.attempts,
            reason=letter.reason if subscription.shows_all_to(rights) else HIDDEN_REASON,
            data=msgspec.Raw(data),
            format=payload.format,
        )
