"""Advertising: what a session says it will publish, and asks whether anybody wants."""

from __future__ import annotations

import msgspec

from tamis.broker.advertising.service import ClientAdvertisement, WantedSink
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.payloads import JSON, XML
from tamis.broker.sessions.base import SessionBase
from tamis.broker.subscribe.filter_reader import FilterReader
from tamis.errors import AccessError, RefusedError, TamisError
from tamis.events import Attribute
from tamis.events.kinds import TYPES
from tamis.filters import Filter
from tamis.filters.element_test import refuse_element_tests
from tamis.languages import parse
from tamis.languages.registry import ALL_LANGUAGES, unknown_language
from tamis.protocol import Code
from tamis.protocol.advertising import Advertise


class Advertising(SessionBase):
    """What a session does as a publisher before it publishes."""

    async def advertise(self, wanted: Advertise, sink: WantedSink) -> ClientAdvertisement:
        """Advertise what the principal will publish."""
        self._require_open()
        if not self.rights.may_publish:
            raise AccessError(Code.FORBIDDEN, "your roles do not allow you to publish")
        if wanted.language not in ALL_LANGUAGES:
            raise RefusedError(Code.BAD_FILTER, str(unknown_language(wanted.language)))
        filter_ = await self._answer_in_slices(self._read_advertisement(wanted))
        self._require_open()
        owner = self.principal.name
        return await self._services.advertising.advertise(self, owner, sink, filter_)

    def _read_advertisement(self, wanted: Advertise) -> Slices[Filter]:
        yield
        settings, engine = self._services.settings, self._services.engine
        try:
            limits = FilterReader(settings, engine.mode).limits
            filter_ = parse(wanted.filter, wanted.language, limits=limits)
            refuse_element_tests(filter_, "an advertisement")
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        if not self.rights.may_publish_with(filter_.attributes()):
            raise self.rights.unpublishable("the attributes of an advertisement")
        try:
            bound = filter_ if engine.schema is None else filter_.bind(engine.schema)
            # Nobody learns who asks for what others publish.
            return self.rights.publishable(bound)
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None

    async def withdraw_advertisement(self, id_: str) -> None:
        """Withdraw an advertisement."""
        await self._services.advertising.withdraw(self, id_)

    def end_advertisements(self) -> None:
        """Withdraw all advertisements of the session."""
        self._services.advertising.end_client(self)

    def reads_alike(self, wanted: Advertise) -> bool:
        """Return whether a client can tell which events belong to what it advertises."""
        schema = self._services.engine.schema
        if schema is None:
            return True
        names = parse(wanted.filter, wanted.language).attributes()
        return all(name in schema and _is_unconverted(schema[name]) for name in names)

    async def wanted(self, event: bytes | msgspec.Raw) -> bool:
        """Return whether anybody would get an event if it were published now.

        A JSON string is the text of a document. What is found out only when an event is about to
        be sent, whether it satisfies a query exactly, does not count.
        """
        self._require_open()
        services, rights = self._services, self.rights
        if not rights.may_quench:
            raise AccessError(
                Code.FORBIDDEN,
                "you may not know what others ask for: none of your roles has quench = true",
            )
        text = bytes(event)
        services.quota.take(self.principal.name, rights, 1, len(text))
        if text.lstrip()[:1] == b'"':
            payload = await self._while_open(
                services.decode_executor.run(
                    self.principal.name, services.decoder.decode, text, XML
                )
            )
        else:
            payload = services.decoder.decode(text, JSON)
        # They may have changed meanwhile.
        self.rights.check_publish(payload.source)
        return await self._while_open(services.subscription_manager.is_wanted(payload.event))


def _is_unconverted(declared: Attribute) -> bool:
    """Return whether JSON has the values of an attribute as they are, and tests see no others."""
    return TYPES[declared.type].to_json is None and not declared.caseless
