"""Pre-processing of observations before they reach the policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.class_path import import_class, is_defined_with
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.pre_processing_array_wrapper import PreProcessingArrayWrapper
from maze_pl.envs.contract import EnvContractError, describe
from maze_pl.envs.no_tensor_form_error import NoTensorFormError
from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper
from maze_pl.envs.wrappers.pre_processors import PreProcessor, Space

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv

_NAME = "PreProcessingWrapper"


class PipelineEntry(NamedTuple):
    """A pre-processor and its place.

    Attributes:
        observation: Name of the observation that it processes.
        output: Name of the result.
        processor: The pre-processor.
        keep: Whether the observation is kept.
        space: Space of the observation.
    """

    observation: str
    output: str
    processor: PreProcessor
    keep: bool
    space: Space


class PreProcessingWrapper(ObservationWrapper):
    """Transforms observations with pre-processors, one after the other.

    The result of `FlattenPreProcessor` for the observation `image` is called `image-flatten`; later
    entries may process it further. An observation that only some sub-steps have is processed in
    these, and the spaces change accordingly.

    Args:
        env: The environment to wrap.
        pre_processor_mapping: Entries in the order of processing: `observation`, `class_path` (or
            the class) of its pre-processor, `config` with further arguments of the pre-processor,
            and `keep_original`: whether the observation is kept in addition to the result; no by
            default.

    Attributes:
        pipeline: The pre-processors in the order of processing.

    Raises:
        ValueError: An observation is unknown, used before it is made or after it was removed, made
            twice, of a space that its pre-processor does not support, or would be removed though it
            is an action mask; an entry is wrong, or a class is not a pre-processor.

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
        self.pipeline: list[PipelineEntry] = []
        for name, output, keep, make in [_entry(entry) for entry in pre_processor_mapping]:
            try:
                space = _space_of(name, output, found.values(), is_lost_mask=name in masks and not keep)
                processor = make(space)
                processed = processor.processed_space()
            except (TypeError, ValueError) as error:
                raise ValueError(f"{_NAME}: observation {name!r}: {error}") from error
            self.pipeline.append(PipelineEntry(name, output, processor, keep, space))
            for parts in found.values():
                if name in parts:
                    parts[output] = processed
                    if not keep:
                        del parts[name]
        self._observation_spaces = {key: spaces.Dict(parts) for key, parts in found.items()}

    def observation(self, observation: Observation) -> Observation:
        """Apply the pre-processors.

        Raises:
            EnvContractError: An observation cannot be processed because it is not in its space.
        """
        return self.processed(observation, False)

    def processed(self, observation: Mapping[str, Any], is_many: bool) -> dict[str, Any]:
        """Apply the pre-processors.

        Args:
            observation: Name -> an observation, or [n, ...] many of them.
            is_many: Whether they are many.

        Raises:
            EnvContractError: An observation cannot be processed because it is not in its space.
        """
        processed = dict(observation)
        for name, output, processor, keep, space in self.pipeline:
            if name in processed:
                value = np.asarray(processed[name] if keep else processed.pop(name))
                try:
                    processed[output] = processor.process_all(value) if is_many else processor.process(value)
                except Exception as error:
                    if all(map(space.contains, value if is_many else [value])):
                        raise
                    raise EnvContractError(f"{_NAME}: {name!r} is {describe(value)}, not in {space}") from error
        return processed

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return PreProcessingArrayWrapper(env, self)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors.

        Raises:
            NoTensorFormError: A pre-processor has no function for tensors, or an outdated one.
        """
        from maze_pl.envs.tensors.pre_processing_tensor_wrapper import PreProcessingTensorWrapper

        for kind in (type(entry.processor) for entry in self.pipeline):
            if not is_defined_with(kind, "tensor_function", "process"):
                fault = f"{kind.__name__} has no function for tensors, only process"
                raise NoTensorFormError(fault)
        return PreProcessingTensorWrapper(env, self)


def _space_of(name: str, output: str, sub_steps: Collection[Mapping[str, Space]], is_lost_mask: bool) -> Space:
    """Return the space of an observation that is to be processed.

    Args:
        name: Name of the observation.
        output: Name of the result.
        sub_steps: For each sub-step, the observations before this entry with their spaces.
        is_lost_mask: Whether an action mask would be removed.

    Raises:
        ValueError: There is no such observation or it has several spaces, there is an observation with the name of
            the result, or a mask would be removed.
    """
    holders = [parts for parts in sub_steps if name in parts]
    names = {name for parts in sub_steps for name in parts}
    if not holders:
        raise ValueError(f"not among {sorted(names)}, those before this entry; is the order wrong?")
    if output in names:
        raise ValueError(f"{output!r} exists already")
    if is_lost_mask:
        raise ValueError("it serves as an action mask and must stay; set keep_original: true")
    space = holders[0][name]
    if any(parts[name] != space for parts in holders):
        raise ValueError(f"it has different spaces in different sub-steps, such as {space}; rename one")
    return space


def _entry(entry: Mapping[str, Any]) -> tuple[str, str, bool, Callable[..., PreProcessor]]:
    """Name, name of the result, keep the original or not, and factory of the pre-processor."""
    if not {"observation", "class_path"} <= entry.keys() <= {"observation", "class_path", "keep_original", "config"}:
        raise ValueError(f"{_NAME}: {dict(entry)} needs observation and class_path, may have keep_original and config")
    name = entry["observation"]
    kind: Any = import_class(entry["class_path"], PreProcessor, f"{_NAME}: observation {name!r}: ")
    output = f"{name}-{kind.tag or kind.__module__.rpartition('.')[2]}"
    make = partial(kind, **(entry.get("config") or {}))
    return name, output, bool(entry.get("keep_original")), make
