"""Replay buffer of one rank: the transitions of all sub-steps, and minibatches drawn from them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.collect.replay.transitions import Transitions
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout, TransitionBatch
from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import StepSpec
from maze_pl.records.columns import Columns


class Drawn(NamedTuple):
    """Minibatches drawn from a buffer.

    Attributes:
        acts: By step key, [U, B, ...].
        reprioritise: Takes the TD errors [U, B] of these acts by step key.
    """

    acts: dict[StepKey, TransitionBatch]
    reprioritise: Callable[[dict[StepKey, Tensor]], None]


class _Part(NamedTuple):
    """Minibatches of a sub-step, as far as one storage has provided them.

    Attributes:
        acts: [U, B_part, ...].
        places: [U, B_part] places of the acts in the storage.
    """

    acts: TransitionBatch
    places: Array


class ReplayBuffer:
    """Storages of transitions: for each sub-step a ring, and one for demonstrations if they are stored separately.

    Args:
        steps: Sub-steps of the specification.
        n_envs: Number of environments that are collected from.
        gamma: Discount of one environment step.
        make_storage: Makes the storage of a sub-step that has a capacity in transitions.
        capacity: Capacity of each ring.
        n_demonstrated: Acts of a minibatch that are drawn from demonstrations; 0 stores these in the rings.

    Attributes:
        generator: Random generator that draws minibatches.
        has_errors: True once the algorithm has reported TD errors.
    """

    def __init__(
        self,
        steps: Mapping[StepKey, StepSpec],
        n_envs: int,
        gamma: float,
        make_storage: Callable[[StepSpec, int], ReplayStorage],
        capacity: int,
        n_demonstrated: int,
    ) -> None:
        self._steps = steps
        self._make_storage = make_storage
        self._capacity = capacity
        self._n_demonstrated = n_demonstrated
        self._storages = {key: [make_storage(step, capacity)] for key, step in steps.items()}
        self._transitions = Transitions(n_envs, gamma, {key: step.n_slots for key, step in steps.items()})
        self.generator = torch.Generator()
        self.has_errors = False

    def __len__(self) -> int:
        """Number of transitions of all sub-steps, without separate demonstrations."""
        return sum(len(ring) for ring, *_ in self._storages.values())

    # ------------------------------------------------------------------------------------------------- content

    def add(self, rollout: Rollout) -> None:
        """Store the transitions of a rollout, which may be on a device."""
        if rollout.rows.reward.device.type != "cpu":
            rollout = rollout.to("cpu")
        for key, columns in self._transitions.of(rollout).items():
            self._storages[key][0].add(columns)

    def add_demonstrations(self, key: StepKey, columns: Columns, lengths: Array | None) -> None:
        """Store demonstrated acts of a sub-step, in the ring or separately.

        Args:
            key: Step key.
            columns: Fields of a `TransitionBatch` of n acts.
            lengths: Number of acts of each episode; None if successors of acts are unknown.

        Raises:
            ValueError: The ring is too small for them.
        """
        n = len(columns["agent_id"])
        if self._n_demonstrated:
            self._storages[key].append(self._make_storage(self._steps[key], max(1, n)))
        elif n > self._capacity:
            room = f"replay_buffer_size={self._capacity}: raise it, or give a demonstration_share"
            raise ValueError(f"{n} demonstrated acts of sub-step {key!r} are more than {room}")
        streams = np.arange(n)
        if lengths is not None:
            episode = np.repeat(np.arange(len(lengths)), lengths) * (columns["agent_id"].max(initial=0) + 1)
            streams = episode + columns["agent_id"]
        self._storages[key][-1].add({**columns, "stream": -1 - streams, "is_first": np.zeros(n, np.bool_)})

    # ------------------------------------------------------------------------------------------------- drawing

    def set_exponents(self, alpha: float, beta: float) -> None:
        """Set the exponents of priorities and importance weights; see `ReplayStorage.set_exponents`."""
        for storages in self._storages.values():
            for storage in storages:
                storage.set_exponents(alpha, beta)

    def draw(self, n_updates: int, batch_size: int) -> Drawn:
        """Draw minibatches of all sub-steps.

        Args:
            n_updates: Number of minibatches.
            batch_size: Acts of each sub-step in a minibatch.
        """
        drawn = {key: self._draw(storages, n_updates, batch_size) for key, storages in self._storages.items()}
        acts = {key: _joined(parts) for key, parts in drawn.items()}
        return Drawn(acts, partial(self._reprioritise, drawn))

    def _draw(self, storages: list[ReplayStorage], n_updates: int, batch_size: int) -> list[_Part]:
        """Draw minibatches of a sub-step; an empty storage leaves its share to the other."""
        sizes = [batch_size - self._n_demonstrated, self._n_demonstrated]
        if not all(map(len, storages)):
            sizes = [batch_size if len(one) else 0 for one in storages]
        parts = []
        for storage, size in zip(storages, sizes, strict=False):
            parts.append(_Part(*storage.sample(n_updates, size, self.generator)))
        return parts

    def _reprioritise(self, drawn: dict[StepKey, list[_Part]], errors: dict[StepKey, Tensor]) -> None:
        """Pass the TD errors of drawn acts on to their storages.

        Args:
            drawn: Parts of the minibatches, by step key.
            errors: By step key, [U, B].

        Raises:
            ValueError: The errors of a sub-step are missing, or have another shape.
        """
        for key, parts in drawn.items():
            expected = len(parts[0].places), sum(part.places.shape[1] for part in parts)
            found = tuple(errors[key].shape) if key in errors else None
            if found != expected and expected[1]:
                came = "none" if found is None else f"a tensor of shape {list(found)}"
                remedy = "give the TD errors [U, B] of all acts of the batch"
                raise ValueError(f"reprioritise wants errors {list(expected)} of {key!r}, got {came}: {remedy}")
        self.has_errors = True
        for key, of_key in errors.items():
            remaining = of_key
            for storage, part in zip(self._storages[key], drawn[key], strict=True):
                of_part, remaining = remaining.tensor_split([part.places.shape[1]], 1)
                storage.reprioritise(part.places, of_part)

    # --------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return the content and the state of the generator: tensors and plain values."""
        storages = {key: [storage.state_dict() for storage in kept] for key, kept in self._storages.items()}
        return {"storages": storages, "open": self._transitions.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; saved rows give the capacity for demonstrations.

        The rings are those that the buffer has, as there may be no room on their device for others.

        Raises:
            KeyError: A part is missing.
            ValueError: A part is damaged. The rings were not changed.
        """
        loaded: dict[StepKey, list[ReplayStorage]] = {}
        for key in self._steps:
            kept = state["storages"][key]
            loaded[key] = self._storages[key][:1]
            if self._n_demonstrated:
                n_kept = len(kept[-1]["columns"]["reward"])
                loaded[key].append(self._storage_of_demonstrations(key, n_kept))
            for storage, saved in zip(loaded[key], kept, strict=True):
                storage.check_state(saved)
        for key, acts in self._transitions.opened(state["open"]).items():
            _check_spaces(key, acts, self._steps[key])
        generator = state["generator"]
        _check_generator(generator)
        self._transitions.load_state_dict(state["open"])
        self.generator.set_state(generator)
        for key, storages in loaded.items():
            for storage, saved in zip(storages, state["storages"][key], strict=True):
                storage.load_state_dict(saved)
        self._storages = loaded

    def _storage_of_demonstrations(self, key: StepKey, n: int) -> ReplayStorage:
        """Return storage for n separate demonstrations: the present one if it has their size."""
        capacity = max(1, n)
        for storage in self._storages[key][1:]:
            if storage.capacity == capacity:
                return storage
        return self._make_storage(self._steps[key], capacity)


def n_separate_of(state: Mapping[str, Any]) -> int:
    """Return the number of separate demonstrations in the state of a buffer: the largest one of all sub-steps."""
    separate = [kept[1] for kept in state["storages"].values() if len(kept) > 1]
    return max((len(saved["columns"]["reward"]) for saved in separate), default=0)


def _check_spaces(key: StepKey, acts: Columns, step: StepSpec) -> None:
    """Raise ValueError if open acts [n] of a state have observations or actions of other spaces."""
    n = len(acts["env"])
    for name, space in (("observation", step.observation_space), ("action", step.action_space)):
        parts = acts[name]
        is_complete = isinstance(parts, dict) and parts.keys() == space.spaces.keys()
        if not is_complete or not all(_are_in(space[part], values, n) for part, values in parts.items()):
            raise ValueError(f"its open acts of {key!r} have no {name} of {space}")


def _are_in(space: spaces.Space[Any], values: Any, n: int) -> bool:
    """True if values are an array of n values with the shape and a type of a space."""
    if not isinstance(values, np.ndarray) or values.shape != (n, *(space.shape or ())):
        return False
    return np.can_cast(values.dtype, np.dtype(space.dtype), "same_kind")


def _check_generator(state: Any) -> None:
    """Raise ValueError if a random generator cannot have a state."""
    try:
        torch.Generator().set_state(state)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"the state of its random generator is damaged: {error}") from error


def _joined(parts: list[_Part]) -> TransitionBatch:
    """Join the acts of the parts of minibatches, [U, B, ...]."""
    if len(parts) == 1:
        return parts[0].acts
    acts = [part.acts for part in parts]
    joined: TransitionBatch = mapped(lambda *tensors: torch.cat(tensors, 1), *acts)
    return joined
