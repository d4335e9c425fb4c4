"""Pre-processor that encodes categories as one-hot vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class OneHotPreProcessor(PreProcessor):
    """Encodes one of n categories as a one-hot vector of length n.

    Args:
        observation_space: A Discrete; its first category (`start`) comes first in the vector.
    """

    tag = "one_hot"

    def __init__(self, observation_space: Space) -> None:
        super().__init__(observation_space)
        if not isinstance(observation_space, spaces.Discrete):
            raise TypeError(f"OneHotPreProcessor needs a Discrete, not {observation_space}")
        self._n, self._start = int(observation_space.n), int(observation_space.start)

    def process(self, observation: Array) -> Array:
        """[] -> [n] in float32.

        Raises:
            ValueError: There is no such category.
        """
        index = int(observation) - self._start
        if not 0 <= index < self._n:
            raise ValueError(f"{int(observation)} is not one of the categories of {self.observation_space}")
        vector = np.zeros(self._n, np.float32)
        vector[index] = 1.0
        return vector

    def process_many(self, observations: Array) -> Array:
        """[m] -> [m, n] in float32.

        Raises:
            ValueError: There is no such category.
        """
        index = observations.astype(np.int64) - self._start
        is_wrong = (index < 0) | (index >= self._n)
        if is_wrong.any():
            wrong = int(observations[is_wrong][0])
            raise ValueError(f"{wrong} is not one of the categories of {self.observation_space}")
        vectors = np.zeros((len(index), self._n), np.float32)
        vectors[np.arange(len(index)), index] = 1.0
        return vectors

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return `process_many` for tensors; other numbers than categories become zeros."""
        import torch

        categories = torch.arange(self._start, self._start + self._n, device=device)
        return lambda observations: (observations.unsqueeze(-1) == categories).float()

    def processed_space(self) -> Space:
        """A Box of [n] from 0 to 1."""
        return spaces.Box(0.0, 1.0, (self._n,), np.float32)
