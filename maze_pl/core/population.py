"""Populations of perturbed policies: their noise and their returns."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from maze_pl.core.batches import Experience
from maze_pl.core.policy import Array, Policy
from maze_pl.core.seeding import derive_seed

_CHUNK = 1 << 20


def trainable_flags(policy: Any) -> tuple[bool, ...]:
    """Return for each parameter of a policy whether it is trainable.

    Args:
        policy: The policy; the result is empty if it is not a module.
    """
    if not isinstance(policy, nn.Module):
        return ()
    return tuple(parameter.requires_grad for parameter in policy.parameters())


def perturbed_parameters(policy: Any, flags: Sequence[bool] | None = None) -> list[nn.Parameter]:
    """Return the parameters that are perturbed, in the order of the noise.

    Args:
        policy: A module; the list is empty for anything else.
        flags: For each parameter of the policy, whether it is perturbed; None for those that are
            trainable now.
    """
    if not isinstance(policy, nn.Module):
        return []
    flags = trainable_flags(policy) if flags is None else flags
    return [parameter for parameter, flag in zip(policy.parameters(), flags, strict=True) if flag]


class PolicyStack(Policy, Protocol):
    """Copies of a policy with different parameters, the i-th of which acts in environment i."""

    def load(self, values: Tensor) -> None:
        """Set the parameters of all copies, [S, P], in the order of `perturbed_parameters`."""
        ...

    def keep(self, copies: Array) -> None:
        """Select the copies that still act, by their numbers [n] in ascending order."""
        ...


@runtime_checkable
class StackablePolicy(Protocol):
    """A policy whose copies can act together."""

    def stacked(self) -> PolicyStack:
        """Return copies of this policy; ValueError says why they cannot act together."""
        ...


class NoiseTable:
    """Standard normal numbers shared by the processes of a machine; offsets identify pieces.

    The numbers depend on the seed alone. They are generated on first use, in an unnamed file.
    Copies in other processes map that file, so all of them together use its memory once. A copy
    that cannot reach the file, such as on another machine, generates the same numbers again.
    Salimans et al. 2017, arXiv:1703.03864, section 2.1.

    Args:
        seed: Determines the numbers.
        size: Number of numbers.
        path: File of another process that may hold the numbers already.

    Raises:
        OSError: The folder of temporary files has no room for the numbers, when they are first needed.

    Example:
        >>> NoiseTable(seed=1, size=1000).piece(10, 3).shape
        torch.Size([3])
    """

    def __init__(self, seed: int, size: int, path: str = "") -> None:
        self.seed = seed
        self.size = size
        self._path = path
        self._file = tempfile.TemporaryFile(prefix="maze_pl-noise-")  # noqa: SIM115, open as long as this object lives
        weakref.finalize(self, self._file.close)
        self._numbers: Array | None = None

    def offset(self, length: int, *path: int) -> int:
        """Offset of the piece that `path` names, drawn uniformly from the table.

        Args:
            length: Length of the piece.
            path: Numbers that name the piece, such as an update and a pair in it.

        Raises:
            ValueError: The table is too small.
        """
        if length > self.size:
            fault = f"a noise table of {self.size:,} numbers is too small for the {length:,} parameters of the policy"
            raise ValueError(f"{fault}: set shared_noise_table_size to many times as much, such as 100,000,000")
        return derive_seed(self.seed, "offset", *path) % (self.size - length + 1)

    def piece(self, offset: int, length: int) -> Tensor:
        """[length] float32 numbers from `offset` on; a view that must not be modified."""
        if self._numbers is None:
            self._numbers = self._found()
        return torch.from_numpy(self._numbers[offset : offset + length])

    def _found(self) -> Array:
        """Map the numbers from the file of another process, or generate them in a new file."""
        # Copy-on-write, since torch warns about read-only arrays.
        with suppress(OSError, ValueError):  # the file does not exist, or is incomplete
            numbers, first = np.memmap(self._path, np.float32, "c", shape=(self.size,)), self._chunk(0)
            if np.array_equal(numbers[: first.size], first):  # else it is another file on this machine
                return numbers
        self._path = ""
        try:
            for index in tqdm(range(-(-self.size // _CHUNK)), "noise table", delay=2, leave=False):
                self._file.write(self._chunk(index).tobytes())
            self._file.flush()
        except OSError as error:
            raise OSError(*error.args, f"{tempfile.gettempdir()} (noise table, {4 * self.size:,} bytes)") from None
        return np.memmap(self._file, np.float32, "c", shape=(self.size,))

    def _chunk(self, index: int) -> Array:
        generator = np.random.Generator(np.random.PCG64([self.seed, index]))
        return generator.standard_normal(min(_CHUNK, self.size - index * _CHUNK), np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the seed, the size and the path of the file that will hold the numbers."""
        return NoiseTable, (self.seed, self.size, self._path or f"/proc/{os.getpid()}/fd/{self._file.fileno()}")


@dataclass
class PopulationBatch(Experience):
    """Returns of P pairs of perturbed policies, with the same noise added and subtracted.

    Attributes:
        noise: Source of the noise.
        offsets: [P] offset of the noise of each pair.
        returns: [P, 2] float64, sums of rewards with the noise added and subtracted, over all
            ranks.
        env_steps: Environment time that passed on this rank.
        perturbed: For each parameter of the policy, whether it was perturbed; None for those that
            are trainable.
    """

    noise: NoiseTable
    offsets: list[int]
    returns: Tensor
    env_steps: int = 0
    perturbed: tuple[bool, ...] | None = None

    def to(self, device: torch.device | str) -> PopulationBatch:
        """Return the batch itself: it is small and stays where it is."""
        return self
