"""NumPy sampling of actions, with the same random numbers as the distributions.

Both paths give the same actions up to rounding; this one costs less for a handful of actors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl import distributions
from maze_pl.core.policy import Array
from maze_pl.distributions.probability_distribution import choice_sizes

TORCH_TYPES: dict[Any, torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}
"""NumPy types that are supported -> torch types."""


class Sampling(NamedTuple):
    """Options of sampling.

    Attributes:
        deterministic: Whether to take the most likely action.
        temperature: Above 1 flattens the distributions, below 1 sharpens them.
        generator: Source of randomness.
        exploration: Scale of exploration, for distributions that have one.
    """

    deterministic: bool
    temperature: float
    generator: torch.Generator | None
    exploration: float = 0.0


class _Head(NamedTuple):
    """An action head.

    Attributes:
        name: Its name.
        choose: Function that samples its actions; None if only its distribution can.
        space: Its space.
        logits_shape: Shape of its logits, without batch dimension.
    """

    name: str
    choose: Callable[[Array, Array | None, Any, Sampling], Any] | None
    space: spaces.Space[Any]
    logits_shape: tuple[int, ...]


class NumpySampler:
    """Samples the same actions as the distributions of one sub-step.

    Args:
        mapper: The distributions of the heads.
    """

    def __init__(self, mapper: distributions.DistributionMapper) -> None:
        self._heads: list[_Head] = []
        for name, (distribution, space) in mapper.heads.items():
            choose = _CHOICES.get(distribution)
            self._heads.append(_Head(name, choose, space, mapper.required_logits_shape(name)))

    def choose(
        self, logits: Mapping[str, Array], allowed: Mapping[str, Array], sampling: Sampling
    ) -> dict[str, Array] | None:
        """Return head -> [B, ...] actions, or None if the distributions themselves must sample.

        Args:
            logits: Head -> [B, L] outputs of the network.
            allowed: Head -> [B, L] mask of allowed entries, for masked heads.
            sampling: Options of sampling.
        """
        temperature = sampling.temperature
        generator = sampling.generator
        if not temperature > 0 or (generator is not None and generator.device.type != "cpu"):
            return None
        action = {}
        for head, choose, space, logits_shape in self._heads:
            array = logits[head]
            mask = allowed.get(head)
            if choose is None or array.shape[1:] != logits_shape:
                return None
            if mask is not None and mask.shape != array.shape and choose is not _epsilon_greedy:
                return None
            if temperature != 1.0 and choose is not _gaussian:
                if choose in _NOT_SCALED:
                    return None
                array = _scaled(array, temperature)
            action[head] = choose(array, mask, space, sampling)
        return action


def numpy_views(tensors: Mapping[str, Tensor]) -> dict[str, Array] | None:
    """Return the tensors as arrays, or None if that would move or convert them."""
    for tensor in tensors.values():
        if tensor.device.type != "cpu" or tensor.dtype not in TORCH_TYPES.values():
            return None
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def numpy_sigmoid(x: Array) -> Array:
    """Compute the logistic function without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


# [B, ...] actions from [B, L] logits and [B, L] boolean masks. Logits are already divided by the
# temperature, except for normal distributions. Where infinities can arise, warnings of NumPy are
# switched off, since torch does not warn either; this costs as much as two operations.

_WITHOUT_WARNINGS = np.errstate(all="ignore")

_LOWEST = {dtype: np.full((), -np.finfo(dtype).max, dtype) for dtype in TORCH_TYPES}
_MASKED_BY_NETWORK = -1e25
"""Limit of logits, divided by a temperature; the lowest number, which masks an option, is below it."""
_TINY = {dtype: np.full((), np.finfo(dtype).tiny, dtype) for dtype in TORCH_TYPES}


@_WITHOUT_WARNINGS
def _scaled(logits: Array, temperature: float) -> Array:
    return logits / float(temperature)


def _uniform(like: Array, sampling: Sampling) -> Any:
    dtype = TORCH_TYPES[like.dtype]
    return torch.rand(like.shape, generator=sampling.generator, dtype=dtype).numpy()


def _allowed(logits: Array, mask: Array | None) -> Array:
    """[B, L] logits as `masked_logits` returns them."""
    if mask is None:
        return logits
    lowest = _LOWEST[logits.dtype]
    return np.where(mask, np.maximum(logits, 0.5 * lowest), lowest)


def _categorical(logits: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    index = _index(logits, mask, sampling)
    return index + int(space.start) if space.start else index


def _index(logits: Array, mask: Array | None, sampling: Sampling) -> Any:
    """[B] the most likely index, or one sampled by the exponential race of `sample_index`.

    The largest p / e, e exponential, is the largest log p - log e. Entries that the network masks score
    far below all others, and entries that the mask forbids below these; both are ordered by 1 / e.
    """
    if sampling.deterministic:
        return _allowed(logits, mask).argmax(-1)
    exponential = -np.log(np.maximum(_uniform(logits, sampling), _TINY[logits.dtype]))
    score = logits - np.log(exponential)
    if mask is not None:
        score = np.where(logits < _MASKED_BY_NETWORK, -1e20 * exponential, score)
        score = np.where(mask, score, -1e36 * exponential)
    return score.argmax(-1)


def _by_choice(logits: Array, mask: Array | None, sizes: Sequence[int] | Array) -> list[tuple[Array, Array | None]]:
    """Split logits [B, L] and their mask into those of each choice.

    Args:
        logits: [B, L], of all choices one after the other.
        mask: [B, L], likewise; None if all options are allowed.
        sizes: Number of options of each choice.
    """
    bounds = np.cumsum(sizes)[:-1]
    parts = np.split(logits, bounds, axis=-1)
    if mask is None:
        return [(part, None) for part in parts]
    return list(zip(parts, np.split(mask, bounds, axis=-1), strict=True))


def _multi_categorical(logits: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    choices = _by_choice(logits, mask, space.nvec)
    columns = [_index(part, part_mask, sampling) for part, part_mask in choices]
    return np.stack(columns, axis=-1).reshape(len(logits), *space.shape)


@_WITHOUT_WARNINGS
def _bernoulli(logits: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    logits = _allowed(logits, mask)
    bits = logits > 0
    if not sampling.deterministic:
        bits = _uniform(logits, sampling) < numpy_sigmoid(logits)
    return bits.astype(np.int8).reshape(len(logits), *space.shape)


@_WITHOUT_WARNINGS
def _gaussian(logits: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    action, log_std = np.split(logits, 2, axis=-1)
    if not sampling.deterministic:
        dtype = TORCH_TYPES[logits.dtype]
        noise = torch.randn(action.shape, generator=sampling.generator, dtype=dtype).numpy()
        action = action + np.exp(log_std + 0.5 * math.log(sampling.temperature)) * noise
    return action.reshape(len(logits), *space.shape)


@_WITHOUT_WARNINGS
def _epsilon_greedy(values: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    sizes = choice_sizes(space)
    if mask is not None and isinstance(space, spaces.MultiBinary):
        mask = np.stack((np.ones_like(mask), mask), axis=-1).reshape(values.shape)
    choices = [(values, mask)] if len(sizes) == 1 else _by_choice(values, mask, sizes)
    columns = [_greedy_or_random(part, part_mask, sampling) for part, part_mask in choices]
    if isinstance(space, spaces.Discrete):
        return columns[0] + int(space.start) if space.start else columns[0]
    action = np.stack(columns, axis=-1).reshape(len(values), *space.shape)
    return action.astype(np.int8) if isinstance(space, spaces.MultiBinary) else action


def _greedy_or_random(values: Array, mask: Array | None, sampling: Sampling) -> Any:
    """[B] the best option, or any with probability `exploration`, by the same race as `_index`."""
    best = _allowed(values, mask).argmax(-1)
    if sampling.deterministic:
        return best
    is_allowed = values >= 0.5 * _LOWEST[values.dtype]  # others are masked by the network
    if mask is not None:
        is_allowed &= mask
        has_none = ~is_allowed.any(-1)
        is_allowed[has_none] = mask[has_none]
    is_allowed[~is_allowed.any(-1)] = True
    allowed = is_allowed.astype(values.dtype)
    probability = allowed / allowed.sum(-1, keepdims=True) * values.dtype.type(sampling.exploration)
    probability[np.arange(len(values)), best] += values.dtype.type(1.0 - sampling.exploration)
    exponential = -np.log(np.maximum(_uniform(values, sampling), _TINY[values.dtype]))
    return (probability / exponential).argmax(-1)


@_WITHOUT_WARNINGS
def _deterministic(logits: Array, mask: Array | None, space: Any, sampling: Sampling) -> Any:
    dtype = logits.dtype.type
    half_width = ((space.high - space.low.astype(np.float64)) / 2).astype(dtype)
    centre = ((space.low + space.high.astype(np.float64)) / 2).astype(dtype)
    action = centre + half_width * np.tanh(logits.reshape(len(logits), *space.shape))
    if not sampling.deterministic:
        noise = torch.randn(action.shape, generator=sampling.generator, dtype=TORCH_TYPES[logits.dtype]).numpy()
        action = np.clip(action, space.low, space.high) + half_width * (noise * dtype(sampling.exploration))
    return np.clip(action, space.low, space.high).astype(dtype, copy=False)


_CHOICES: dict[Any, Callable[[Array, Array | None, Any, Sampling], Any]] = {
    distributions.CategoricalProbabilityDistribution: _categorical,
    distributions.MultiCategoricalProbabilityDistribution: _multi_categorical,
    distributions.BernoulliProbabilityDistribution: _bernoulli,
    distributions.DiagonalGaussianProbabilityDistribution: _gaussian,
    distributions.EpsilonGreedyProbabilityDistribution: _epsilon_greedy,
    distributions.DeterministicProbabilityDistribution: _deterministic,
}

_NOT_SCALED = (_epsilon_greedy, _deterministic)
"""Choices for which a temperature does more than divide logits; the distributions themselves apply it."""
