"""Batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from maze_pl.serving.served_policy import CheckedRequest, ServedPolicy
from maze_pl_runtime import Decision

Waiting = tuple[ServedPolicy, CheckedRequest, "asyncio.Future[Decision]"]


class Batcher:
    """Decides in a thread; requests that arrive in the meantime are decided together.

    Nothing waits for further requests, so that a single one is answered immediately.

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

    async def decide(self, served: ServedPolicy, request: CheckedRequest) -> Decision:
        """Decide on a request by the policy that it was checked for."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting.append((served, request, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        """Decide until no request is waiting."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = self._next_batch()
                served = batch[0][0]
                requests = [request for _, request, _ in batch]
                self._on_batch(sum(request.n_observations for request in requests))
                results = await loop.run_in_executor(self._executor, _results, served, requests)
                for (_, _, future), result in zip(batch, results, strict=True):
                    if future.done():  # the client is gone
                        continue
                    if isinstance(result, Exception):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
        finally:
            self._task = None

    def _next_batch(self) -> list[Waiting]:
        """Take the first request, and those that can be decided together with it."""
        served, first, _ = self._waiting[0]
        kind = (id(served), first.step_key, first.deterministic)
        batch: list[Waiting] = []
        rest: list[Waiting] = []
        n_observations = 0
        for entry in self._waiting:
            request = entry[1]
            fits = not batch or n_observations + request.n_observations <= self._max_batch
            if (id(entry[0]), request.step_key, request.deterministic) == kind and fits:
                batch.append(entry)
                n_observations += request.n_observations
            else:
                rest.append(entry)
        self._waiting = rest
        return batch

    def close(self) -> None:
        """End the thread, after what it is deciding."""
        self._executor.shutdown()


def _results(served: ServedPolicy, requests: Sequence[CheckedRequest]) -> list[Decision | Exception]:
    """Decide on requests together, and one by one if that fails, as one of them may be the reason."""
    try:
        return [*served.decide(requests)]
    except Exception as error:  # of the policy
        if len(requests) == 1:
            return [error]
    return [_results(served, [request])[0] for request in requests]
