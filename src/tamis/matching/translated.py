"""Subscriptions in any language: to a filter over flat events, and what is left to check.

Queries over documents, tests of elements and filters over objects are translated; a filter over
attributes is its own translation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tamis.errors import FilterError
from tamis.events import Schema
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.element_bounds import ElementResidual, bound_mode, element_translation
from tamis.filters.element_test import has_element_tests
from tamis.filters.modes import as_mode
from tamis.filters.translations import Translation
from tamis.languages import QUERY_LANGUAGES, translate
from tamis.matching.compile.programs import compile_filter
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store.segments import CompiledSubscription
from tamis.matching.subscriptions import Subscription, seconds_of


class TranslatedSubscription(NamedTuple):
    """A subscription as it enters an engine."""

    entry: CompiledSubscription
    translation: Translation


class SubscriptionTranslator(NamedTuple):
    """Translates and compiles subscriptions for one engine."""

    schema: Schema | None
    mode: Mode
    limits: FilterLimits

    def translated(self, given: Subscription, vocabulary: Vocabulary) -> TranslatedSubscription:
        """Translate a subscription, and compile its filter."""
        if not isinstance(given.id, str | int) or isinstance(given.id, bool):
            raise FilterError(f"an id is a text or an integer, not {given.id!r:.60}")
        asked = self._asked_mode(given)
        translation = self._translation(given, asked)
        mode = self._compiled_mode(given, translation, asked)
        expires_at = seconds_of(given.expires_at)
        if self.schema is not None:
            _check_schema(given, translation)
        codes = np.array(compile_filter(translation.filter, mode, vocabulary), np.int32)
        entry = CompiledSubscription(given.id, codes, mode, expires_at, translation.residual)
        return TranslatedSubscription(entry, translation)

    def _asked_mode(self, given: Subscription) -> Mode:
        mode = self.mode if given.mode is None else as_mode(given.mode)
        if mode is Mode.TOTAL and self.mode is not Mode.TOTAL:
            raise FilterError(
                "mode 'total' is a promise about all events: give it to the engine, not to one "
                "subscription"
            )
        return mode

    def _compiled_mode(self, given: Subscription, translation: Translation, asked: Mode) -> Mode:
        if isinstance(translation.residual, ElementResidual):
            return bound_mode(asked)
        if isinstance(given.filter, Filter) or (
            isinstance(given.filter, str) and not _is_query(given)
        ):
            return asked
        # What is translated says itself what absence means, and is translated to this mode.
        if given.mode is not None and asked is not Mode.SQL:
            raise FilterError(f"mode {given.mode!r} is for filters over attributes: leave it out")
        return Mode.SQL

    def _translation(self, given: Subscription, mode: Mode) -> Translation:
        if isinstance(given.filter, str):
            translation = translate(given.filter, given.language, limits=self.limits)
            return self._over_flat_events(translation, mode)
        if isinstance(given.filter, Filter):
            translation = Translation(given.filter)
        elif hasattr(type(given.filter), "__translation__"):
            translation = given.filter.__translation__()
        else:
            raise FilterError(f"a filter is a text or a Filter, not {given.filter!r:.60}")
        conditions = self.limits.check(translation.filter)
        if not conditions.are_of_elements:
            return translation
        return self._over_flat_events(translation, mode)

    def _over_flat_events(self, translation: Translation, mode: Mode) -> Translation:
        """Return a filter without tests of elements, which are left to check."""
        if translation.residual is not None or not has_element_tests(translation.filter):
            return translation
        return element_translation(translation.filter, mode, self.schema)


def _check_schema(given: Subscription, translation: Translation) -> None:
    if _is_query(given):
        raise FilterError(
            "a query over documents asks for places in them, which no schema declares; add it "
            "to an engine without a schema"
        )
    if translation.ways:
        raise FilterError(
            "a filter over objects is checked against their classes, and asks for more than a "
            "schema declares; add it to an engine without a schema"
        )


def _is_query(given: Subscription) -> bool:
    return isinstance(given.filter, str) and given.language in QUERY_LANGUAGES
