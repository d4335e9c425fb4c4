"""Batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect

from maze_pl.serving.served_policy import CheckedRequest, ServedPolicy
from maze_pl_runtime import Decision


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its decision.

    Attributes:
        served: The policy that it was checked for.
        request: The request.
        has_left: Tells whether its client has closed the connection.
        decision: Receives the decision.
    """

    served: ServedPolicy
    request: CheckedRequest
    has_left: Callable[[], bool]
    decision: asyncio.Future[Decision]


class Batcher:
    """Decides in a thread; requests that arrive in the meantime are decided together.

    Nothing waits for further requests, so that a single one is answered immediately. Requests whose clients
    have given up are not decided: if clients that wait too long send a request again and again, the server would
    decide on nothing else.

    Args:
        max_batch: Largest number of observations that are decided together.
        on_batch: Called with the number of observations of each batch.
    """

    def __init__(self, max_batch: int, on_batch: Callable[[int], object]) -> None:
        self._max_batch = max_batch
        self._on_batch = on_batch
        self._waiting: list[Waiting] = []
        self._executor = ThreadPoolExecutor(1, "decisions")
        self._task: asyncio.Task[None] | None = None

    async def decide(self, served: ServedPolicy, request: CheckedRequest, has_left: Callable[[], bool]) -> Decision:
        """Decide on a request.

        Args:
            served: The policy that it was checked for.
            request: The request.
            has_left: Tells whether its client has closed the connection.

        Raises:
            ClientDisconnect: The client has done so, and nothing was decided.
        """
        waiting = Waiting(served, request, has_left, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await waiting.decision

    async def _work(self) -> None:
        """Decide until no request is waiting."""
        try:
            while self._waiting:
                batch = _present(self._next_batch())
                if batch:
                    await self._decide_together(batch)
        finally:
            self._task = None

    async def _decide_together(self, batch: Sequence[Waiting]) -> None:
        """Decide on a batch; each request gets its decision or an error."""
        requests = [waiting.request for waiting in batch]
        loop = asyncio.get_running_loop()
        results: Sequence[Decision | Exception]
        try:
            self._on_batch(sum(request.n_observations for request in requests))
            results = await loop.run_in_executor(self._executor, _results, batch[0].served, requests)
        except Exception as error:  # not of the policy; otherwise requests would get no answer
            results = [error] * len(batch)
        for waiting, result in zip(batch, results, strict=True):
            if waiting.decision.done():  # it was cancelled, as the server ends
                continue
            if isinstance(result, Exception):
                waiting.decision.set_exception(result)
            else:
                waiting.decision.set_result(result)

    def _next_batch(self) -> list[Waiting]:
        """Take the first request, and those that can be decided together with it."""
        kind = _kind(self._waiting[0])
        batch: list[Waiting] = []
        rest: list[Waiting] = []
        n_observations = 0
        for waiting in self._waiting:
            n_together = n_observations + waiting.request.n_observations
            if _kind(waiting) == kind and (not batch or n_together <= self._max_batch):
                batch.append(waiting)
                n_observations = n_together
            else:
                rest.append(waiting)
        self._waiting = rest
        return batch

    def close(self) -> None:
        """End the thread, after what it is deciding."""
        self._executor.shutdown()


def _present(batch: Sequence[Waiting]) -> list[Waiting]:
    """Return the requests whose clients wait for an answer, and end the others."""
    present: list[Waiting] = []
    for waiting in batch:
        if not waiting.has_left():
            present.append(waiting)
        elif not waiting.decision.done():
            waiting.decision.set_exception(ClientDisconnect())
    return present


def _kind(waiting: Waiting) -> tuple[Any, ...]:
    """Return that in which requests must be equal to be decided together."""
    return id(waiting.served), waiting.request.step_key, waiting.request.deterministic


def _results(served: ServedPolicy, requests: Sequence[CheckedRequest]) -> list[Decision | Exception]:
    """Decide on requests together, and on each half if that fails, as one of them may be the reason."""
    try:
        return [*served.decide(requests)]
    except Exception as error:  # of the policy
        if len(requests) == 1:
            return [error]
    middle = len(requests) // 2
    return [*_results(served, requests[:middle]), *_results(served, requests[middle:])]
