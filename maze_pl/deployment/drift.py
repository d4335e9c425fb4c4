"""Drift: observations in deployment that differ from those of training."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.core.observation_sample import ObservationSample, places_of, rounded
from maze_pl.core.policy import Array

_LOWEST, _HIGHEST = 0.001, 0.999
_N_BINS: Final = 10
_SMALLEST_SHARE: Final = 1e-4
_CHUNK: Final = 256


@dataclass(frozen=True)
class ObservationDrift:
    """Drift of one observation; of more than 64 numbers, 64 evenly spaced ones are compared.

    Attributes:
        step_key: The sub-step.
        name: The observation.
        n_observations: Number of observations compared.
        outside: Share of the numbers outside of the range from the 0.1% to the 99.9% quantile of
            training, about 0.002 without drift.
        stability: Population stability index of the number that differs most from the end of
            training: below 0.1 there is hardly a difference, above 0.25 a large one.
        element: Position of that number in the flattened observation.
    """

    step_key: StepKey
    name: str
    n_observations: int
    outside: float
    stability: float
    element: int


def population_stability_index(expected: Array, actual: Array) -> Array:
    """Population stability index of two distributions over the same bins.

        PSI = sum over bins of (actual - expected) * ln(actual / expected)

    Siddiqi 2006, Credit Risk Scorecards, chapter 8; Yurdakul 2018, Statistical Properties of
    Population Stability Index. Departs from the sources in that shares below 0.0001 are raised to
    it, as the logarithm of 0 is infinite.

    Args:
        expected: [..., bins] shares in training.
        actual: [..., bins] shares now.
    """
    before = np.maximum(expected, _SMALLEST_SHARE)
    now = np.maximum(actual, _SMALLEST_SHARE)
    return np.asarray(((now - before) * np.log(now / before)).sum(-1))


class _Watched:
    """Counts of one observation.

    Args:
        overall: [n, elements] sample of the whole training.
        recent: [m, elements] sample of its end.
        places: [elements] positions in the flattened observation.

    Attributes:
        places: As above.
        n_observations: Number of observations that were evaluated.
        other_size: Number of elements of an observation that does not fit the sample; 0 if all fit.
    """

    def __init__(self, overall: Array, recent: Array, places: Array) -> None:
        self.places = places
        self._low, self._high = np.quantile(overall, [_LOWEST, _HIGHEST], axis=0)  # [elements]
        self._edges = [bin_edges(column) for column in recent.T]
        counted = [
            np.bincount(np.searchsorted(edges, column, "right"), minlength=len(edges) + 1)
            for edges, column in zip(self._edges, recent.T, strict=True)
        ]
        self._expected = [counts / counts.sum() for counts in counted]
        self._waiting: list[Array] = []
        self._size = -1  # of observations that fit
        self.other_size = 0
        self.clear()

    def clear(self) -> None:
        """Forget all counts."""
        self._waiting.clear()
        self.n_observations = 0
        self._n_outside = 0
        self._counts = [np.zeros(len(edges) + 1, np.int64) for edges in self._edges]

    def add(self, observation: Array) -> None:
        """Add one observation; it is evaluated later, together with others."""
        if observation.size != self._size:
            if not np.array_equal(places_of(observation.size), self.places):
                self.other_size = observation.size
                return
            self._size = observation.size
        self._waiting.append(observation.ravel()[self.places])
        if len(self._waiting) >= _CHUNK:
            self._count()

    def _count(self) -> None:
        if not self._waiting:
            return
        rows = rounded(np.array(self._waiting))  # [n, elements]
        self._waiting.clear()
        self.n_observations += len(rows)
        self._n_outside += int(((rows < self._low) | (rows > self._high)).sum())
        for edges, counts, column in zip(self._edges, self._counts, rows.T, strict=True):
            counts += np.bincount(np.searchsorted(edges, column, "right"), minlength=len(counts))

    def drift(self, step_key: StepKey, name: str) -> ObservationDrift:
        """Compare all observations so far."""
        self._count()
        n = self.n_observations
        if n == 0 or len(self.places) == 0:
            return ObservationDrift(step_key, name, n, 0.0, 0.0, 0)
        indices = []
        for expected, counts in zip(self._expected, self._counts, strict=True):
            indices.append(float(population_stability_index(expected, counts / n)))
        worst = int(np.argmax(indices))
        outside = self._n_outside / (n * len(self.places))
        return ObservationDrift(step_key, name, n, outside, indices[worst], int(self.places[worst]))


def bin_edges(values: Array) -> Array:
    """Return the deciles of values, each once; of a constant, the bins below, at and above it.

    Args:
        values: [n] values in training.
    """
    lowest, highest = values.min(), values.max()
    if lowest == highest:
        return np.array([lowest, np.nextafter(lowest, np.inf)], np.float64)
    shares = np.arange(1, _N_BINS) / _N_BINS
    return np.unique(np.quantile(values.astype(np.float64), shares, method="inverted_cdf"))


class DriftMonitor:
    """Compares the observations of a policy with those of its training.

    Args:
        sample: Observations of training; None for nothing to compare with.
    """

    def __init__(self, sample: ObservationSample | None) -> None:
        self._watched: dict[StepKey, dict[str, _Watched]] = {}
        if sample is None:
            return
        for (step_key, name), overall in sample.overall.items():
            key = step_key, name
            self._watched.setdefault(step_key, {})[name] = _Watched(overall, sample.recent[key], sample.places[key])

    def add(self, step_key: StepKey, observation: dict[str, Array]) -> None:
        """Add an observation of a sub-step: name -> [1, ...]."""
        for name, watched in self._watched.get(step_key, {}).items():
            if name in observation:
                watched.add(observation[name])

    def report(self, restart: bool) -> list[ObservationDrift]:
        """Return the drift of all observations since the start, or the last restart.

        Args:
            restart: Whether to count from now on.

        Raises:
            ValueError: There is no sample, it is empty, or its observations are of other sizes.
        """
        if not self._watched:
            kept = "use AgentDeployment.from_run of a run that keeps one"
            remedy = f"{kept}, or ObservationSample.of(records) as training_observations"
            raise ValueError(f"there is no sample of the observations of training: {remedy}")
        found = []
        for step_key, by_name in self._watched.items():
            for name, watched in by_name.items():
                if watched.other_size:
                    observed = f"observation {name!r} of sub-step {step_key!r}"
                    fault = f"has {watched.other_size} numbers, which does not fit the sample of training"
                    remedy = "give training_observations that were recorded with these wrappers, in these sizes"
                    raise ValueError(f"{observed} {fault}: {remedy}")
                found.append(watched.drift(step_key, name))
                if restart:
                    watched.clear()
        return found
