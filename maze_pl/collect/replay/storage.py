"""Replay storage: a ring buffer of the latest transitions of a sub-step, of fixed size."""

import os
import tempfile
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor

from maze_pl.collect.storage import tensors
from maze_pl.core.batches import TransitionBatch
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import StepSpec
from maze_pl.envs.vector.vector_env import allocate_tree
from maze_pl.records.columns import Columns, taken
from maze_pl.system.atomic_files import output_folder

Array = np.ndarray[Any, np.dtype[Any]]


class SumTree:
    """Numbers in the leaves of a binary tree in which each node is the sum of its children.

    Sampling a leaf in proportion to its number and changing a number take about log2(capacity)
    operations.

    Args:
        capacity: Number of leaves, which begin as 0.

    Example:
        >>> tree = SumTree(4)
        >>> tree.update(np.array([0, 1, 3]), np.array([1.0, 3.0, 2.0]))
        >>> tree.total, tree.find(np.array([0.5, 1.0, 3.9, 4.0])).tolist()
        (6.0, [0, 1, 1, 3])
    """

    def __init__(self, capacity: int) -> None:
        self._depth = (capacity - 1).bit_length()
        self._nodes = np.zeros(2 << self._depth)
        self.leaves = self._nodes[1 << self._depth :]

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._nodes[1])

    def update(self, places: Array, numbers: Array) -> None:
        """Replace numbers; if a leaf is given twice, its last number counts.

        Args:
            places: [n] indices of leaves.
            numbers: [n] their new numbers.
        """
        self.leaves[places] = numbers
        nodes = places + (1 << self._depth)
        for _ in range(self._depth):
            nodes = nodes >> 1
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def find(self, sums: Array) -> Array:
        """Find, for each sum, the first leaf at which the cumulative sum of the numbers exceeds it.

        Args:
            sums: [...] numbers of at least 0 and below `total`.
        """
        nodes = np.ones(sums.shape, np.int64)
        for _ in range(self._depth):
            nodes *= 2
            left = self._nodes[nodes]
            goes_right = (sums >= left) & (self._nodes[nodes + 1] > 0)  # rounding never leads to an empty subtree
            sums = np.where(goes_right, sums - left, sums)
            nodes += goes_right
        return nodes - (1 << self._depth)


class ReplayStorage:
    """The latest transitions of a sub-step, from which minibatches are drawn.

    Sampling draws runs of `run_length` consecutive transitions of a stream. If a run ends early,
    with its episode or at the latest known transition, another run continues it. The return of each
    act is the n-step return over `n_step` acts, with the rewards R and discounts D of the
    transitions,

        reward = R_0 + D_0 R_1 + D_0 D_1 R_2 + ...,    discount = D_0 D_1 D_2 ...,

    or over fewer acts if the episode ends early or no more transitions are known. That is exact
    too, as the next observation is the one after the last of these acts.

    With `alpha`, transition i is drawn with probability P(i) = p_i ** alpha / sum_k p_k ** alpha,
    where p_i is the size of the TD error at its last use, and the largest size so far for new
    transitions. Sampling is stratified: each minibatch has one transition from each of B equal
    parts of the sum. `weight` is (N P(i)) ** -beta, divided by the largest weight of the minibatch.
    Schaul et al. 2016, arXiv:1511.05952; there beta grows to 1 during training, here it is
    constant.

    Args:
        step: Specification of the sub-step.
        capacity: Maximum number of transitions.
        n_step: Number of acts of a return.
        run_length: Number of transitions of a run.
        alpha: Exponent of the priorities; transitions are drawn uniformly if None.
        beta: Exponent of the importance weights.
        memory_map: Whether arrays are in unnamed files of the run directory, which leave nothing
            behind.
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
    ) -> None:
        def allocate(shape: tuple[int, ...], kind: Any) -> Array:
            if not (memory_map and np.prod(shape)):
                return np.zeros(shape, kind)
            with tempfile.TemporaryFile(dir=output_folder(".")) as file:
                # Allocate the disk space now, or writing fails later.
                os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * np.dtype(kind).itemsize)
                return np.asarray(np.memmap(file, kind, "r+", shape=shape))

        shape, seen = (capacity,), step.observation_space
        trees = {"observation": seen, "action": step.action_space, "next_observation": seen}
        self._columns: Columns = {name: allocate_tree(space, shape, allocate) for name, space in trees.items()}
        numbers: dict[str, Any] = {"reward": np.float32, "discount": np.float32}
        numbers |= {"agent_id": np.int32} if step.n_agents != 1 else {}
        self._columns |= {name: allocate(shape, kind) for name, kind in numbers.items()}
        self._follower = np.full(capacity if max(n_step, run_length) > 1 else 0, -1)  # empty if not needed
        self._last: dict[int, int] = {}  # stream -> number of its latest transition
        self.capacity, self._n_step, self._run_length = capacity, n_step, run_length
        self._alpha, self._beta, self._highest = alpha, beta, 1.0
        self._priorities = None if alpha is None else SumTree(capacity)
        self._written = 0

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
        mapped(lambda ring, values: ring.__setitem__(places, values), self._columns, columns)
        if self._follower.size:
            self._link(columns["stream"], columns["is_first"])
        if self._priorities is not None:
            self._priorities.update(places, np.full(n, self._highest))
        self._written += n

    def _link(self, streams: Array, is_first: Array) -> None:
        """Link new transitions to their predecessors, which are always overwritten first."""
        for number, (stream, first) in enumerate(zip(streams.tolist(), is_first, strict=True), self._written):
            self._follower[number % self.capacity] = -1
            before = self._last.get(stream, -1)
            if not first and before >= 0 and before > number - self.capacity:
                self._follower[before % self.capacity] = number % self.capacity
            self._last[stream] = number

    def sample(self, n_updates: int, batch_size: int, generator: Generator) -> tuple[TransitionBatch, Array]:
        """Draw minibatches, with replacement.

        Args:
            n_updates: Number of minibatches, U.
            batch_size: Number of runs per minibatch; unless it is 0, the storage must not be empty.
            generator: Source of randomness.

        Returns:
            Acts [U, batch_size * run_length, ...], and their places in the ring [U, batch_size * run_length].
        """
        anywhere = partial(torch.randint, max(1, len(self)), (n_updates, batch_size), generator=generator)
        runs = [anywhere().numpy()]
        if self._priorities is not None:
            part = torch.rand(runs[0].shape, generator=generator, dtype=torch.float64).numpy() + np.arange(batch_size)
            runs = [self._priorities.find(part * (self._priorities.total / max(1, batch_size)))]
        for _ in range(self._run_length - 1):
            following = self._follower[runs[-1]]
            runs.append(np.where(following < 0, anywhere().numpy(), following))
        places = np.stack(runs, -1).reshape(n_updates, -1) if runs[1:] else runs[0]
        return self._acts(places), places

    def _acts(self, places: Array) -> TransitionBatch:
        fields = self._columns
        last, reward, discount = places, fields["reward"][places], fields["discount"][places]
        for _ in range(self._n_step - 1):
            following = self._follower[last]
            goes_on = following >= 0
            last = np.where(goes_on, following, last)
            reward += np.where(goes_on, discount * fields["reward"][last], np.float32(0))
            discount *= np.where(goes_on, fields["discount"][last], np.float32(1))
        drawn: Columns = {name: taken(fields[name], places) for name in ("observation", "action")}
        drawn |= {"next_observation": taken(fields["next_observation"], last), "reward": reward, "discount": discount}
        drawn["agent_id"] = fields["agent_id"][places].astype(np.int64) if "agent_id" in fields else 0 * places
        if self._priorities is not None:
            weight = self._priorities.leaves[places] ** -self._beta  # N and the total cancel with those of the largest
            drawn["weight"] = (weight / weight.max(-1, initial=0.0, keepdims=True)).astype(np.float32)
        return TransitionBatch(**tensors(drawn))

    def reprioritise(self, places: Array, errors: Tensor) -> None:
        """Update priorities with the TD errors of transitions that were just sampled.

        Args:
            places: [U, B] places in the ring, as from `sample`.
            errors: [U, B] TD errors, of any sign.
        """
        assert self._priorities is not None and self._alpha is not None
        sizes = errors.detach().abs().cpu().double().numpy().ravel() + 1e-6  # so that a perfect fit is drawn at times
        priorities = sizes**self._alpha
        self._priorities.update(places.ravel(), priorities)
        self._highest = max(self._highest, float(priorities.max(initial=0.0)))

    def state_dict(self) -> dict[str, Any]:
        """Return the full state: tensors, which are views, and primitives."""
        kept = {**self._columns, "follower": self._follower, "priorities": self._priorities and self._priorities.leaves}
        numbers = {"capacity": self.capacity, "written": self._written, "highest": self._highest}
        return {"columns": tensors(kept, len(self)), "last": self._last, **numbers}

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        """Load the result of `state_dict` of a storage with the same arguments; returns itself.

        Raises:
            ValueError: The state does not fit this storage; nothing was changed.
        """
        self._refuse_foreign(state)
        self._written, self._last, self._highest = state["written"], dict(state["last"]), state["highest"]
        kept, here = mapped(Tensor.numpy, state["columns"]), slice(len(self))
        mapped(lambda ring, values: ring.__setitem__(here, values), self._columns, kept)
        self._follower[here] = kept["follower"]
        if self._priorities is not None:
            self._priorities.update(np.arange(len(self)), kept["priorities"])
        return self

    def _refuse_foreign(self, state: dict[str, Any]) -> None:
        """Raise ValueError if a state does not fit: impossible numbers, other columns or shapes."""
        written, capacity, highest, last = (state.get(name) for name in ("written", "capacity", "highest", "last"))
        if type(written) is not int or written < 0 or capacity != self.capacity:
            raise ValueError(f"it holds {written} transitions of a capacity of {capacity}, expected {self.capacity}")
        if type(highest) is not float or not 0 < highest < np.inf:
            raise ValueError(f"its highest priority is {highest}")
        if not isinstance(last, dict) or any(number not in range(written) for number in last.values()):
            raise ValueError(f"it names latest transitions that are not among its {written}")
        own = {**self._columns, "follower": self._follower, "priorities": self._priorities and self._priorities.leaves}
        n = min(written, self.capacity)

        def require_same(ring: Array, values: Any) -> None:
            expected = min(n, len(ring)), *ring.shape[1:]
            if tuple(values.shape) != expected or values.numpy().dtype != ring.dtype or not values.is_contiguous():
                raise ValueError(
                    f"it has a column {tuple(values.shape)} {values.dtype}, expected {expected} {ring.dtype}"
                )

        try:
            mapped(require_same, own, state["columns"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"its columns are not {list(own)}: {error!r}") from error
        follower, priorities = state["columns"]["follower"], state["columns"]["priorities"]
        if follower.numel() and not -1 <= int(follower.min()) <= int(follower.max()) < n:
            raise ValueError(
                f"its transitions are continued by {follower.min()} to {follower.max()}, expected below {n}"
            )
        if priorities is not None and not bool(((priorities >= 0) & (priorities < np.inf)).all()):
            raise ValueError("its priorities are negative, or not finite")
