"""Base of pre-processors that compute weighted means."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    import torch

    from maze_pl.envs.wrappers.pre_processors import TensorFunction


class AveragingPreProcessor(PreProcessor):
    """Base class of pre-processors that compute weighted means, within the range of the original.

    Means of bytes (uint8) are rounded half up to bytes, so that images stay small until they
    reach the network; all others are float32. Subclasses compute means of bytes without rounding
    errors, so that a mean halfway between two bytes is rounded up by any library on any machine.

    Args:
        observation_space: A Box.

    Attributes:
        range: Lowest and highest value of the space.
        is_bytes: Whether observations are bytes.
        computed: Type in which means are computed.
    """

    computed: type[np.floating[Any]] = np.float32

    def __init__(self, observation_space: Space) -> None:
        super().__init__(observation_space)
        space = self.box()
        self.range = float(space.low.min()), float(space.high.max())
        self.is_bytes = space.dtype == np.uint8

    @abstractmethod
    def average(self, observation: Array) -> Array:
        """Means of an observation, which has the type `computed`, in this type."""

    def process(self, observation: Array) -> Array:
        """Means, rounded for bytes; otherwise clipped, as rounding errors may exceed the range."""
        means = self.average(observation.astype(self.computed))
        return (means + 0.5).astype(np.uint8) if self.is_bytes else np.clip(means, *self.range)

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return `process` for many observations in tensors.

        Raises:
            TypeError: A subclass changes `average` alone.
        """
        import torch

        if not is_defined_with(type(self), "average_function", "average"):
            raise TypeError(f"{type(self).__name__} has no function for tensors, only average")
        average, is_bytes, (low, high) = self.average_function(device), self.is_bytes, self.range

        def process(observations: torch.Tensor) -> torch.Tensor:
            means = average(observations)
            if is_bytes:
                return (means + 0.5).to(torch.uint8)
            return means.clip(low, high).float()

        return process

    def average_function(self, device: torch.device) -> TensorFunction:
        """Return a function that computes `average` of many observations [N, ...] in tensors.

        Its sums have no rounding errors for bytes.

        Raises:
            TypeError: There is none, as by default.
        """
        raise TypeError(f"{type(self).__name__} has no function for tensors")

    def processed_space(self) -> Space:
        """Space with the range of the original one, even if that is infinite."""
        shape = self.average(np.zeros(self.box().shape, np.float32)).shape
        return spaces.Box(*self.range, shape, np.uint8 if self.is_bytes else np.float32)
