"""The broker without a network: its parts, how it starts, and how it stops.

::

    session ──publish──► committer ──► matcher ──► queues ──► notifier ──► sinks
       └────subscribe──► updater ───────┘
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from tamis.access import RateLimiter
from tamis.broker.advertising.service import AdvertisingService
from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.dead_letter_bounds import DeadLetterBounds
from tamis.broker.deliver.dead_letters import DeadLetterReader
from tamis.broker.deliver.exact_checks import ExactChecks
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.routes import is_link
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.linking import link_parts
from tamis.broker.match.catch_up import CatchUp
from tamis.broker.match.deferred import DeferredWriter
from tamis.broker.match.matcher import Matcher
from tamis.broker.match.snapshots import Snapshots
from tamis.broker.operations.access_control import NO_LONGER_VALID, AccessControl
from tamis.broker.operations.checkpointer import Checkpointer
from tamis.broker.operations.clock_watch import ClockWatch
from tamis.broker.operations.damage_watch import DamageWatch
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.fair_executor import FairExecutor
from tamis.broker.operations.health import Health
from tamis.broker.operations.housekeeping import Chore, Housekeeping
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.pacing import PrincipalPacing
from tamis.broker.operations.revocations import RevocationWriter
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.committer import Committer
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.publish.payloads import PayloadDecoder
from tamis.broker.publish.publishers import FanOut, Numbering
from tamis.broker.publish.quotas import PublishingQuota
from tamis.broker.publish.unmatchable_events import UnmatchableEvents
from tamis.broker.queries.service import QueryService
from tamis.broker.sessions import Session, SessionServices
from tamis.broker.subscribe.expired_at_start import ExpiredAtStart
from tamis.broker.subscribe.history import History
from tamis.broker.subscribe.manager import SubscriptionManager
from tamis.broker.subscribe.replay import Replayer
from tamis.broker.subscribe.suspensions import Suspensions, matching_budget
from tamis.errors import (
    AccessError,
    BrokerFailedError,
    PolicyError,
    RefusedError,
    SchemaError,
    TamisError,
)
from tamis.events import EventLimits, Schema, decode_schema
from tamis.filters import Mode
from tamis.ports import (
    SYSTEM_FILES,
    CautiousClock,
    Files,
    HeldClock,
    MachineClock,
    RandomBytes,
    SteadyClock,
    SystemClock,
    system_random,
)
from tamis.protocol import Code
from tamis.storage import Storage, StoredSubscription

LOG: Final = get_logger("tamis.broker")

EVENT_CACHE_BYTES: Final = 64 * 1024 * 1024
CHORE_SECONDS: Final = 0.25
POSITION_SECONDS: Final = 1.0
RETENTION_SECONDS: Final = 5.0
FORGET_SECONDS: Final = 600.0
POLICY_PROBLEM: Final = "the policy file cannot be used; the previous policy stays in force"


class Broker:
    """Stores publications, keeps subscriptions, and delivers events to subscribers."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Storage,
        schema: Schema | None,
        *,
        clock: CautiousClock,
        executors: Executors,
        files: Files,
        random: RandomBytes,
    ) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.steady_clock = SteadyClock(clock)
        held_clock = HeldClock(self.steady_clock)
        self.executors = executors
        self.metrics = Metrics()
        self.health = Health()
        self.supervisor = Supervisor(self.health, self.metrics)
        self.subscription_index = SubscriptionIndex()
        self.snapshots = Snapshots(
            settings.data / "engine", schema, settings.mode, held_clock, files=files, random=random
        )
        self.engine, self._marks = self.snapshots.load()
        # An engine from a file has a schema object of its own; shared, it checks an event once.
        schema = self.engine.schema
        self.decoder = PayloadDecoder(
            schema,
            EventLimits(size=settings.largest_event),
            is_total=settings.mode is Mode.TOTAL,
        )
        self.access_control = AccessControl(
            settings, store.state, schema, clock, executors.administration, random=random
        )
        self.revocation_writer = RevocationWriter(
            store.state, self.health, executors.administration, self.supervisor
        )
        self.dead_letters = DeadLetterReader(store.state, self.decoder)
        event_cache = EventCache(
            store.log,
            self.decoder,
            EVENT_CACHE_BYTES,
            executors.deliver,
            UnmatchableEvents(self.health, self.metrics),
            max_unmatched=settings.match_queue,
        )
        self.dead_letter_bounds = DeadLetterBounds(
            store.state,
            self.subscription_index,
            settings.dead_letters,
            settings.dead_letter_bytes,
        )
        self.acknowledgement_writer = AcknowledgementWriter(
            store.state,
            self.metrics,
            executors.settle,
            self.dead_letter_bounds,
            self.subscription_index,
            health=self.health,
        )
        self.pacing = PrincipalPacing(
            clock.monotonic, thread_time=clock.thread_time, process_time=clock.process_time
        )
        fair = partial(
            FairExecutor,
            clock=clock.monotonic,
            charge=self.pacing.charge,
            thread_time=clock.thread_time,
        )
        patient = partial(fair, max_waiting=inf, max_waiting_in_all=inf)
        self.notifier = Notifier(
            event_cache=event_cache,
            acknowledgement_writer=self.acknowledgement_writer,
            settings=settings,
            metrics=self.metrics,
            clock=clock.time,
            steady_clock=self.steady_clock.time,
            supervisor=self.supervisor,
            exactness=ExactChecks(
                patient(executors.client, pause_after=self.pacing.pause_unless_alone)
            ),
        )
        budget = matching_budget(settings, self.subscription_index, clock.monotonic)
        suspensions = Suspensions(
            budget=budget,
            store=store,
            subscription_index=self.subscription_index,
            notifier=self.notifier,
            health=self.health,
            metrics=self.metrics,
            supervisor=self.supervisor,
        )
        fan_out = FanOut()
        # Whoever waits for room must learn that there is none to wait for.
        self.health.when_refusing(fan_out.wake_all)
        self.deferred_writer = DeferredWriter(
            state=store.state,
            subscription_index=self.subscription_index,
            executor=executors.match,
            clock=clock.monotonic,
            is_shared=self.pacing.is_shared,
            charge=self.pacing.charge,
            on_written=fan_out.leave,
            count_lost=self.acknowledgement_writer.count_lost,
            health=self.health,
        )
        self.notifier.deferred = self.deferred_writer
        self.matcher = Matcher(
            fan_out=fan_out,
            deferred_writer=self.deferred_writer,
            engine=self.engine,
            state=store.state,
            event_cache=event_cache,
            subscription_index=self.subscription_index,
            metrics=self.metrics,
            health=self.health,
            on_overflow=self._end_slow,
            executor=executors.match,
            supervisor=self.supervisor,
            publishers=store.publishers,
            budget=budget,
            has_tokens=settings.tokens_required,
            on_suspended=suspensions.begin,
            send_at_once=self.notifier.send_at_once,
            unwritten=self.acknowledgement_writer.unwritten,
            charge=self.pacing.charge_piece,
            thread_time=clock.thread_time,
        )
        self.numbering = Numbering(store.publishers, max_names=settings.publishers_per_principal)
        self.committer = Committer(
            store.log,
            self.numbering,
            event_cache,
            self.metrics,
            executors.commit,
            max_waiting=settings.commit_queue,
            fan_out=fan_out,
            health=self.health,
            clock=clock.monotonic,
        )
        pause = self.pacing.pause_after
        self.replayer = Replayer(
            store,
            event_cache,
            patient(executors.background, pause_after=pause),
            self.supervisor,
            self.acknowledgement_writer.count_lost,
        )
        self.history = History(store.log, event_cache, schema, settings.mode)
        self.subscription_manager = SubscriptionManager(
            store=store,
            event_cache=event_cache,
            engine=self.engine,
            subscription_index=self.subscription_index,
            matcher=self.matcher,
            notifier=self.notifier,
            replayer=self.replayer,
            rights_of=self.access_control.rights,
            is_welcome=self.access_control.is_welcome,
            settings=settings,
            clock=self.steady_clock.time,
            matching_clock=held_clock,
            executors=executors,
            random=random,
            supervisor=self.supervisor,
            suspensions=suspensions,
            unwritten=self.acknowledgement_writer.unwritten,
            batch_executor=patient(executors.client, pause_after=self.pacing.pause_unless_alone),
        )
        self.damage_watch = DamageWatch(
            store, self.health, self.metrics, clock, executors.background
        )
        self.expired_at_start = ExpiredAtStart(
            store=store,
            clock=clock,
            steady_clock=self.steady_clock,
            health=self.health,
            subscription_index=self.subscription_index,
            subscription_manager=self.subscription_manager,
            updater=self.matcher.updater,
        )
        self.housekeeping = Housekeeping(self._chores(), self.health)
        self._services = SessionServices(
            settings=settings,
            clock=clock.time,
            engine=self.engine,
            health=self.health,
            metrics=self.metrics,
            quota=PublishingQuota(RateLimiter(clock.monotonic)),
            decoder=self.decoder,
            numbering=self.numbering,
            committer=self.committer,
            notifier=self.notifier,
            acknowledgement_writer=self.acknowledgement_writer,
            subscription_manager=self.subscription_manager,
            subscription_index=self.subscription_index,
            dead_letters=self.dead_letters,
            dead_letter_bounds=self.dead_letter_bounds,
            history=self.history,
            queries=QueryService(settings, settings.name or ""),
            advertising=AdvertisingService(settings),
            store=store,
            access_control=self.access_control,
            revocation_writer=self.revocation_writer,
            executors=executors,
            fan_out=fan_out,
            charge=self.pacing.charge,
            client_executor=fair(executors.client, pause_after=pause),
            view_executor=patient(executors.client, pause_after=pause),
            decode_executor=patient(executors.decode, pause_after=self.pacing.pause_in_turn),
            overlay=lambda: self.overlay,
            roaming=lambda: self._roaming,
            status=self.status,
            offered_up_to=lambda: self.matcher.offered_up_to,
            end_invalid_sessions=self.end_invalid_sessions,
            forget=self.forget,
        )
        self.event_cache = event_cache
        self.links, self.overlay, self._link_queries, self._roaming = link_parts(
            self._services,
            matcher=self.matcher,
            event_cache=event_cache,
            supervisor=self.supervisor,
            files=files,
            random=random,
            count_subscriptions=self._subscription_count,
        )
        self._catch_up = CatchUp(
            store=store,
            event_cache=event_cache,
            matcher=self.matcher,
            subscription_index=self.subscription_index,
            executor=executors.match,
            health=self.health,
            supervisor=self.supervisor,
            count_lost=self.acknowledgement_writer.count_lost,
        )
        self._sessions: set[Session] = set()
        self._connected: Counter[str] = Counter()
        self._essential: list[asyncio.Task[None]] = []
        self._clock_watch = ClockWatch(clock, self.health)
        self._started_at = clock.monotonic()
        self._watch()

    # --- life ------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        settings: BrokerSettings,
        *,
        clock: MachineClock | None = None,
        executors: Executors | None = None,
        files: Files = SYSTEM_FILES,
        random: RandomBytes = system_random,
    ) -> Broker:
        """Recover the data folder, and start."""
        schema = None if settings.schema_file is None else _schema(settings.schema_file)
        for peer in settings.peers:
            peer.require_files()
        cautious = CautiousClock(clock or SystemClock())
        executors = executors or Executors.threads()
        with contextlib.ExitStack() as opened:
            opened.callback(executors.close)
            store = await executors.match.run(
                Storage.open, settings.data, clock=cautious, files=files, random=random
            )
            opened.callback(store.close)
            await executors.match.run(store.log.write_beside)
            broker = cls(
                settings,
                store,
                schema,
                clock=cautious,
                executors=executors,
                files=files,
                random=random,
            )
            try:
                await broker._recover()
            except BaseException as error:
                await broker.supervisor.close()
                cause = error.__cause__ if isinstance(error, BrokerFailedError) else None
                raise cause if isinstance(cause, TamisError) else error from None
            opened.pop_all()
        return broker

    async def _recover(self) -> None:
        self.health.recovery = str(self.store.recovery)
        self.damage_watch.report()
        restored = await self.executors.match.run(self._restore_subscriptions)
        self.deferred_writer.resume()
        supervisor = self.supervisor
        supervisor.failed.add_done_callback(self._abandon)
        # What is stored must be matched, in order: after a failure, only a new start makes sure.
        self._essential += [
            supervisor.depend_on("committer", self.committer.run),
            supervisor.depend_on("matcher", self.matcher.run),
        ]
        supervisor.restart("acknowledgement writer", self.acknowledgement_writer.run)
        supervisor.restart("deferred writer", self.deferred_writer.run)
        supervisor.restart("current rights", self.subscription_manager.current_rights.run)
        supervisor.restart("links", self.links.run)
        supervisor.restart("queries", self.queries.run)
        supervisor.restart("housekeeping", self.housekeeping.run)
        checkpointer = Checkpointer(self.store.state, self.executors.background)
        supervisor.restart("checkpointer", checkpointer.run)
        await supervisor.unless_failed(self._catch_up.begin())
        for subscription in restored:
            self.subscription_manager.replay(subscription)
        self.health.set_open(True)
        self.overlay.start()
        self._roaming.start()
        LOG.info("broker open", subscriptions=len(restored), recovery=self.health.recovery)

    def _restore_subscriptions(self) -> list[ActiveSubscription]:
        restored, now = [], self.steady_clock.time()
        routes = self.subscription_index.routes
        subscriptions = self.store.state.subscriptions()
        self.expired_at_start.begin(subscriptions)
        for stored in subscriptions:
            valid: StoredSubscription | None = stored
            if not stored.durable or stored.expires_at <= now:
                valid = self.expired_at_start.spare(stored)
            if valid is None:
                self.store.state.remove_subscription(stored.number)
                continue
            try:
                if is_link(valid):
                    self.links.restore(valid)
                    continue
                restored.append(self.subscription_manager.restore(valid, self._marks))
            except TamisError as error:
                LOG.warning(
                    "subscription left out",
                    owner=stored.owner,
                    subscription=stored.name,
                    reason=str(error),
                )
        self.expired_at_start.report()
        self.links.restore_routes(self._marks)
        self.overlay.traffic.restore()
        for number in cast("list[int]", self.engine.ids()):
            if self.subscription_index.get(number) is None and number not in routes:
                self.engine.remove(number)
        self.subscription_manager.suspensions.report()
        self.dead_letter_bounds.load()
        for dropped in self.store.state.dropped():
            subscription = self.subscription_index.get(dropped.number)
            if subscription is not None:
                subscription.lose(dropped.events, dropped.reason, dropped.told)
        self._save_snapshot()
        return restored

    def _save_snapshot(self) -> None:
        try:
            routes = self.subscription_index.routes.copy().values()
            self.snapshots.save(self.engine, [*self.subscription_index, *routes])
        except OSError as error:
            # Only the next start takes longer.
            LOG.warning("no snapshot written", reason=str(error))

    async def close(self) -> None:
        """Finish the work in progress, and stop."""
        self.health.set_open(False)
        self.overlay.stop()
        for session in [*self._sessions]:
            session.revoke("the broker stops")
        try:
            async with asyncio.timeout(self.settings.stop_timeout):
                await self.supervisor.unless_failed(self._finish())
        except BrokerFailedError:
            pass
        except TimeoutError:
            # As after a crash, the next start matches and delivers what is in the log.
            LOG.warning("stopped before all work was done", problems=self.health.problems)
        await self.supervisor.close()
        await self.revocation_writer.close()
        await self.executors.background.run(self._save_snapshot)
        await self.executors.background.run(self.store.close)
        self.executors.close()
        LOG.info("broker closed")

    async def _finish(self) -> None:
        for session in [*self._sessions]:
            await session.close()
        await self.replayer.close()
        await self.committer.drained()
        await self.matcher.drained()
        await self.acknowledgement_writer.settled()
        await self.matcher.save_position()

    def _abandon(self, failed: asyncio.Future[BrokerFailedError]) -> None:
        """End all sessions, because a part has failed that the broker cannot do without."""
        self.health.set_open(False)
        for task in self._essential:
            task.cancel()
        for session in [*self._sessions]:
            session.revoke(str(failed.result()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- sessions --------------------------------------------------------------------------------

    async def authenticate(self, token: str | None) -> Session:
        """Return a session for the holder of a token."""
        if not self.health.is_open:
            raise RefusedError(Code.UNAVAILABLE, "the broker is starting or stopping")
        principal = self.access_control.authenticate(token)
        if self.access_control.policy.blocks(principal):
            raise AccessError(Code.UNAUTHENTICATED, "the token is not valid", reason="blocked")
        rights = self.access_control.rights(principal)
        most = min(rights.limits.connections, self.settings.connections_per_principal)
        if self._connected[principal.name] >= most:
            raise RefusedError(
                Code.TOO_MANY, f"{principal.name} has {most:,.0f} connections, which is the limit"
            )
        if len(self._sessions) >= self.settings.connections:
            raise RefusedError(Code.TOO_MANY, "the broker has reached its limit of connections")
        session = Session(self._services, principal, rights)
        self._sessions.add(session)
        self._connected[principal.name] += 1
        return session

    def forget(self, session: Session) -> None:
        """Remove a session that has ended."""
        if session in self._sessions:
            self._sessions.discard(session)
            self._connected[session.principal.name] -= 1
            if not self._connected[session.principal.name]:
                del self._connected[session.principal.name]

    def end_invalid_sessions(self) -> None:
        """End the sessions whose credentials are no longer valid."""
        for session in [*self._sessions]:
            if not self.access_control.is_welcome(session.principal):
                session.revoke(NO_LONGER_VALID)

    async def apply_policy(self) -> None:
        """Apply a new policy to every session and every subscription; matching follows."""
        for session in self._sessions:
            session.rights = self.access_control.rights(session.principal)
        self._link_queries.apply_policy()
        self.advertising.apply_policy()
        await self.subscription_manager.current_rights.apply()

    # --- chores ----------------------------------------------------------------------------------

    def _chores(self) -> list[Chore]:
        return [
            Chore("watch the clock", CHORE_SECONDS, self._watch_clock),
            Chore(
                "decide what expired before the start", CHORE_SECONDS, self.expired_at_start.decide
            ),
            Chore(
                "delete expired subscriptions",
                CHORE_SECONDS,
                self.subscription_manager.purge_expired,
            ),
            Chore("reject late deliveries", CHORE_SECONDS, self.notifier.reject_late),
            Chore("apply the policy", CHORE_SECONDS, self._reload_policy),
            Chore("save the position of matching", POSITION_SECONDS, self.matcher.save_position),
            Chore("apply retention", RETENTION_SECONDS, self._apply_retention),
            Chore("forget idle publishers", FORGET_SECONDS, self.forget_publishers),
            Chore("look for damage", CHORE_SECONDS, self.damage_watch.look),
        ]

    async def _reload_policy(self) -> None:
        has_changed = False
        try:
            has_changed = self.access_control.reload()
        except PolicyError as error:
            self.health.warn(POLICY_PROBLEM, str(error))
            LOG.warning("policy refused", reason=str(error))
        # End sessions first: applying a policy to many subscriptions takes a while.
        self.end_invalid_sessions()
        if has_changed:
            self.health.clear(POLICY_PROBLEM)
            LOG.info("policy reloaded")
            await self.apply_policy()

    async def _watch_clock(self) -> None:
        self._clock_watch.look()

    async def _apply_retention(self) -> None:
        max_age = self.settings.retention_age
        kept = await self.executors.background.run(
            self.store.retain,
            max_age=max_age if self.clock.can_tell_age(max_age) else None,
            max_bytes=self.settings.retention_bytes,
        )
        self.deferred_writer.forget_below(kept.removed.stop)
        for number, count in kept.dropped.items():
            subscription = self.subscription_index.get(number)
            if subscription is not None:
                self.notifier.drop_below(subscription, kept.removed.stop, count)

    async def forget_publishers(self) -> None:
        """Forget the numbers of publishers that have long been idle."""
        age = max(self.settings.publisher_age, self.settings.retention_age)
        if not self.clock.can_tell_age(age):
            return
        # First in memory: if the state keeps a name, the next start knows it again, and no more.
        idle = self.numbering.forget(self.clock.time() - age)
        if idle:
            await self.matcher.forget_publishers(idle)
            await self.executors.background.run(self.store.state.forget_publishers, idle)
            LOG.info("idle publishers forgotten", count=len(idle))

    @property
    def advertising(self) -> AdvertisingService:
        """Return the part that knows what clients have advertised."""
        return self._services.advertising

    @property
    def queries(self) -> QueryService:
        """Return the part that asks and answers queries."""
        return self._services.queries

    # --- for sessions ----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters."""
        log = self.store.log
        return {
            "ready": self.health.ready,
            "problems": self.health.problems,
            "uptime": round(self.clock.monotonic() - self._started_at, 3),
            "broker": self.links.broker_id,
            "subscriptions": self._subscription_count(),
            "links": {
                "count": len(self.subscription_index.links),
                "routes": len(self.subscription_index.routes),
            },
            "suspended": len(self.subscription_manager.suspensions.numbers),
            "connections": len(self._sessions),
            "advertisements": len(self.advertising),
            "sources": self.queries.sources,
            "queries": self.queries.queries,
            "log": {
                "first": log.first_sequence,
                "next": log.next_sequence,
                "bytes": log.bytes,
                "matched_up_to": self.matcher.position,
            },
            "damage": self.damage_watch.status(),
            "queues": self.metrics.queues(),
            **self.metrics.totals(),
        }

    def _subscription_count(self) -> int:
        return len(self.subscription_index) - len(self.subscription_index.links)

    def _end_slow(self, subscription: ActiveSubscription) -> None:
        self.supervisor.start("end notice", self.notifier.end(subscription, "too slow"))

    def _watch(self) -> None:
        watch = self.metrics.watch
        index = self.subscription_index
        watch("subscriptions", "Subscriptions in force", self._subscription_count)
        watch("links", "Links to other brokers", lambda: len(index.links))
        self.overlay.watch(self.metrics)
        connected = self.overlay.count_connected
        watch("links_connected", "Links that have a connection", connected)
        watch("routes", "Filters that other brokers have forwarded", lambda: len(index.routes))
        watch("connections", "Sessions open", lambda: len(self._sessions))
        watch("sources", "Data sources that answer queries", lambda: self.queries.sources)
        watch("advertisements", "What clients have advertised", lambda: len(self.advertising))
        watch("queries", "Queries that run", lambda: self.queries.queries)
        watch("log_bytes", "Bytes of the log", lambda: self.store.log.bytes)


def _schema(path: Path) -> Schema:
    try:
        return decode_schema(path.read_bytes())
    except OSError as error:
        raise SchemaError(f"{path}: the schema cannot be read: {error.strerror}") from None
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from None
