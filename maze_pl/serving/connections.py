"""Connections of a server that are limited in number, and in the time that they may wait for their clients.

Each connection is an open file. Without limits, clients that connect and send nothing, or that do not read
their answers, would use up all files of the process, and others could not connect.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import resource
from dataclasses import dataclass, field
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

ACCEPTED_AT_ONCE: Final = 16
"""Largest number of connections that the event loop accepts before it serves others."""
_OTHER_FILES: Final = 128  # open files of the process besides connections, and connections that are being closed
_MOST_CONNECTIONS: Final = 10_000
_FEWEST_CONNECTIONS: Final = 16
_FEWEST_READ: Final = 2**14
"""Bytes that a client must read in the time limit while the server waits for it."""
_READ_AT_ONCE: Final = 2**12
"""Bytes of a connection that are read before others are served: a body in chunks of one byte takes 50 ms for these."""
_MOST_LOOKED_AT: Final = 100  # idle connections, when one is to be closed


def most_connections() -> int:
    """Return how many connections the limit of open files of the process allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_FEWEST_CONNECTIONS, min(_MOST_CONNECTIONS, limit - _OTHER_FILES))


@dataclass
class ConnectionLimits:
    """Limits that all connections of a server share.

    Attributes:
        client_seconds: Time in seconds in which the head of a request must arrive, and in which a client must
            read a part of its answers.
        most: Largest number of connections.
        is_open: Whether further connections are accepted.
        idle: Connections without a request, with the longest idle one first.
    """

    client_seconds: float
    most: int
    is_open: bool = True
    idle: dict[Connection, None] = field(default_factory=dict)

    def longest_idle(self) -> Connection | None:
        """Return the connection that has been without a request for the longest time; None if none is.

        Those that are sending an answer are left out if there are others among the longest idle ones.
        """
        for one in itertools.islice(self.idle, _MOST_LOOKED_AT):
            if not one.transport.get_write_buffer_size():
                return one
        return next(iter(self.idle), None)


class Connection(H11Protocol):
    """A connection that is closed if its client sends no complete head of a request, or does not read, in time.

    Uvicorn itself limits only the time from an answer to the first byte of the next request.

    The server waits for a client to read while more than a small part of its answers is unsent, and after the
    connection is closed.

    If there are too many connections, the one that has been without a request for the longest time is closed;
    the new one, if all have a request under way. One that is still sending an answer is spared if others are
    idle.

    Args:
        limits: The limits.
        options: Arguments of uvicorn.

    Attributes:
        is_closed: Whether the connection is closed. Requests have the connection as `state.connection`.
    """

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self.app_state = {**self.app_state, "connection": self}
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._unread = math.inf  # bytes at the last check for which the server has waited since
        self.is_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close a connection if there are too many."""
        super().connection_made(transport)
        transport.max_size = _READ_AT_ONCE  # type: ignore[attr-defined]  # of transports of asyncio
        if not self._limits.is_open:
            self._abort()
            return
        if len(self.connections) > self._limits.most:
            longest = self._limits.longest_idle()
            if longest is None:
                self._abort()
                return
            longest._abort()
        self._limits.idle[self] = None
        self._timer = self.loop.call_later(self._limits.client_seconds, self._close_if_idle)
        self._reader_timer = self.loop.call_later(self._limits.client_seconds, self._abort_if_unread)

    def data_received(self, data: bytes) -> None:
        """Handle what has arrived, and wait for the rest of a head, however slowly it comes."""
        super().data_received(data)
        if not self._has_no_request():
            self._limits.idle.pop(self, None)
            self._end_time_limit()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._limits.client_seconds, self._close_if_idle)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and close the connection; only close it if the request has been answered."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Note that there is no request from now on, unless the next one has arrived already."""
        super().on_response_complete()
        if self._has_no_request() and not self.is_closed:
            self._limits.idle.pop(self, None)
            self._limits.idle[self] = None  # at the end

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self.is_closed = True
        self._limits.idle.pop(self, None)
        self._end_time_limit()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Go on after the client has read."""
        self._unread = math.inf
        super().resume_writing()

    def _has_no_request(self) -> bool:
        """True if no head of a request has arrived that is not answered yet."""
        return self.cycle is None or self.cycle.response_complete

    def _end_time_limit(self) -> None:
        """End the time limit for a head."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_if_idle(self) -> None:
        """Close the connection if the head of a request has not arrived."""
        self._timer = None
        if self._has_no_request() and not self.transport.is_closing():
            self.transport.close()

    def _abort_if_unread(self) -> None:
        """Close the connection at once if the server waits for its client, which reads nothing or too little."""
        self._reader_timer = self.loop.call_later(self._limits.client_seconds, self._abort_if_unread)
        if not (self.flow.write_paused or self.transport.is_closing()):
            return
        unread = self.transport.get_write_buffer_size()
        if unread > self._unread - _FEWEST_READ:
            self._abort()
        self._unread = unread

    def _abort(self) -> None:
        """Close the connection at once, without the rest of its answers."""
        self.is_closed = True
        self._limits.idle.pop(self, None)
        self.transport.abort()
