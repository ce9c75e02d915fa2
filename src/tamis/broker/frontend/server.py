"""The server process: a broker behind a socket, from its first line of output to its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn

from tamis.broker.broker import Broker
from tamis.broker.frontend.app import create_app
from tamis.broker.frontend.protocols import (
    HTTPProtocol,
    ServerConfig,
    TLSGate,
    WebSocketProtocol,
)
from tamis.broker.frontend.streams import OpenStreams
from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import configure_logs, get_logger
from tamis.broker.operations.settings import BrokerSettings, unknown_variables
from tamis.broker.publish.batches import load_batch_decoders
from tamis.errors import BrokerFailedError, SettingsError
from tamis.matching import load_kernels
from tamis.ports import THREAD_PREFIX, ThreadExecutor

LOG: Final = get_logger("tamis.server")

BACKLOG: Final = 2048
# Longer than clients are told to wait before they try again: some do so on the same connection.
KEEP_ALIVE_SECONDS: Final = 15
# Loading takes longer if the kernels must be compiled, or the machine is busy.
LOADING_SECONDS: Final = 3.0
LOADING: Final = "the kernels of the engine are being loaded"
# How long a thread that computes may keep the event loop waiting. With Python's 5 ms, each of the
# steps of a publication would wait that long while somebody searches the log.
SWITCH_SECONDS: Final = 0.0001
FREEZE_SECONDS: Final = 0.25
MIN_FROZEN_SUBSCRIPTIONS: Final = 2_000
# How long the process waits for threads that still compute after everything is closed.
LEAVING_SECONDS: Final = 1.0


def serve(settings: BrokerSettings) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    configure_logs(settings)
    for sentence in unknown_variables(os.environ):
        LOG.warning("unknown variable", reason=sentence)
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=loop_factory(settings)) as runner:
        runner.run(_serve(settings))
    end_without_threads()


def loop_factory(settings: BrokerSettings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes uvloop's event loops, which cost less than Python's; None: use Python's."""
    if settings.has_tls:
        # uvloop does not begin TLS on a connection that was accepted without it, as `TLSGate` does.
        return None
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def end_without_threads(seconds: float = LEAVING_SECONDS) -> None:
    """End the process if a thread of the closed broker still computes; nobody needs its result.

    Python would wait for it, however long that takes.
    """
    until = time.monotonic() + seconds
    threads = [one for one in threading.enumerate() if one.name.startswith(THREAD_PREFIX)]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        LOG.warning("stopped while a thread was still computing")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


async def _serve(settings: BrokerSettings) -> None:
    # Bind before recovery, which may take a while, so that a port in use is reported at once.
    with _bind(settings) as bound:
        async with await _open_broker(settings) as broker:
            # Publishers need not wait for what only matching needs.
            broker.supervisor.start("loader of kernels", _load_kernels(broker.health))
            broker.supervisor.start("loader of parsers", _load_parsers(broker))
            streams = OpenStreams()
            config = _config(create_app(broker, streams), settings)
            server = Server(config, streams, _address(settings, bound))
            index = broker.subscription_index
            broker.supervisor.restart("garbage collector", lambda: freeze_as_they_grow(index))
            failed = broker.supervisor.failed
            failed.add_done_callback(server.stop_after)
            await server.serve([bound])
            if failed.done():
                raise failed.result()


async def _open_broker(settings: BrokerSettings) -> Broker:
    """Open a broker, with the garbage collector paused and all subscriptions then frozen.

    Reading them creates no cyclic garbage, and what remains afterwards lives long.
    """
    gc.disable()
    try:
        return await Broker.open(settings)
    finally:
        gc.freeze()
        gc.enable()


async def freeze_as_they_grow(subscriptions: Sized) -> None:
    """Freeze what there is whenever there are many more subscriptions, until cancelled.

    The garbage collector would visit all of them again and again, and everything else would wait
    for a tenth of a second. Garbage that is frozen with them stays for ever, so that is rare.
    """
    frozen = len(subscriptions)
    while True:
        await asyncio.sleep(FREEZE_SECONDS)
        if len(subscriptions) - frozen >= max(MIN_FROZEN_SUBSCRIPTIONS, frozen // 8):
            frozen = len(subscriptions)
            freeze_what_there_is()


def freeze_what_there_is() -> None:
    """Spare the garbage collector what there is, but for young garbage.

    Kernels bring tens of thousands of objects. To visit them took up to 27 ms, now and then.
    """
    gc.collect(1)
    gc.freeze()


async def _load_kernels(health: Health) -> None:
    """Load the kernels of the engine; events that come meanwhile are stored, and matched then."""
    executor = ThreadExecutor("kernels")
    health.warn(LOADING, "events are stored, and matched in a moment")
    try:
        loading = asyncio.create_task(executor.run(load_kernels, announced=False))
        done, _ = await asyncio.wait([loading], timeout=LOADING_SECONDS)
        if not done:
            LOG.info(
                "loading the kernels of the engine",
                reason="if this machine has not used them yet, they are compiled, once: a minute "
                "or so; events are stored meanwhile, and matched then",
            )
        await loading
        freeze_what_there_is()
    finally:
        executor.close()
        health.clear(LOADING)


async def _load_parsers(broker: Broker) -> None:
    """Load what parses documents and large batches; whoever sends the first must not pay for it."""
    executor = ThreadExecutor("parser")
    try:
        await executor.run(load_batch_decoders, broker.settings.largest_batch)
        await executor.run(broker.decoder.documents.load)
    finally:
        executor.close()


class Server(uvicorn.Server):
    """Uvicorn's server; it prints its address, and ends streams before it stops."""

    config: ServerConfig

    def __init__(self, config: ServerConfig, streams: OpenStreams, address: str) -> None:
        super().__init__(config)
        self._streams = streams
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening and print the address, for the process that started this one."""
        await super().startup(sockets)
        sys.stdout.write(f"tamis broker listening on {self._address}\n")
        sys.stdout.flush()
        LOG.info("listening", address=self._address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing new, finish what was begun, and stop."""
        LOG.info("stopping", streams=len(self._streams))
        for server in self.servers:
            server.close()
        loop, timeout = asyncio.get_running_loop(), self.config.settings.stop_timeout
        until = loop.time() + timeout
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._streams.stop()
        # What is left of the time is for requests.
        self.config.timeout_graceful_shutdown = max(1, int(until - loop.time()))
        await super().shutdown(sockets)

    def stop_after(self, failed: asyncio.Future[BrokerFailedError]) -> None:
        """Stop because a part of the broker has failed."""
        LOG.error("stopping after a failure", part=failed.result().part)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop gracefully at the first signal, immediately at the second; exit successfully."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def _config(app: object, settings: BrokerSettings) -> ServerConfig:
    try:
        config = ServerConfig(
            app,
            settings,
            http=TLSGate if settings.has_tls else HTTPProtocol,
            ws=WebSocketProtocol,
            loop="asyncio",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws_max_size=settings.largest_frame,
            ws_ping_interval=settings.ping_interval,
            ws_ping_timeout=settings.ping_interval,
            # Compression would allow a peer that chooses events to learn what else is in a frame.
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=settings.largest_header,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(settings.stop_timeout) + 1,
            backlog=BACKLOG,
            ssl_certfile=settings.tls_certificate,
            ssl_keyfile=settings.tls_key,
        )
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"tls_certificate {settings.tls_certificate} and tls_key {settings.tls_key} cannot be "
            f"used: {error.strerror or error}"
        ) from None
    return config


def _bind(settings: BrokerSettings) -> socket.socket:
    """Return a socket bound to the address in the settings."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends small responses at once (TCP_NODELAY) only if it knows that this is TCP.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"cannot listen on host {host}, port {port}: {reason}") from None
    return bound


def _address(settings: BrokerSettings, bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    scheme = "https" if settings.has_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
