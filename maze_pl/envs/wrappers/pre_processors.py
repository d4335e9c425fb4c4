"""Base class of pre-processors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.structured_env import Array

if TYPE_CHECKING:
    import torch

    TensorFunction = Callable[[torch.Tensor], torch.Tensor]

Space = spaces.Space[Any]


class PreProcessor(ABC):
    """Transforms an observation by a pure function of its array.

    A custom pre-processor needs `process`, a constructor if it has arguments, and `processed_space`
    if it does more than rearrange the values of a Box.

    Args:
        observation_space: Space of the observations that it receives.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import PreProcessingWrapper
        >>> class FlipPreProcessor(PreProcessor):
        ...     tag = "flipped"
        ...
        ...     def process(self, observation):
        ...         return observation[::-1]
        >>> entry = {"observation": "observation", "class_path": FlipPreProcessor}
        >>> env = PreProcessingWrapper(GymMazeEnv("CartPole-v1"), [entry])
        >>> round(float(env.observation_space["observation-flipped"].high[3]), 1)
        4.8
    """

    tag: ClassVar[str] = ""
    """Suffix of the observation's name, after a dash; by default the name of its file."""

    def __init__(self, observation_space: Space) -> None:
        self.observation_space = observation_space

    @abstractmethod
    def process(self, observation: Array) -> Array:
        """Return the new observation, which may share memory with the old one but never changes it."""

    def process_many(self, observations: Array) -> Array:
        """Return `process` of several observations; one after the other by default.

        A class whose arithmetic can do it for all at once overrides it together with `process`.

        Args:
            observations: [n, ...] n observations, at least one.

        Returns:
            [n, ...] the new observations.
        """
        return np.stack([self.process(observation) for observation in observations])

    def process_all(self, observations: Array) -> Array:
        """Return `process_many`, unless a subclass has overridden only `process`.

        Args:
            observations: [n, ...] n observations, at least one.
        """
        if is_defined_with(type(self), "process_many", "process"):
            return self.process_many(observations)
        return PreProcessor.process_many(self, observations)

    def tensor_function(self, device: torch.device) -> TensorFunction:
        """Return a function that computes `process_many` of tensors on a device, without changing them.

        Args:
            device: The device, on which constants are made now.

        Raises:
            TypeError: There is none, as by default.
        """
        raise TypeError(f"{type(self).__name__} has no function for tensors")

    def processed_space(self) -> Space:
        """Space of the results of `process`; by default, bounds are rearranged like the values."""
        space = self.box()
        return spaces.Box(self.process(space.low), self.process(space.high), dtype=space.dtype)

    def box(self, n_dimensions: int = 0) -> spaces.Box:
        """Space of the observations, a Box of at least `n_dimensions` dimensions.

        Raises:
            TypeError: The space is not such a Box.
        """
        space = self.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) < n_dimensions:
            raise TypeError(f"{type(self).__name__} needs a Box of at least {n_dimensions} dimensions, not {space}")
        return space
