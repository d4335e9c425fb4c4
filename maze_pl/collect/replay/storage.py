"""Replay storage: a ring buffer of the latest transitions of a sub-step, of fixed size."""

import os
import tempfile
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor

from maze_pl.collect.replay.latest_transitions import LatestTransitions
from maze_pl.collect.replay.placement import bytes_of_values
from maze_pl.collect.replay.sum_tree import SumTree
from maze_pl.collect.state_tensors import tensor_views
from maze_pl.core.batches import TransitionBatch
from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import StepSpec
from maze_pl.envs.vector.vector_env import allocate_tree
from maze_pl.records.columns import Columns
from maze_pl.system.atomic_files import output_folder


class ReplayStorage:
    """The latest transitions of a sub-step, from which minibatches are drawn.

    Sampling draws runs of `run_length` consecutive transitions of a stream. If a run ends early,
    with its episode or at the latest known transition, another run continues it. The return of each
    act is the n-step return over `n_step` acts, with the rewards R and discounts D of the
    transitions,

        reward = R_0 + D_0 R_1 + D_0 D_1 R_2 + ...,    discount = D_0 D_1 D_2 ...,

    or over fewer acts if the episode ends early or no more transitions are known. The next
    observation is the one after the last of these acts, so that the return lacks no rewards; entropy
    bonuses of the states in between are left out.

    With `alpha`, transition i is drawn with probability P(i) = p_i ** alpha / sum_k p_k ** alpha,
    where p_i is the size of the TD error at its last use, and the largest size so far for new
    transitions. Sampling is stratified: each minibatch has one transition from each of B equal
    parts of the sum. `weight` is (N P(i)) ** -beta, divided by the largest weight of the minibatch.
    Schaul et al. 2016, arXiv:1511.05952; `set_exponents` lets beta grow to 1 during training, as there.

    Args:
        step: Specification of the sub-step.
        capacity: Maximum number of transitions.
        n_step: Number of acts of a return.
        run_length: Number of transitions of a run.
        alpha: Exponent of the priorities; transitions are drawn uniformly if None.
        beta: Exponent of the importance weights.
        memory_map: Whether arrays are in unnamed files of the run directory, which leave nothing
            behind.
        keep_sizes: Whether the sizes of TD errors are stored, so that `alpha` may change.
        device: Device on which observations and actions are stored, and drawn; None for the arrays of this process.
            What is drawn is the same.

    Raises:
        OSError: With `memory_map`, the run directory has not enough space.
    """

    def __init__(
        self,
        step: StepSpec,
        capacity: int,
        n_step: int = 1,
        run_length: int = 1,
        alpha: float | None = None,
        beta: float = 0.4,
        memory_map: bool = False,
        keep_sizes: bool = False,
        device: torch.device | None = None,
    ) -> None:
        try:
            self._columns = _allocate_columns(step, capacity, memory_map, device)
        except OSError as error:
            n_numbers = 2 if step.n_agents == 1 else 3  # reward, discount and agent id, of 4 bytes
            n_bytes = capacity * (bytes_of_values(step) + 4 * n_numbers)
            place = f"{output_folder('.')} (replay buffer, {n_bytes:,} bytes)"
            remedy = "lower replay_buffer_size, or keep it in memory (memory_map=False)"
            raise OSError(error.errno, f"{error.strerror}; {remedy}", place) from error
        # place of the transition that continues the stream, -1 if unknown; empty if not needed
        self._follower = np.full(capacity if max(n_step, run_length) > 1 else 0, -1)
        self._latest = LatestTransitions()
        self.capacity = capacity
        self._device = device
        self._n_step = n_step
        self._run_length = run_length
        self._alpha = alpha
        self._beta = beta
        self._highest = 1.0  # priority of new transitions; if sizes are kept, the size of their TD error
        self._sizes = np.zeros(capacity) if keep_sizes and alpha is not None else None
        self._priorities = None if alpha is None else SumTree(capacity)
        self._written = 0  # transitions since the beginning

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def add(self, columns: Columns) -> None:
        """Add transitions; they overwrite the oldest ones.

        Args:
            columns: Arrays [n, ...] as from `Transitions.of`; transitions of a stream in their
                order.
        """
        n = len(columns["reward"])
        places = (self._written + np.arange(n)) % self.capacity
        mapped(lambda ring, values: _write(ring, places, values), self._columns, columns)
        if self._follower.size:
            self._link(columns["stream"], columns["is_first"])
        if self._priorities is not None:
            self._set_sizes(places, np.full(n, self._highest))
        self._written += n

    def _link(self, streams: Array, is_first: Array) -> None:
        """Link new transitions to their predecessors, which are always overwritten first."""
        numbers = self._written + np.arange(len(streams))
        self._follower[numbers % self.capacity] = -1
        previous = self._latest.put(streams, numbers)
        oldest = self._written + len(streams) - self.capacity
        continues = ~is_first & (previous >= max(oldest, 0))
        self._follower[previous[continues] % self.capacity] = numbers[continues] % self.capacity

    def sample(self, n_updates: int, batch_size: int, generator: Generator) -> tuple[TransitionBatch, Array]:
        """Draw minibatches, with replacement.

        Args:
            n_updates: Number of minibatches, U.
            batch_size: Number of runs per minibatch; unless it is 0, the storage must not be empty.
            generator: Source of randomness.

        Returns:
            Acts [U, batch_size * run_length, ...], and their places in the ring
            [U, batch_size * run_length].
        """
        shape = (n_updates, batch_size)
        starts = self._random_places(shape, generator)
        if self._priorities is not None:
            # [U, batch_size], one number in each of `batch_size` equal parts of the sum
            position = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
            part = self._priorities.total / max(1, batch_size)
            starts = self._priorities.find((position + np.arange(batch_size)) * part)
        runs = [starts]
        for _ in range(self._run_length - 1):
            following = self._follower[runs[-1]]
            elsewhere = self._random_places(shape, generator)
            runs.append(np.where(following < 0, elsewhere, following))
        places = starts
        if len(runs) > 1:
            places = np.stack(runs, -1).reshape(n_updates, -1)  # [U, batch_size * run_length]
        return self._acts(places), places

    def _random_places(self, shape: tuple[int, int], generator: Generator) -> Array:
        """Draw places of transitions uniformly, [*shape]."""
        return torch.randint(max(1, len(self)), shape, generator=generator).numpy()

    def _acts(self, places: Array) -> TransitionBatch:
        """Return the acts at places [U, B], with returns over `n_step` acts."""
        columns = self._columns
        last = places  # of the acts that the returns sum up
        reward = columns["reward"][places]
        discount = columns["discount"][places]
        for _ in range(self._n_step - 1):
            following = self._follower[last]
            continues = following >= 0
            last = np.where(continues, following, last)
            reward += np.where(continues, discount * columns["reward"][last], np.float32(0))
            discount *= np.where(continues, columns["discount"][last], np.float32(1))
        drawn: Columns = {"reward": reward, "discount": discount}
        if "agent_id" in columns:
            drawn["agent_id"] = columns["agent_id"][places].astype(np.int64)
        else:
            drawn["agent_id"] = np.zeros_like(places)
        if self._priorities is not None:
            # N and the total cancel out against those of the largest weight
            weight = self._priorities.leaves[places] ** -self._beta
            largest = weight.max(-1, initial=0.0, keepdims=True)
            drawn["weight"] = (weight / largest).astype(np.float32)
        index = self._index(places)
        following_index = index if last is places else self._index(last)
        return TransitionBatch(
            observation=self._read(columns["observation"], index),
            action=self._read(columns["action"], index),
            next_observation=self._read(columns["next_observation"], following_index),
            **tensor_views(drawn),
        )

    def _index(self, places: Array) -> Array | Tensor:
        """Return places [U, B] as an index of observations and actions, on their device."""
        return places if self._device is None else torch.from_numpy(places).to(self._device)

    def _read(self, rings: Columns, index: Array | Tensor) -> Any:
        """Return entries of rings in nested dicts at an index [U, B], as tensors [U, B, ...]."""
        if self._device is None:
            return mapped(lambda ring: torch.from_numpy(ring[index]), rings)
        return mapped(lambda ring: ring[index], rings)

    def reprioritise(self, places: Array, errors: Tensor) -> None:
        """Update priorities with the TD errors of transitions that were just sampled.

        Args:
            places: [U, B] places in the ring, as from `sample`.
            errors: [U, B] TD errors, of any sign.
        """
        assert self._priorities is not None and self._alpha is not None
        sizes = errors.detach().abs().cpu().double().numpy().ravel()
        sizes = sizes + 1e-6  # transitions without error are still drawn at times
        if self._sizes is None:
            sizes = sizes**self._alpha
        self._set_sizes(places.ravel(), sizes)
        self._highest = max(self._highest, float(sizes.max(initial=0.0)))

    def set_exponents(self, alpha: float, beta: float) -> None:
        """Change the exponents of priorities and weights; all priorities are computed again if alpha changes.

        Args:
            alpha: Exponent of the priorities; only with `keep_sizes` it may differ from the current one.
            beta: Exponent of the importance weights.
        """
        self._beta = beta
        if alpha == self._alpha or self._priorities is None:
            return
        assert self._sizes is not None
        self._alpha = alpha
        self._priorities.update(np.arange(len(self)), self._sizes[: len(self)] ** alpha)

    def _set_sizes(self, places: Array, sizes: Array) -> None:
        """Set priorities, or the sizes of TD errors from which they are computed."""
        assert self._priorities is not None
        if self._sizes is None:
            self._priorities.update(places, sizes)
            return
        assert self._alpha is not None
        self._sizes[places] = sizes
        self._priorities.update(places, sizes**self._alpha)

    # --------------------------------------------------------------------------------- checkpoints

    def _saved_columns(self) -> Columns:
        """All arrays of the storage; `priorities` is None without priorities."""
        priorities = None if self._priorities is None else self._priorities.leaves
        sizes = {} if self._sizes is None else {"sizes": self._sizes}
        return {**self._columns, "follower": self._follower, "priorities": priorities, **sizes}

    def state_dict(self) -> dict[str, Any]:
        """Return the full state: tensors, which are views unless they are on a device, and primitives."""
        n = len(self)
        return {
            "columns": mapped(
                lambda ring: ring[:n].cpu() if isinstance(ring, Tensor) else torch.from_numpy(ring[:n]),
                self._saved_columns(),
            ),
            "last": self._latest.state_dict(),
            "capacity": self.capacity,
            "written": self._written,
            "highest": self._highest,
            "alpha": None if self._alpha is None else float(self._alpha),  # of the priorities; may follow a schedule
        }

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        """Load the result of `state_dict` of a storage with the same arguments; returns itself.

        Raises:
            ValueError: The state does not fit this storage; nothing was changed.
        """
        self.check_state(state)
        self._written = state["written"]
        self._latest = LatestTransitions(state["last"])
        self._highest = state["highest"]
        saved = mapped(Tensor.numpy, state["columns"])
        rows = slice(len(self))
        mapped(_restore, self._columns, state["columns"])
        self._follower[rows] = saved["follower"]
        if self._priorities is not None:
            self._priorities = SumTree(self.capacity)
            self._priorities.update(np.arange(len(self)), saved["priorities"])
        if self._sizes is not None:
            self._sizes[rows] = saved["sizes"]
            if state.get("alpha") is not None:  # older states have none
                self._alpha = state["alpha"]
        return self

    def check_state(self, state: dict[str, Any]) -> None:
        """Check a state that is to be loaded.

        Raises:
            ValueError: It does not fit this storage.
        """
        self._refuse_numbers(state)
        self._refuse_columns(state.get("columns"), min(state["written"], self.capacity))

    def _refuse_numbers(self, state: dict[str, Any]) -> None:
        """Raise ValueError if numbers of a state are impossible, or belong to another capacity."""
        written = state.get("written")
        capacity = state.get("capacity")
        highest = state.get("highest")
        last = state.get("last")
        alpha = state.get("alpha")
        if type(written) is not int or written < 0 or capacity != self.capacity:
            held = f"it holds {written} transitions of a capacity of {capacity}"
            raise ValueError(f"{held}, expected {self.capacity}")
        if type(highest) is not float or not 0 < highest < np.inf:
            raise ValueError(f"its highest priority is {highest}")
        if alpha is not None and (type(alpha) is not float or not 0 <= alpha < np.inf):
            raise ValueError(f"the exponent of its priorities is {alpha}")
        is_known = (
            isinstance(last, dict)
            and all(type(stream) is int for stream in last)
            and all(number in range(written) for number in last.values())
        )
        if not is_known:
            raise ValueError(f"it names latest transitions that are not among its {written}")

    def _refuse_columns(self, columns: Any, n: int) -> None:
        """Raise ValueError if the columns of a state have other names, shapes or impossible values.

        Args:
            columns: Tensors of the state.
            n: Number of transitions that it should hold.
        """

        def require_same(ring: Array | Tensor, values: Any) -> None:
            shape = (min(n, len(ring)), *ring.shape[1:])
            dtype = ring.dtype if isinstance(ring, Tensor) else torch.from_numpy(ring[:0]).dtype
            has_shape = tuple(values.shape) == shape and values.dtype == dtype
            if not has_shape or not values.is_contiguous():
                found = f"{tuple(values.shape)} {values.dtype}"
                raise ValueError(f"it has a column {found}, expected {shape} {ring.dtype}")

        expected = self._saved_columns()
        try:
            mapped(require_same, expected, columns)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"its columns are not {list(expected)}: {error!r}") from error
        follower = columns["follower"]
        if follower.numel() and not -1 <= int(follower.min()) <= int(follower.max()) < n:
            found = f"{follower.min()} to {follower.max()}"
            raise ValueError(f"its transitions are continued by {found}, expected below {n}")
        priorities = columns["priorities"]
        if priorities is not None and not bool(((priorities >= 0) & (priorities < np.inf)).all()):
            raise ValueError("its priorities are negative, or not finite")


def _allocate_columns(step: StepSpec, capacity: int, memory_map: bool, device: torch.device | None) -> Columns:
    """Allocate zeros for the columns of transitions; see `ReplayStorage`."""
    ring_shape = (capacity,)
    allocate = _allocate_on_disk if memory_map else np.zeros
    allocate_values: Any = allocate if device is None else partial(_allocate_on_device, device=device)
    columns: Columns = {
        "observation": allocate_tree(step.observation_space, ring_shape, allocate_values),
        "action": allocate_tree(step.action_space, ring_shape, allocate_values),
        "next_observation": allocate_tree(step.observation_space, ring_shape, allocate_values),
        "reward": allocate(ring_shape, np.float32),
        "discount": allocate(ring_shape, np.float32),
    }
    if step.n_agents != 1:
        columns["agent_id"] = allocate(ring_shape, np.int32)
    return columns


def _allocate_on_disk(shape: tuple[int, ...], dtype: Any) -> Array:
    """Allocate zeros in an unnamed file of the run directory; an empty array in memory."""
    size = int(np.prod(shape))
    if not size:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=output_folder(".")) as file:
        # Allocate the disk space now, or writing fails later.
        os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
        return np.asarray(np.memmap(file, dtype, "r+", shape=shape))


def _allocate_on_device(shape: tuple[int, ...], dtype: Any, device: torch.device) -> Tensor:
    """Allocate zeros on a device."""
    return torch.zeros(shape, dtype=torch.from_numpy(np.zeros(0, dtype)).dtype, device=device)


def _write(ring: Array | Tensor, places: Array, values: Array) -> None:
    """Write values [n, ...] to places [n] of a ring [capacity, ...]; the last ones count if there are too many."""
    if isinstance(ring, np.ndarray):
        ring[places] = values
        return
    kept = slice(max(len(places) - len(ring), 0), None)
    content = torch.from_numpy(np.array(values[kept])).to(ring)
    ring[torch.from_numpy(places[kept]).to(ring.device)] = content


def _restore(ring: Array | Tensor, values: Tensor) -> None:
    """Write the first values of a ring."""
    if isinstance(ring, np.ndarray):
        ring[: len(values)] = values.numpy()
    else:
        ring[: len(values)].copy_(values)
