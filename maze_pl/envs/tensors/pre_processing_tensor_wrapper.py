"""Pre-processing of observations in tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.tensors.tensor_env import TensorEnv, Tensors
from maze_pl.envs.tensors.tensor_wrapper import TensorWrapper

if TYPE_CHECKING:
    from maze_pl.envs.wrappers.pre_processing_wrapper import PreProcessingWrapper


class PreProcessingTensorWrapper(TensorWrapper):
    """Transforms observations with the pre-processors of the wrapper for single episodes.

    Args:
        env: The environment to wrap.
        wrapper: The wrapper with the pre-processors.

    Raises:
        TypeError: A pre-processor has no function for tensors, or changes `process` after it was defined.
    """

    def __init__(self, env: TensorEnv, wrapper: PreProcessingWrapper) -> None:
        super().__init__(env)
        self._changed_spaces = wrapper.observation_spaces_dict
        self._pipeline = wrapper.pipeline
        for entry in self._pipeline:
            kind = type(entry.processor)
            if not is_defined_with(kind, "tensor_function", "process"):
                raise TypeError(f"{kind.__name__} has no function for tensors, only process")
            entry.processor.tensor_function(torch.device("cpu"))

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Space of the processed observations of each sub-step."""
        return self._changed_spaces

    def make_tensors(self, n_envs: int) -> None:
        """Make the functions with their constants."""
        processors = [entry.processor for entry in self._pipeline]
        self._functions = [processor.tensor_function(self.device) for processor in processors]

    def observation(self, step_key: StepKey, observation: Tensors) -> Tensors:
        """Apply the pre-processors."""
        processed = dict(observation)
        for entry, function in zip(self._pipeline, self._functions, strict=True):
            if entry.observation in processed:
                values = processed[entry.observation]
                if not entry.keep:
                    del processed[entry.observation]
                processed[entry.output] = function(values)
        return processed
