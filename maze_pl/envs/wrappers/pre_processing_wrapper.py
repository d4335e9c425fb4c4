"""Pre-processes observations before networks get them, each by a pipeline of its own."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import import_class
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.structured_env import Array, Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper

Space = spaces.Space[Any]
_NAME = "PreProcessingWrapper"

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

    def __init__(self, observation_space: Space) -> None:
        self.observation_space = observation_space

    @abstractmethod
    def process(self, observation: Array) -> Array:
        """The other observation; it may share memory with the given one, which is left as it is."""

    def processed_space(self) -> Space:
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
    """Turns one of n categories into a vector of length n, which is 1 at the category and 0 elsewhere.

    Args:
        observation_space: A Discrete; its first category, whatever `start` is, comes first in the vector.
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
            raise ValueError(f"{int(observation)} is none of the categories of {self.observation_space}")
        vector[index] = 1.0
        return vector

    def processed_space(self) -> Space:
        """A Box of [n] from 0 to 1."""
        return spaces.Box(0.0, 1.0, (self._n,), np.float32)


class TransposePreProcessor(PreProcessor):
    """Puts dimensions into another order: with axes 2, 0, 1, an image [height, width, 3] becomes [3, height, width].

    Args:
        observation_space: A Box.
        axes: For each new dimension, which of the original ones it is.
    """

    tag = "transpose"

    def __init__(self, observation_space: Space, axes: Sequence[int]) -> None:
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

    def __init__(self, observation_space: Space, dim: int) -> None:
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

    def __init__(self, observation_space: Space) -> None:
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

    def processed_space(self) -> Space:
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
    """Resizes an image linearly, and where it shrinks with a filter as wide as what a new pixel covers.

    That is the bilinear filter of Pillow, and of torch with `antialias=True`. It can be separated, so that an image
    costs two products with matrices that are computed once.

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
        self._rows, self._columns = _weights(height, target_size[0]), _weights(width, target_size[1]).T

    def average(self, observation: Array) -> Array:
        """[height, width], with channels before or after them, -> the same with the new height and width."""
        image = observation.transpose(2, 0, 1) if self._channels_last else observation
        image = self._rows @ image @ self._columns
        return image.transpose(1, 2, 0) if self._channels_last else image


class PreProcessingWrapper(ObservationWrapper):
    """Turns observations into others by pre-processors, one after the other.

    What `FlattenPreProcessor` makes of the observation `image` is called `image-flatten`; later entries may go on with
    that. An observation that only some sub-steps have is processed in these, and the spaces follow.

    Args:
        env: The environment to wrap.
        pre_processor_mapping: In their order, entries of `observation`, `class_path` (or the class) of its
            pre-processor, `config` with further arguments of that, and `keep_original`: whether the observation stays
            beside what is made of it, which by default it does not.

    Raises:
        ValueError: An observation is unknown, used before it is made or after it was removed, made twice, of a space
            that its pre-processor cannot take, or would be removed though it is an action mask; an entry is wrong, or
            a pre-processor is none.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.envs.wrappers import OneHotPreProcessor, UnSqueezePreProcessor
        >>> mapping = [
        ...     {"observation": "observation", "class_path": OneHotPreProcessor, "keep_original": True},
        ...     {"observation": "observation-one_hot", "class_path": UnSqueezePreProcessor, "config": {"dim": 0}},
        ... ]
        >>> env = PreProcessingWrapper(GymMazeEnv("FrozenLake-v1"), mapping)
        >>> {name: space.shape for name, space in env.observation_space.items()}
        {'observation': (), 'observation-one_hot-unsqueeze': (1, 16)}
    """

    def __init__(self, env: StructuredEnv, pre_processor_mapping: list[dict[str, Any]]) -> None:
        super().__init__(env)
        found = {key: dict(space.spaces) for key, space in env.observation_spaces_dict.items()}
        masks = {name for step_masks in env.action_masks_dict.values() for name in step_masks.values()}
        self._pipeline: list[tuple[str, str, Callable[[Array], Array], bool, Space]] = []
        for name, output, keep, make in [_entry(entry) for entry in pre_processor_mapping]:
            holders = [parts for parts in found.values() if name in parts]
            names = {name for parts in found.values() for name in parts}
            try:
                if not holders:
                    raise ValueError(f"not among {sorted(names)}, those before this entry; is the order wrong?")
                if output in names:
                    raise ValueError(f"{output!r} exists already")
                if name in masks and not keep:
                    raise ValueError("it serves as an action mask and must stay; set keep_original: true")
                space = holders[0][name]
                if any(parts[name] != space for parts in holders):
                    raise ValueError(f"it has different spaces in different sub-steps, such as {space}; rename one")
                processor = make(space)
                processed = processor.processed_space()
            except (TypeError, ValueError) as error:
                raise ValueError(f"{_NAME}: observation {name!r}: {error}") from error
            self._pipeline.append((name, output, processor.process, keep, space))
            for parts in holders:
                parts[output] = processed
                if not keep:
                    del parts[name]
        self._observation_spaces = {key: spaces.Dict(parts) for key, parts in found.items()}

    def observation(self, observation: Observation) -> Observation:
        """Process what is to be processed.

        Raises:
            EnvContractError: An observation cannot be processed because it is not in its space.
        """
        processed = dict(observation)
        for name, output, process, keep, space in self._pipeline:
            if name in processed:
                value = np.asarray(processed[name] if keep else processed.pop(name))
                try:
                    processed[output] = process(value)
                except Exception as error:
                    if space.contains(value):
                        raise
                    raise EnvContractError(f"{_NAME}: {name!r} is {describe(value)}, not in {space}") from error
        return processed


def _entry(entry: Mapping[str, Any]) -> tuple[str, str, bool, Callable[..., PreProcessor]]:
    """Name, name of the result, whether the original stays, and what makes the pre-processor of a space."""
    if not {"observation", "class_path"} <= entry.keys() <= {"observation", "class_path", "keep_original", "config"}:
        raise ValueError(f"{_NAME}: {dict(entry)} needs observation and class_path, may have keep_original and config")
    name = entry["observation"]
    kind: Any = import_class(entry["class_path"], PreProcessor, f"{_NAME}: observation {name!r}: ")
    output = f"{name}-{kind.tag or kind.__module__.rpartition('.')[2]}"
    return name, output, bool(entry.get("keep_original")), partial(kind, **(entry.get("config") or {}))


def _weights(size: int, target: int) -> Array:
    """[target, size] weights of the original pixels in each new one: a triangle around its centre."""
    scale = size / target
    centre = (np.arange(target)[:, np.newaxis] + 0.5) * scale - 0.5
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(size) - centre) / max(scale, 1.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)
