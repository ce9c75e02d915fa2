"""Reading filters of clients: parsed within limits, and checked against rights."""

from __future__ import annotations

from tamis.access import FilterInMode, Rights
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import FilterError, RefusedError, TamisError
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.limits import steps_within
from tamis.filters.modes import as_mode
from tamis.languages import QUERY_LANGUAGES
from tamis.languages.exactness import read_filter
from tamis.protocol import Code


class FilterReader:
    """Parses the filters of clients, or refuses them with a sentence."""

    def __init__(self, settings: BrokerSettings, engine_mode: Mode) -> None:
        self._mode = settings.mode
        self._engine_mode = engine_mode
        self.limits = FilterLimits(
            steps=steps_within(settings.pattern_seconds, settings.largest_event)
        )

    def read(
        self, text: str, language: str, mode: str | None, rights: Rights
    ) -> tuple[Filter, Mode, FilterInMode]:
        """Return a filter, its mode, and what is to be matched by the rights."""
        is_query = language in QUERY_LANGUAGES
        chosen = self._mode_of_query(mode) if is_query else self.mode(mode)
        try:
            filter_ = read_filter(text, language, self.limits)
            effective = rights.effective(filter_, chosen)
        except RefusedError:
            raise
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        return filter_, chosen, effective

    def _mode_of_query(self, name: str | None) -> Mode:
        """Return the mode of every query: it says itself what absence means."""
        if name is not None and self.mode(name) is not Mode.SQL:
            raise RefusedError(
                Code.BAD_FILTER, f"mode {name!r} is for filters over attributes: leave it out"
            )
        return Mode.SQL

    def mode(self, name: str | None) -> Mode:
        """Return the mode of a filter; without a name, the broker's."""
        try:
            chosen = self._mode if name is None else as_mode(name)
        except FilterError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        if chosen is Mode.TOTAL and self._engine_mode is not Mode.TOTAL:
            raise RefusedError(
                Code.BAD_FILTER,
                "mode 'total' is a promise about all events: set it in the broker's settings",
            )
        return chosen
