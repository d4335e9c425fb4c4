"""How a single observation is turned into another one: the interface of pre-processors, and those there are."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array

# 0.299, 0.587 and 0.114 (ITU-R BT.601) in 1/65536: their sum is 1, and in float32 grays of bytes are exact.
GRAY_WEIGHTS: Final = (np.array([19595, 38470, 7471]) / 65536).astype(np.float32)


class PreProcessor(ABC):
    """Turns an observation into another one, by a pure function of its array.

    One of your own needs `process`, a constructor if it has arguments, and `processed_space` if it does more than move
    the values of a Box.

    Args:
        observation_space: Space of the observations that it gets.

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
    """What comes after the observation's name and a dash; the name of the file of the class if empty."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        self.observation_space = observation_space

    @abstractmethod
    def process(self, observation: Array) -> Array:
        """The other observation; it may share memory with the given one, which is left as it is."""

    def processed_space(self) -> spaces.Space[Any]:
        """Space of what `process` returns; here that of values which are moved, and their bounds with them."""
        space = self.box()
        return spaces.Box(self.process(space.low), self.process(space.high), dtype=space.dtype)

    def box(self, n_dimensions: int = 0) -> spaces.Box:
        """Space of the observations, if it is a Box of at least so many dimensions.

        Raises:
            TypeError: It is something else.
        """
        space = self.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) < n_dimensions:
            raise TypeError(f"{type(self).__name__} needs a Box of at least {n_dimensions} dimensions, not {space}")
        return space


class FlattenPreProcessor(PreProcessor):
    """Makes one dimension of the last ones: with two of them, [5, 3, 2] becomes [5, 6].

    Args:
        observation_space: A Box.
        num_flatten_dims: How many dimensions, counted from the right, become one.
    """

    tag = "flatten"

    def __init__(self, observation_space: spaces.Space[Any], num_flatten_dims: int) -> None:
        super().__init__(observation_space)
        if num_flatten_dims < 1:
            raise ValueError(f"num_flatten_dims={num_flatten_dims} must be at least 1")
        shape = self.box(num_flatten_dims).shape
        self._shape = (*shape[:-num_flatten_dims], math.prod(shape[-num_flatten_dims:]))

    def process(self, observation: Array) -> Array:
        """[..., a, b] -> [..., a * b]."""
        return observation.reshape(self._shape)


class OneHotPreProcessor(PreProcessor):
    """Turns one of n categories into a vector of length n, which is 1 at the category and 0 elsewhere.

    Args:
        observation_space: A Discrete; its first category, whatever `start` is, comes first in the vector.
    """

    tag = "one_hot"

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space)
        if not isinstance(observation_space, spaces.Discrete):
            raise TypeError(f"OneHotPreProcessor needs a Discrete, not {observation_space}")
        self._n, self._start = int(observation_space.n), int(observation_space.start)

    def process(self, observation: Array) -> Array:
        """[] -> [n] in float32.

        Raises:
            ValueError: There is no such category.
        """
        vector, index = np.zeros(self._n, np.float32), int(observation) - self._start
        if not 0 <= index < self._n:
            raise ValueError(f"{int(observation)} is none of the categories of {self.observation_space}")
        vector[index] = 1.0
        return vector

    def processed_space(self) -> spaces.Space[Any]:
        """A Box of [n] from 0 to 1."""
        return spaces.Box(0.0, 1.0, (self._n,), np.float32)


class TransposePreProcessor(PreProcessor):
    """Puts dimensions into another order: with axes 2, 0, 1, an image [height, width, 3] becomes [3, height, width].

    Args:
        observation_space: A Box.
        axes: For each new dimension, which of the original ones it is.
    """

    tag = "transpose"

    def __init__(self, observation_space: spaces.Space[Any], axes: Sequence[int]) -> None:
        super().__init__(observation_space)
        own = list(range(len(self.box().shape)))
        if sorted(axes) != own:
            raise ValueError(f"axes={list(axes)} must hold each of {own} once, in any order")
        self._axes = tuple(axes)

    def process(self, observation: Array) -> Array:
        """A view with the dimensions in their new order."""
        return observation.transpose(self._axes)


class UnSqueezePreProcessor(PreProcessor):
    """Inserts a dimension of length 1: at -3, a gray image [height, width] becomes [1, height, width].

    Args:
        observation_space: A Box.
        dim: Index of the new dimension among those that there are then, from the right if negative.
    """

    tag = "unsqueeze"

    def __init__(self, observation_space: spaces.Space[Any], dim: int) -> None:
        super().__init__(observation_space)
        self._shape = np.expand_dims(self.box().low, dim).shape

    def process(self, observation: Array) -> Array:
        """[a, b] -> [1, a, b], for example."""
        return observation.reshape(self._shape)


class AveragingPreProcessor(PreProcessor):
    """Base of what computes weighted means: they stay in the range of the original values.

    Means of bytes (uint8) are rounded to bytes, halves up, so that images stay small up to the network; others are
    float32.

    Args:
        observation_space: A Box.
    """

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space)
        space = self.box()
        self._range = float(space.low.min()), float(space.high.max())
        self._bytes = space.dtype == np.uint8

    @abstractmethod
    def average(self, observation: Array) -> Array:
        """The means of an observation in float32."""

    def process(self, observation: Array) -> Array:
        """The means, rounded if they are of bytes, and without what computing adds to their range."""
        means = self.average(observation.astype(np.float32))
        return (means + 0.5).astype(np.uint8) if self._bytes else np.clip(means, *self._range)

    def processed_space(self) -> spaces.Space[Any]:
        """Space with the range of the original one, also where that is infinite."""
        shape = self.average(np.zeros(self.box().shape, np.float32)).shape
        return spaces.Box(*self._range, shape, np.uint8 if self._bytes else np.float32)


class Rgb2GrayPreProcessor(AveragingPreProcessor):
    """Turns red, green and blue into their brightness 0.299 r + 0.587 g + 0.114 b, without the dimension of colours.

    Args:
        observation_space: A Box with a dimension of length 3.
        rgb_dim: Which dimension that is, from the right if negative.
    """

    tag = "rgb2gray"

    def __init__(self, observation_space: spaces.Space[Any], rgb_dim: int = -1) -> None:
        super().__init__(observation_space)
        shape = self.box().shape
        if not -len(shape) <= rgb_dim < len(shape) or shape[rgb_dim] != 3:
            raise ValueError(f"the colours, dimension rgb_dim={rgb_dim}, must be 3, but the shape is {shape}")
        self._rgb_dim = rgb_dim

    def average(self, observation: Array) -> Array:
        """[..., 3, ...] -> [..., ...]."""
        return np.asarray(np.moveaxis(observation, self._rgb_dim, -1) @ GRAY_WEIGHTS)


class ResizeImgPreProcessor(AveragingPreProcessor):
    """Resizes an image linearly, and where it shrinks with a filter as wide as what a new pixel covers.

    That is the bilinear filter of Pillow, and of torch with `antialias=True`. It can be separated, so that an image
    costs two products with matrices that are computed once.

    Args:
        observation_space: A Box of [height, width], [height, width, channels] or [channels, height, width].
        target_size: New height and width.
        transpose: Whether channels come first.
    """

    tag = "resize_img"

    def __init__(
        self, observation_space: spaces.Space[Any], target_size: Sequence[int], transpose: bool = False
    ) -> None:
        super().__init__(observation_space)
        shape = self.box(2).shape
        if len(target_size) != 2 or min(target_size) < 1 or len(shape) > 3:
            raise ValueError(
                f"target_size={list(target_size)} must be [height, width], for 2 or 3 dimensions, not {shape}"
            )
        self._channels_last = len(shape) == 3 and not transpose
        height, width = shape[:2] if self._channels_last else shape[-2:]
        self._rows, self._columns = _weights(height, target_size[0]), _weights(width, target_size[1]).T

    def average(self, observation: Array) -> Array:
        """[height, width], with channels before or after them, -> the same with the new height and width."""
        image = observation.transpose(2, 0, 1) if self._channels_last else observation
        image = self._rows @ image @ self._columns
        return image.transpose(1, 2, 0) if self._channels_last else image


def _weights(size: int, target: int) -> Array:
    """[target, size] weights of the original pixels in each new one: a triangle around its centre."""
    scale = size / target
    centre = (np.arange(target)[:, np.newaxis] + 0.5) * scale - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(size) - centre) / max(scale, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)
