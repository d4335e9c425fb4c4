"""Populations of perturbed policies: the noise that perturbs them, and how well they did."""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from maze_pl.core.policy import Array
from maze_pl.core.rollout import Experience
from maze_pl.core.seeding import derive_seed

_CHUNK = 1 << 20


def perturbed_parameters(policy: Any) -> list[nn.Parameter]:
    """The parameters that noise is added to, in the order of its numbers: those that are trained.

    Args:
        policy: A module; nothing else has any.
    """
    return [one for one in policy.parameters() if one.requires_grad] if isinstance(policy, nn.Module) else []


class NoiseTable:
    """Standard normal numbers that the processes of a machine share, so that a piece is known by where it begins.

    They depend on the seed alone, and are made when they are first needed, in a file without a name. Copies in other
    processes map that file into their memory, which all of them together take up once; where it cannot be reached, as
    on another machine, they make the same numbers again. Salimans et al. 2017, arXiv:1703.03864, section 2.1.

    Args:
        seed: Determines the numbers.
        size: How many there are.
        path: Of a file that may hold them.

    Raises:
        OSError: The folder of temporary files has no room for the numbers, when they are first needed.

    Example:
        >>> NoiseTable(seed=1, size=1000).piece(10, 3).shape
        torch.Size([3])
    """

    def __init__(self, seed: int, size: int, path: str = "") -> None:
        self.seed, self.size, self._path = seed, size, path
        self._file = tempfile.TemporaryFile(prefix="maze_pl-noise-")  # noqa: SIM115, it is open as long as this lives
        weakref.finalize(self, self._file.close)
        self._numbers: Array | None = None

    def offset(self, length: int, *path: int) -> int:
        """Where a piece begins that `path` names, anywhere in the table.

        Args:
            length: Of the piece.
            path: Numbers, such as those of an update and of a pair in it.

        Raises:
            ValueError: The table is too small.
        """
        if length > self.size:
            fault = f"a noise table of {self.size:,} numbers is too small for the {length:,} parameters of the policy"
            raise ValueError(f"{fault}: set shared_noise_table_size to many times as much, such as 100,000,000")
        return derive_seed(self.seed, "offset", *path) % (self.size - length + 1)

    def piece(self, offset: int, length: int) -> Tensor:
        """[length] float32 numbers from `offset` on; a view, which must not be written to."""
        if self._numbers is None:
            self._numbers = self._found()
        return torch.from_numpy(self._numbers[offset : offset + length])

    def _found(self) -> Array:
        """The numbers in the file of another process, or in one of our own, where they are made."""
        # Copy-on-write, since torch warns of arrays that cannot be written to.
        with suppress(OSError, ValueError):  # there is none, or it is not finished
            numbers, first = np.memmap(self._path, np.float32, "c", shape=(self.size,)), self._chunk(0)
            if np.array_equal(numbers[: first.size], first):  # and not something else of another machine
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
        """For other processes: where the numbers are by the time that they are needed."""
        return NoiseTable, (self.seed, self.size, self._path or f"/proc/{os.getpid()}/fd/{self._file.fileno()}")


@dataclass
class PopulationBatch(Experience):
    """What perturbed policies returned, in pairs: one with some noise added, and one with the same noise subtracted.

    Attributes:
        noise: Where the noise comes from.
        offsets: [P] where the noise of each pair begins.
        returns: [P, 2] float64, the sums of rewards with the noise added and subtracted, over all ranks.
        env_steps: Environment time that passed on this rank.
    """

    noise: NoiseTable
    offsets: list[int]
    returns: Tensor
    env_steps: int = 0

    def to(self, device: torch.device | str) -> PopulationBatch:
        """The batch itself, which is small."""
        return self
