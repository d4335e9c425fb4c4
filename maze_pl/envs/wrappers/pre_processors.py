"""Pre-processors, each of which turns one observation into another."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array

Space = spaces.Space[Any]

# 0.299, 0.587 and 0.114 (ITU-R BT.601) in 1/65536: their sum is 1, and in float32 grays of bytes are exact.
GRAY_WEIGHTS: Final = (np.array([19595, 38470, 7471]) / 65536).astype(np.float32)


class PreProcessor(ABC):
    """Turns an observation into another one, by a pure function of its array.

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


class FlattenPreProcessor(PreProcessor):
    """Flattens the last dimensions to one: with two of them, [5, 3, 2] becomes [5, 6].

    Args:
        observation_space: A Box.
        num_flatten_dims: Number of dimensions to flatten, counted from the right.
    """

    tag = "flatten"

    def __init__(self, observation_space: Space, num_flatten_dims: int) -> None:
        super().__init__(observation_space)
        if num_flatten_dims < 1:
            raise ValueError(f"num_flatten_dims={num_flatten_dims} must be at least 1")
        shape = self.box(num_flatten_dims).shape
        self._shape = (*shape[:-num_flatten_dims], math.prod(shape[-num_flatten_dims:]))

    def process(self, observation: Array) -> Array:
        """[..., a, b] -> [..., a * b]."""
        return observation.reshape(self._shape)


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
        vector, index = np.zeros(self._n, np.float32), int(observation) - self._start
        if not 0 <= index < self._n:
            raise ValueError(f"{int(observation)} is not one of the categories of {self.observation_space}")
        vector[index] = 1.0
        return vector

    def processed_space(self) -> Space:
        """A Box of [n] from 0 to 1."""
        return spaces.Box(0.0, 1.0, (self._n,), np.float32)


class TransposePreProcessor(PreProcessor):
    """Permutes dimensions: with axes 2, 0, 1, [height, width, 3] becomes [3, height, width].

    Args:
        observation_space: A Box.
        axes: For each new dimension, the index of the original one.
    """

    tag = "transpose"

    def __init__(self, observation_space: Space, axes: Sequence[int]) -> None:
        super().__init__(observation_space)
        own = list(range(len(self.box().shape)))
        if sorted(axes) != own:
            raise ValueError(f"axes={list(axes)} must hold each of {own} once, in any order")
        self._axes = tuple(axes)

    def process(self, observation: Array) -> Array:
        """Return a view with the dimensions in their new order."""
        return observation.transpose(self._axes)


class UnSqueezePreProcessor(PreProcessor):
    """Inserts a dimension of length 1: at -3, a gray image [height, width] becomes [1, height, width].

    Args:
        observation_space: A Box.
        dim: Index of the new dimension in the result, counted from the right if negative.
    """

    tag = "unsqueeze"

    def __init__(self, observation_space: Space, dim: int) -> None:
        super().__init__(observation_space)
        self._shape = np.expand_dims(self.box().low, dim).shape

    def process(self, observation: Array) -> Array:
        """[a, b] -> [1, a, b], for example."""
        return observation.reshape(self._shape)


class AveragingPreProcessor(PreProcessor):
    """Base class of pre-processors that compute weighted means, within the range of the original.

    Means of bytes (uint8) are rounded to bytes, halves up, so that images stay small until they
    reach the network; all others are float32.

    Args:
        observation_space: A Box.
    """

    def __init__(self, observation_space: Space) -> None:
        super().__init__(observation_space)
        space = self.box()
        self._range = float(space.low.min()), float(space.high.max())
        self._bytes = space.dtype == np.uint8

    @abstractmethod
    def average(self, observation: Array) -> Array:
        """Means of an observation in float32."""

    def process(self, observation: Array) -> Array:
        """Means, rounded for bytes; otherwise clipped, as rounding errors may exceed the range."""
        means = self.average(observation.astype(np.float32))
        return (means + 0.5).astype(np.uint8) if self._bytes else np.clip(means, *self._range)

    def processed_space(self) -> Space:
        """Space with the range of the original one, even if that is infinite."""
        shape = self.average(np.zeros(self.box().shape, np.float32)).shape
        return spaces.Box(*self._range, shape, np.uint8 if self._bytes else np.float32)


class Rgb2GrayPreProcessor(AveragingPreProcessor):
    """Turns colours into their brightness 0.299 r + 0.587 g + 0.114 b; drops the colour dimension.

    Args:
        observation_space: A Box with a dimension of length 3.
        rgb_dim: Index of that dimension (red, green, blue), counted from the right if negative.
    """

    tag = "rgb2gray"

    def __init__(self, observation_space: Space, rgb_dim: int = -1) -> None:
        super().__init__(observation_space)
        shape = self.box().shape
        if not -len(shape) <= rgb_dim < len(shape) or shape[rgb_dim] != 3:
            raise ValueError(f"the colours, dimension rgb_dim={rgb_dim}, must be 3, but the shape is {shape}")
        self._rgb_dim = rgb_dim

    def average(self, observation: Array) -> Array:
        """[..., 3, ...] -> [..., ...]."""
        return np.asarray(np.moveaxis(observation, self._rgb_dim, -1) @ GRAY_WEIGHTS)


class ResizeImgPreProcessor(AveragingPreProcessor):
    """Resizes an image bilinearly; when shrinking, the filter is as wide as a new pixel.

    This is the bilinear filter of Pillow, and of torch with `antialias=True`. It is separable, so
    an image costs two products with matrices that are computed once.

    Args:
        observation_space: A Box of [height, width], [height, width, channels] or [channels, height, width].
        target_size: New height and width.
        transpose: Whether channels come first.
    """

    tag = "resize_img"

    def __init__(self, observation_space: Space, target_size: Sequence[int], transpose: bool = False) -> None:
        super().__init__(observation_space)
        shape = self.box(2).shape
        if len(target_size) != 2 or min(target_size) < 1 or len(shape) > 3:
            raise ValueError(f"{target_size=} must be [height, width], for 2 or 3 dimensions, not {shape}")
        self._channels_last = len(shape) == 3 and not transpose
        height, width = shape[:2] if self._channels_last else shape[-2:]
        self._rows, self._columns = (
            _weights(height, target_size[0]),
            _weights(width, target_size[1]).T,
        )

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
