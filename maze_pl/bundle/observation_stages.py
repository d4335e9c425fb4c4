"""Observation wrappers as functions of tensors, for batches of observations and for traces.

Each stage computes what its wrapper computes for single arrays in NumPy, in the same types. It
takes observations [B, ...] and the policy state, and returns new observations and the entries of
the state that it changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.envs import wrappers as ours
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.averaging_pre_processor import AveragingPreProcessor
from maze_pl.envs.wrappers.observation_normalization_strategy import ObservationNormalizationStrategy
from maze_pl.envs.wrappers.observation_stack_wrapper import StackConfig
from maze_pl.envs.wrappers.pre_processors import PreProcessor
from maze_pl.envs.wrappers.rgb2_gray_pre_processor import GRAY_WEIGHTS

Tensors = dict[str, Tensor]

_TORCH_TYPES: Final[dict[np.dtype[Any], torch.dtype]] = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.uint16): torch.uint16,
    np.dtype(np.uint32): torch.uint32,
    np.dtype(np.uint64): torch.uint64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}

STARTED: Final = "started"
"""Entry of the policy state: 1 if the actor has acted in its episode, for stacks of observations."""


class ObservationStage(ABC):
    """An observation wrapper as a function of tensors.

    Attributes:
        state: Name -> type and shape of the entries of the policy state that it keeps.
    """

    state: dict[str, tuple[np.dtype[Any], tuple[int, ...]]]

    def __init__(self) -> None:
        self.state = {}

    @abstractmethod
    def apply(self, observation: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        """Return the new observations, and the entries of the state that change.

        Args:
            observation: Name -> [B, ...].
            state: Name -> [B, ...], zero at the start of an episode.
        """

    def origin(self, name: str) -> str | None:
        """Return the name of the observation whose entries are those of a result; None if they were changed.

        Args:
            name: Name of a result.
        """
        return name

    def clips(self, name: str) -> bool:
        """True if an observation of any size becomes finite.

        Args:
            name: Name of an observation that this stage receives.
        """
        return False


def observation_stage(wrapper: Wrapper, key: StepKey, position: int) -> ObservationStage | None:
    """Return the stage of a wrapper; None if it does not change observations.

    Args:
        wrapper: A wrapper that `wrapper_roles` includes.
        key: The sub-step.
        position: Number of the wrapper, for names of entries of the state.
    """
    own: Any = wrapper
    kind = type(wrapper)
    if kind in (ours.ObservationNormalizationWrapper, ours.RunningObservationNormalizationWrapper):
        return _Normalization(own)
    if kind is ours.PreProcessingWrapper:
        return _PreProcessing(own)
    if kind is ours.ObservationStackWrapper:
        return _Stacking(own, key, position)
    if kind is ours.SplitActionsWrapper and own.mask_parts.get(key):
        return _SplitMasks(own, key)
    return None


def constant(array: Any, dtype: np.dtype[Any] | None = None) -> Tensor:
    """Return an array as a tensor that a trace holds."""
    return torch.from_numpy(np.array(array, dtype))


def torch_type(dtype: Any) -> torch.dtype:
    """Return the type of tensors for a type of arrays."""
    return _TORCH_TYPES[np.dtype(dtype)]


def numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the type of arrays for a type of tensors."""
    return next(kind for kind, other in _TORCH_TYPES.items() if other == dtype)


# ------------------------------------------------------------------------------------------------------- normalisation


class _Normalization(ObservationStage):
    """Normalisation of observations with its present statistics."""

    def __init__(self, wrapper: ours.ObservationNormalizationWrapper) -> None:
        super().__init__()
        self._strategies = dict(wrapper.strategies)
        self._takes_infinity = not isinstance(wrapper, ours.RunningObservationNormalizationWrapper)

    def apply(self, observation: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        normalized = dict(observation)
        for name, strategy in self._strategies.items():
            if name in normalized:
                normalized[name] = _normalized(strategy, normalized[name])
        return normalized, {}

    def origin(self, name: str) -> str | None:
        return None if name in self._strategies else name

    def clips(self, name: str) -> bool:
        strategy = self._strategies.get(name)
        if strategy is None or not self._takes_infinity:
            return False
        return bool(np.isfinite([strategy.clip_low, strategy.clip_high]).all())


def _normalized(strategy: ObservationNormalizationStrategy, value: Tensor) -> Tensor:
    """[B, ...] float32, as `ObservationNormalizationStrategy.normalize`."""
    statistics = strategy.statistics
    computed = np.result_type(numpy_type(value.dtype), np.float32)
    if isinstance(strategy, ours.RangeZeroOneObservationNormalizationStrategy):
        shift = statistics["min"]
        width = statistics["max"] - statistics["min"]
        scale = np.where(width > 0, width, np.float32(1))
    else:
        shift = statistics["mean"]
        scale = statistics["std"]
    value = (value.to(torch_type(computed)) - constant(shift, computed)) / constant(scale, computed)
    if np.isfinite(strategy.clip_low):
        value = value.clamp(min=float(strategy.clip_low))
    if np.isfinite(strategy.clip_high):
        value = value.clamp(max=float(strategy.clip_high))
    return value.to(torch.float32)


# ------------------------------------------------------------------------------------------------------ pre-processing


class _PreProcessing(ObservationStage):
    """`PreProcessingWrapper`."""

    def __init__(self, wrapper: ours.PreProcessingWrapper) -> None:
        super().__init__()
        self._pipeline = list(wrapper.pipeline)

    def apply(self, observation: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        processed = dict(observation)
        for entry in self._pipeline:
            if entry.observation in processed:
                value = processed[entry.observation] if entry.keep else processed.pop(entry.observation)
                processed[entry.output] = _processed(entry.processor, value)
        return processed, {}

    def origin(self, name: str) -> str | None:
        for entry in reversed(self._pipeline):
            if entry.output == name:
                if isinstance(entry.processor, ours.OneHotPreProcessor | AveragingPreProcessor):
                    return None
                name = entry.observation
        return name


def _processed(processor: PreProcessor, value: Tensor) -> Tensor:
    """[B, ...] as `PreProcessor.process` for each observation of the batch."""
    if isinstance(processor, ours.OneHotPreProcessor):
        space = cast(spaces.Discrete, processor.observation_space)
        categories = torch.arange(int(space.start), int(space.start) + int(space.n))
        return (value.unsqueeze(-1) == categories).to(torch.float32)
    if isinstance(processor, ours.TransposePreProcessor):
        return value.permute(0, *[axis + 1 for axis in processor.axes])
    if isinstance(processor, AveragingPreProcessor):
        means = _means(processor, value.to(torch_type(processor.computed)))
        return (means + 0.5).to(torch.uint8) if processor.is_bytes else means.clamp(*processor.range)
    return value.reshape(-1, *(processor.processed_space().shape or ()))


def _means(processor: AveragingPreProcessor, image: Tensor) -> Tensor:
    """[B, ...] of the type `computed`, as `AveragingPreProcessor.average`."""
    if isinstance(processor, ours.Rgb2GrayPreProcessor):
        dim = processor.rgb_dim + 1 if processor.rgb_dim >= 0 else processor.rgb_dim
        return image.movedim(dim, -1) @ constant(GRAY_WEIGHTS)
    assert isinstance(processor, ours.ResizeImgPreProcessor)
    image = image.permute(0, 3, 1, 2) if processor.channels_last else image
    image = constant(processor.rows) @ image @ constant(processor.columns)
    if processor.totals is not None:
        image = image / constant(processor.totals)
    return image.permute(0, 2, 3, 1) if processor.channels_last else image


# ------------------------------------------------------------------------------------------------------------ stacking


class _Stacking(ObservationStage):
    """`ObservationStackWrapper`; the histories are entries of the policy state."""

    def __init__(self, wrapper: ours.ObservationStackWrapper, key: StepKey, position: int) -> None:
        super().__init__()
        inner = wrapper.env.observation_spaces_dict[key].spaces
        self._dropped = set(wrapper.dropped)
        self._stacks: dict[str, StackConfig] = {}  # name of the entry -> stack
        for stack in wrapper.stacks:
            if stack.observation in inner:
                name = f"history_{position}_{stack.name}"
                space = inner[stack.observation]
                self._stacks[name] = stack
                self.state[name] = (np.dtype(space.dtype), (stack.stack_steps, *(space.shape or ())))
        if self._stacks:
            self.state[STARTED] = (np.dtype(np.float32), ())

    def apply(self, observation: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        stacked = {name: value for name, value in observation.items() if name not in self._dropped}
        changed: Tensors = {}
        for name, stack in self._stacks.items():
            newest = observation[stack.observation].unsqueeze(1)  # [B, 1, ...]
            further_dimensions = [1] * (newest.dim() - 1)
            has_started = state[STARTED].reshape(-1, *further_dimensions) > 0
            earlier = _where(has_started, state[name][:, 1:], newest)
            latest = torch.cat((earlier, newest), dim=1)
            changed[name] = latest
            if stack.delta:
                latest = latest.to(torch_type(np.result_type(numpy_type(latest.dtype), np.float32)))
                latest = torch.cat((latest[:, -1:] - latest[:, :-1], latest[:, -1:]), dim=1)
            stacked[stack.name] = latest
        if self._stacks:
            changed[STARTED] = torch.ones_like(state[STARTED])
        return stacked, changed

    def origin(self, name: str) -> str | None:
        return None if any(stack.name == name for stack in self._stacks.values()) else name


_WIDER: Final = {
    torch.bool: torch.uint8,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint64: torch.int64,
}
"""Types that `Where` of ONNX Runtime lacks -> types that it has; uint64 is the same bits in int64."""


def _where(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return `torch.where` for numbers of any type, in a type that ONNX Runtime has."""
    kind = first.dtype
    computed = _WIDER.get(kind, kind)
    return torch.where(condition, first.to(computed), second.to(computed)).to(kind)


# --------------------------------------------------------------------------------------------------------------- masks


class _SplitMasks(ObservationStage):
    """The masks of `SplitActionsWrapper`."""

    def __init__(self, wrapper: ours.SplitActionsWrapper, key: StepKey) -> None:
        super().__init__()
        self._parts = dict(wrapper.mask_parts[key])
        self._dropped = set(wrapper.dropped_masks[key])

    def apply(self, observation: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        split = {name: value for name, value in observation.items() if name not in self._dropped}
        for name, (old, entries) in self._parts.items():
            split[name] = observation[old][:, torch.tensor(entries)]
        return split, {}

    def origin(self, name: str) -> str | None:
        return self._parts[name][0] if name in self._parts else name
