"""Running a server until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

import uvicorn

from maze_pl.config.search_path import ConfigurationError
from maze_pl.serving.app import LOAD_ERRORS, DecisionServer
from maze_pl.serving.connections import ACCEPTED_AT_ONCE, Connection, ConnectionLimits, most_connections

_LOGGER: Final = logging.getLogger(__name__)
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_FINISH: Final = 30  # for requests under way when the server is stopped
_OF_PORT: Final = (errno.EADDRINUSE, errno.EACCES)  # faults that another port may not have
_MOST_WAITING: Final = 2048  # connections that the kernel keeps until they are accepted


class _Server(uvicorn.Server):
    """Server that leaves signals to `serve`, and reports when it listens.

    Args:
        config: Options of uvicorn.
        limits: Limits of its connections.
        on_ready: Called when the server listens.
    """

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._limits = limits
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, print the address, and report that the server listens."""
        await super().startup(sockets)
        assert sockets is not None
        for one in sockets:
            one.listen(_MOST_WAITING)  # `backlog` also bounds how many are accepted at once, so it is small
        address, port = sockets[0].getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        sys.stdout.write(f"serving on http://{shown}:{port} (description: /openapi.json); TERM ends, HUP reloads\n")
        sys.stdout.flush()
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse further connections, close idle ones, and answer requests under way."""
        self._limits.is_open = False
        await super().shutdown(sockets)

    def end_at_once(self) -> None:
        """Close all connections without answering requests under way."""
        self.force_exit = True
        for one in [*self.server_state.connections]:
            one.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing; uvicorn would end the process by the signal afterwards."""
        yield


def serve(
    server: DecisionServer,
    host: str,
    port: int,
    hangups: Collection[int] = (),
    on_stop: Callable[[], object] | None = None,
) -> int:
    """Answer requests until INT or TERM; HUP reloads the bundle.

    On a signal, the server takes no more requests, answers those under way and returns. On a second one, it
    answers no more. A third one ends the process.

    Args:
        server: The application.
        host: Address to listen on.
        port: Port; 0 for a free one.
        hangups: HUP signals that came during the start, when the bundle may have been read already;
            after any, it is reloaded once the server is ready.
        on_stop: Called on each INT and TERM, in the event loop; ends a reload, for which the server waits.

    Returns:
        The signal that ended the server.

    Raises:
        ConfigurationError: The address cannot be used.
    """
    return asyncio.run(_serve(server, host, port, hangups, on_stop))


def _config_of(server: DecisionServer, limits: ConnectionLimits, host: str, port: int) -> uvicorn.Config:
    """Return the options of uvicorn."""
    return uvicorn.Config(
        server.app,
        host=host,
        port=port,
        log_level="error",  # clients could fill the log with warnings
        access_log=False,
        http=partial(Connection, limits),  # type: ignore[arg-type]  # uvicorn only calls it
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_SECONDS_TO_FINISH,
        server_header=False,
    )


def _socket_of(config: uvicorn.Config) -> socket.socket:
    """Return a socket that is bound to the address.

    Raises:
        ConfigurationError: The address cannot be used.
    """
    host, port = config.host, config.port
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, TypeError) as error:  # a TypeError of names that cannot be encoded
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno in _OF_PORT:
            fault, remedy = f"port {port} of {host}", "another port by --port"
        else:
            fault, remedy = f"the address {host}", "an address of this machine by --host"
        raise ConfigurationError(f"{fault} cannot be used: {reason}; choose {remedy}") from None
    # Connections inherit it; without it, the kernel delays the end of an answer by 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


async def _serve(
    server: DecisionServer,
    host: str,
    port: int,
    hangups: Collection[int],
    on_stop: Callable[[], object] | None,
) -> int:
    """Run a server in the event loop; see `serve`."""
    limits = ConnectionLimits(server.options.body_seconds, most_connections())
    config = _config_of(server, limits, host, port)
    received: list[int] = []
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        if len(reloads) > 1:  # the last one has not begun, and will read what is there then
            return
        task = asyncio.ensure_future(_reload(server))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    def reload_if_changed() -> None:
        if hangups:
            reload()

    running = _Server(config, limits, reload_if_changed)

    def stop(number: int) -> None:
        received.append(number)
        running.should_exit = True
        if on_stop is not None:
            on_stop()
        if len(received) > 1:
            running.end_at_once()
            for one in _STOPPING:
                loop.remove_signal_handler(one)
                signal.signal(one, signal.SIG_DFL)

    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, reload)
    await running.serve(sockets=[_socket_of(config)])
    return received[0] if received else 0


async def _reload(server: DecisionServer) -> None:
    """Reload the bundle, and report the result."""
    try:
        done = await server.reload()
    except LOAD_ERRORS as error:
        _LOGGER.error("the bundle in use stays: %s", error)
        return
    except Exception:  # a fault of this server
        _LOGGER.exception("the bundle in use stays")
        return
    sys.stdout.write(f"reloaded: sha256 {done['sha256']}, {done['ended_episodes']} episodes ended\n")
    sys.stdout.flush()
