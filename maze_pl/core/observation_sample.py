"""Samples of the observations that a policy has learned from, to be compared with later ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch, Rollout, TrajectoryBatch
from maze_pl.core.policy import Array
from maze_pl.core.seeding import derive_seed

_ROWS_OVERALL: Final = 4096
_ROWS_RECENT: Final = 1024
_ROWS_PER_BATCH: Final = 64
_EVERY: Final = 16
_MOST_ELEMENTS: Final = 64
_MOST_WAITING: Final = 2**26
"""Bytes of observations that may stay on a device, such as those of images in a long epoch."""


class _Waiting(NamedTuple):
    """Chosen acts of a sub-step on a device.

    Attributes:
        step_key: The sub-step.
        rows: Observation -> [n, elements], the numbers that are looked at.
        sizes: Observation -> number of its elements, of which some are looked at.
    """

    step_key: StepKey
    rows: dict[str, torch.Tensor]
    sizes: dict[str, int]


class ObservationSample:
    """Random samples of observations: of the whole training, and of its end.

    For each observation of each sub-step, two samples are kept: 4,096 values from the whole
    training, each equally likely (Vitter 1985, algorithm R), and the last 1,024 values, which reflect
    the final policy. 64 acts of each sub-step in a batch are considered; of batches that are drawn from a
    buffer or a data set, only every 16th batch. Observations of more than 64 numbers are reduced to
    64 evenly spaced ones.

    Random choices depend only on how often observations were added, so a resumed run continues the
    sample. What is chosen on an accelerator stays there until `fetch`, as fetching waits for it;
    the attributes do not contain it before. Choosing waits for the accelerator only where a rollout has
    rows without acts, as with several sub-steps or agents collected on the host: their acts are counted.

    Attributes:
        overall: (Step key, observation) -> [n, elements] float32 of the whole training.
        recent: The same of its end, unordered.
        places: (Step key, observation) -> [elements] positions in the flattened observation.
    """

    def __init__(self) -> None:
        self.overall: dict[tuple[StepKey, str], Array] = {}
        self.recent: dict[tuple[StepKey, str], Array] = {}
        self.places: dict[tuple[StepKey, str], Array] = {}
        self._n_offered: dict[tuple[StepKey, str], int] = {}
        self._n_batches = 0  # calls of `add`, one for each sub-step of a batch; seeds the choices
        self._n_drawn = 0  # batches of acts that were drawn from a buffer or a data set
        self._waiting: list[_Waiting] = []
        self._n_waiting_bytes = 0

    @classmethod
    def of(cls, records: Iterable[Any]) -> ObservationSample:
        """Return the sample of recorded episodes, for agents that were trained without one.

        Args:
            records: Space records (`SpacesTrajectoryRecord`), as `Trajectory.spaces` of a rollout.
        """
        sample = cls()
        for record in records:
            for step_key, observations in record.observation.items():
                sample.add(step_key, {name: np.asarray(values) for name, values in observations.items()})
        return sample

    def add_batch(self, batch: object) -> None:
        """Add observations of a training batch; batches without any, as of populations, add nothing."""
        if isinstance(batch, Rollout):
            for step_key, segment in batch.segments.items():
                active = None if batch.flat or batch.dense else segment.active.flatten()
                self._add_tensors(step_key, segment.observation, segment.active.dim(), active)
        elif isinstance(batch, ReplayBatch | TrajectoryBatch):
            self._n_drawn += 1
            if self._n_drawn % _EVERY != 1:
                return
            for step_key, acts in batch.acts.items():
                self._add_tensors(step_key, acts.observation, acts.agent_id.dim(), None)

    def _add_tensors(
        self,
        step_key: StepKey,
        observation: Mapping[str, torch.Tensor],
        n_dims: int,
        active: torch.Tensor | None,
    ) -> None:
        """Choose some acts of a batch, and add their observations.

        Args:
            step_key: The sub-step.
            observation: Name -> [*batch, ...].
            n_dims: Number of batch dimensions.
            active: [product of the batch dimensions] whether each act exists; None if all do.
        """
        flat = {name: tensor.flatten(0, n_dims - 1) for name, tensor in observation.items()}
        n_acts = len(next(iter(flat.values()))) if flat else 0
        existing = None if active is None else active.nonzero()[:, 0]
        n_existing = n_acts if existing is None else len(existing)
        if n_existing == 0:
            return
        device = next(iter(flat.values())).device
        chosen = self._choices(step_key, n_existing, device)
        if existing is not None:
            chosen = existing[chosen]
        rows = {}
        sizes = {}
        for name, tensor in flat.items():
            acts = tensor[chosen].flatten(1) if tensor.dim() > 1 else tensor[chosen].unsqueeze(1)
            sizes[name] = acts.shape[1]
            rows[name] = _looked_at(acts)
        self._waiting.append(_Waiting(step_key, rows, sizes))
        self._n_waiting_bytes += sum(tensor.nbytes for tensor in rows.values())
        if device.type == "cpu" or self._n_waiting_bytes > _MOST_WAITING:
            self.fetch()

    def _choices(self, step_key: StepKey, n_acts: int, device: torch.device) -> torch.Tensor:
        """Choose some of n acts, [64] int64.

        On an accelerator, they lie at equal distances from each other, so that nothing has to be
        copied to it: the first act and the distance are random.
        """
        generator = self._generator(step_key, "acts", len(self._waiting))
        if device.type == "cpu":
            return torch.from_numpy(generator.integers(0, n_acts, _ROWS_PER_BATCH))
        first, distance = generator.integers(0, n_acts), generator.integers(1, max(n_acts, 2))
        return (int(first) + int(distance) * torch.arange(_ROWS_PER_BATCH, device=device)) % n_acts

    def fetch(self) -> None:
        """Add what was chosen on a device since the last call, and wait for it."""
        for step_key, rows, sizes in self._waiting:
            self._add_rows(step_key, {name: _array(tensor) for name, tensor in rows.items()}, sizes)
        self._waiting.clear()
        self._n_waiting_bytes = 0

    def add(self, step_key: StepKey, observation: Mapping[str, Array]) -> None:
        """Add observations of a sub-step.

        Args:
            step_key: The sub-step.
            observation: Name -> [n, ...].
        """
        rows = {}
        sizes = {}
        for name, values in observation.items():
            flat = values.reshape(len(values), -1)
            sizes[name] = flat.shape[1]
            rows[name] = flat[:, places_of(flat.shape[1])]
        self._add_rows(step_key, rows, sizes)

    def _add_rows(self, step_key: StepKey, rows: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Add the numbers that are looked at; see `_Waiting` for the arguments."""
        for name, values in rows.items():
            key = step_key, name
            if key not in self.places:
                self.places[key] = places_of(sizes[name])
                empty = np.empty((0, len(self.places[key])), np.float32)
                self.overall[key] = self.recent[key] = empty
                self._n_offered[key] = 0
            own = rounded(values)
            self._offer(key, own)
            self.recent[key] = np.concatenate([self.recent[key], own])[-_ROWS_RECENT:]
        self._n_batches += 1

    def _offer(self, key: tuple[StepKey, str], rows: Array) -> None:
        """Replace random rows in the sample of the whole training."""
        n_free = _ROWS_OVERALL - len(self.overall[key])
        if n_free > 0:
            self.overall[key] = np.concatenate([self.overall[key], rows[:n_free]])
            self._n_offered[key] += len(rows[:n_free])
            rows = rows[n_free:]
        if len(rows) == 0:
            return
        numbers = self._n_offered[key] + np.arange(len(rows))
        places = self._generator(*key).integers(0, numbers + 1)
        is_taken = places < _ROWS_OVERALL
        self.overall[key][places[is_taken]] = rows[is_taken]
        self._n_offered[key] += len(rows)

    def _generator(self, step_key: StepKey, name: str, n_waiting: int = 0) -> np.random.Generator:
        """Generator of the choices in the batch after the next `n_waiting` ones."""
        n_batches = self._n_batches + n_waiting
        return np.random.default_rng(derive_seed("observation_sample", str(step_key), name, n_batches))

    def state_dict(self) -> dict[str, Any]:
        """Return the sample as tensors and plain values, after fetching what is on a device."""
        self.fetch()
        observations = []
        for key, overall in self.overall.items():
            described: dict[str, Any] = {"step_key": key[0], "name": key[1], "n_offered": self._n_offered[key]}
            for name, array in (("overall", overall), ("recent", self.recent[key]), ("places", self.places[key])):
                described[name] = torch.from_numpy(array.copy())
            observations.append(described)
        return {"n_batches": self._n_batches, "n_drawn": self._n_drawn, "observations": observations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state_dict`."""
        self._waiting.clear()
        self._n_waiting_bytes = 0
        self._n_batches, self._n_drawn = int(state["n_batches"]), int(state["n_drawn"])
        for described in state["observations"]:
            key = described["step_key"], described["name"]
            self._n_offered[key] = int(described["n_offered"])
            for name in ("overall", "recent", "places"):
                getattr(self, name)[key] = described[name].numpy().copy()


def _array(observations: torch.Tensor) -> Array:
    """Return observations as an array; numpy has no bfloat16."""
    is_foreign = observations.dtype == torch.bfloat16
    return (observations.float() if is_foreign else observations).cpu().numpy()


def rounded(values: Array) -> Array:
    """Return numbers in the precision of the sample; only such numbers can be compared with it."""
    return values.astype(np.float32)


def _looked_at(acts: torch.Tensor) -> torch.Tensor:
    """Select the numbers of some acts [n, elements] at `places_of`, without copying places to their device."""
    n_elements = acts.shape[1]
    if n_elements <= _MOST_ELEMENTS:
        return acts
    places = torch.arange(_MOST_ELEMENTS, device=acts.device, dtype=torch.float64)
    places = (places * ((n_elements - 1) / (_MOST_ELEMENTS - 1))).long()
    places[-1].fill_(n_elements - 1)  # which rounding may miss
    return acts.index_select(1, places)


def places_of(n_elements: int) -> Array:
    """Return the positions of the numbers that are looked at in a flattened observation."""
    n_places = min(n_elements, _MOST_ELEMENTS)
    return np.linspace(0, max(n_elements - 1, 0), n_places).astype(np.int64)
