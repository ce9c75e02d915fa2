"""The parts of a broker that link it to others, made and joined."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tamis.broker.links.links import Links
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.peers.link_traffic import LinkTraffic
from tamis.broker.peers.overlay import Overlay
from tamis.broker.peers.peers_file import PeersFile
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.queries.link_queries import LinkQueries
from tamis.broker.queries.row_checks import RowChecker
from tamis.broker.roaming.service import Roaming
from tamis.broker.sessions import SessionServices
from tamis.covering import CoveringIndex
from tamis.ports import Files, RandomBytes
from tamis.routing import Router


class LinkParts(NamedTuple):
    """What a broker keeps of them."""

    links: Links
    overlay: Overlay
    queries: LinkQueries
    roaming: Roaming


def link_parts(
    services: SessionServices,
    *,
    matcher: Matcher,
    event_cache: EventCache,
    supervisor: Supervisor,
    files: Files,
    random: RandomBytes,
    count_subscriptions: Callable[[], int],
) -> LinkParts:
    """Return the parts, none of which works yet."""
    settings, access = services.settings, services.access_control
    file = PeersFile(settings.data / "peers.json", files)
    links = Links(services, matcher, event_cache, supervisor)
    schema, executors = services.engine.schema, services.executors
    router = Router(
        links.broker_id,
        make_index=partial(CoveringIndex, schema=schema, many=schema is None),
        name=settings.name or "",
        advertisements=settings.advertisements,
    )
    traffic = LinkTraffic(
        router=router,
        links=links,
        store=services.store,
        matcher=matcher,
        file=file,
        supervisor=supervisor,
        executors=executors,
        schema=schema,
        keeps_advertisements=settings.advertisements == "require",
    )
    overlay = Overlay(
        broker=links.broker_id,
        settings=settings,
        access_control=access,
        traffic=traffic,
        file=file,
        supervisor=supervisor,
        executor=executors.administration,
        count_subscriptions=count_subscriptions,
        count_events=lambda: services.metrics.totals()["published"],
    )
    queries = LinkQueries(
        services.queries,
        services.decoder,
        services.decode_executor,
        RowChecker(services.decoder, schema, settings.largest_event),
        post=traffic.post_query,
        end=traffic.refuse,
        rights_of=lambda peer: access.rights(traffic.principal_of(peer)),
        title_of=lambda peer: traffic.links[peer].title,
    )
    traffic.queries = queries
    services.advertising.router = traffic
    traffic.on_wanted = services.advertising.note_wanted
    roaming = Roaming(
        services,
        matcher=matcher,
        event_cache=event_cache,
        supervisor=supervisor,
        put=traffic.put,
        told_local=traffic.told_local,
        random=random,
    )
    traffic.on_letter = roaming.take
    return LinkParts(links, overlay, queries, roaming)
