"""Metrics of a server in Prometheus's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from maze_pl.serving.decoding import Array

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MOST_OPTIONS: Final = 1000  # of a head, whose decisions are counted by option


class ServerMetrics:
    """Counts requests, their latencies, and decisions by action.

    Attributes:
        content_type: Type of the text that `text` returns.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self._registry, "namespace": "maze_pl"}
        self._requests = Counter("requests", "Requests by path and status.", ["path", "status"], **options)
        self._seconds = Histogram("request_seconds", "Time to answer a request.", ["path"], buckets=_SECONDS, **options)
        self._batches = Histogram("batch_rows", "Observations decided together.", buckets=_ROWS, **options)
        names = ["step_key", "head", "option"]
        self._decisions = Counter("decisions", "Decisions by option of discrete heads.", names, **options)
        self._episodes = Gauge("episodes", "Episodes on the server.", **options)
        self._policy = Gauge("policy_info", "The bundle that decides.", ["sha256"], **options)
        self._reloads = Counter("reloads", "Attempts to reload the bundle.", ["outcome"], **options)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, n_observations: int) -> None:
        """Count observations that are decided together."""
        self._batches.observe(n_observations)

    def count_decisions(self, step_key: Any, spaces: Mapping[str, Any], action: Mapping[str, Array]) -> None:
        """Count the decisions of a request.

        Args:
            step_key: The sub-step.
            spaces: Head -> its space in the manifest.
            action: Head -> [n, ...].
        """
        for head, space in spaces.items():
            is_counted = space["type"] == "discrete" and space["n"] <= _MOST_OPTIONS
            if not is_counted:
                self._decisions.labels(str(step_key), head, "any").inc(len(action[head]))
                continue
            options, counts = np.unique(action[head], return_counts=True)
            for option, count in zip(options.tolist(), counts.tolist(), strict=True):
                self._decisions.labels(str(step_key), head, str(option)).inc(count)

    def count_reload(self, is_done: bool) -> None:
        """Count an attempt to reload the bundle."""
        self._reloads.labels("done" if is_done else "refused").inc()

    def name_policy(self, digest: str) -> None:
        """Name the bundle that decides from now on."""
        self._policy.clear()
        self._policy.labels(digest).set(1)

    def text(self, n_episodes: int) -> bytes:
        """Return all metrics."""
        self._episodes.set(n_episodes)
        return generate_latest(self._registry)
