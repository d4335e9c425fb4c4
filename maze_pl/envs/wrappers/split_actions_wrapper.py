"""Several action heads in place of one."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.structured_env import (
    Action,
    Dicts,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
)
from maze_pl.envs.wrappers.replaced_heads_wrapper import ReplacedHeadsWrapper

Parts = Mapping[str, Mapping[str, Sequence[int]]]
"""New head -> `indices` -> entries of the old head that it has."""


class SplitActionsWrapper(ReplacedHeadsWrapper):
    """Splits action heads into several heads, each with some of the entries.

    The mask of a head is split, too: the new head `main` of a head with the mask `allowed` is
    masked by the observation `allowed-main`. The mask of the whole head is removed, unless another
    head uses it.

    Args:
        env: The environment to wrap.
        split_config: Head -> new head -> `{indices: [...]}`, the entries that it has; each entry of the old head must
            belong to exactly one new head. Heads are a Box, MultiDiscrete or MultiBinary with one axis.

    Attributes:
        indices: Head -> new head -> entries of the old head that it has.
        mask_parts: For each sub-step, new mask -> name of the old mask, and entries of it.
        dropped_masks: For each sub-step, the old masks that are removed.

    Raises:
        ValueError: A head is of another kind, unknown, or would occur twice; an entry belongs to no
            new head or to several; or a mask has the wrong length.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> split = {"action": {"main": {"indices": [0]}, "side": {"indices": [1]}}}
        >>> env = SplitActionsWrapper(GymMazeEnv("LunarLanderContinuous-v3"), split_config=split)
        >>> list(env.action_space)
        ['main', 'side']
    """

    def __init__(self, env: StructuredEnv, split_config: Mapping[str, Parts]) -> None:
        self.indices: dict[str, dict[str, list[int]]] = {}
        super().__init__(env, split_config)
        self._masks: dict[StepKey, dict[str, str]] = {}
        self.mask_parts: dict[StepKey, dict[str, tuple[str, list[int]]]] = {}
        self.dropped_masks: dict[StepKey, set[str]] = {}
        for key, masks in env.action_masks_dict.items():
            self._split_masks(key, dict(masks))
        self._has_masks = any(self.mask_parts.values())
        self._observation_spaces = {
            key: self._space_with_masks(key, space) for key, space in env.observation_spaces_dict.items()
        }

    def _split_masks(self, key: StepKey, masks: dict[str, str]) -> None:
        """Determine the masks that replace the masks of split heads in a sub-step."""
        heads = self.env.action_spaces_dict[key].spaces
        observations = self.env.observation_spaces_dict[key].spaces
        whole = {head: masks.pop(head) for head in self._new if head in masks and head in heads}
        parts = self.mask_parts[key] = {}
        for head, name in whole.items():
            ones = np.ones(cast(Any, heads[head]).shape, np.int64)
            n_options = getattr(heads[head], "nvec", ones)  # options of each entry
            found = getattr(observations.get(name), "shape", None)
            expected = (int(n_options.sum()),)
            if found != expected:
                raise ValueError(f"split_config: the mask {name!r} of {head!r} has shape {found}, expected {expected}")
            first = np.cumsum(n_options) - n_options
            for part, indices in self.indices[head].items():
                new = masks[part] = f"{name}-{part}"
                if new in observations:
                    raise ValueError(f"split_config: the mask {new!r} has the name of another observation; rename one")
                entries: list[int] = []  # of the old mask
                for index in indices:
                    entries += range(int(first[index]), int(first[index] + n_options[index]))
                parts[new] = (name, entries)
        self._masks[key] = masks
        self.dropped_masks[key] = set(whole.values()) - set(masks.values())

    def _space_with_masks(self, key: StepKey, space: spaces.Dict) -> spaces.Dict:
        """Observation space of a sub-step with its masks split."""
        if not self.mask_parts.get(key):
            return space
        kept = {name: part for name, part in space.spaces.items() if name not in self.dropped_masks[key]}
        split = {name: _part(space[old], entries) for name, (old, entries) in self.mask_parts[key].items()}
        return spaces.Dict(list({**kept, **split}.items()))

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return self._masks

    def _with_split_masks(self, key: StepKey, observation: Observation) -> Observation:
        """The same observation, with its masks split."""
        if not self.mask_parts.get(key):
            return observation
        kept = {name: value for name, value in observation.items() if name not in self.dropped_masks[key]}
        return kept | {name: observation[old][entries] for name, (old, entries) in self.mask_parts[key].items()}

    def step(self, action: Action) -> StepResult:
        """Join the action, step, and split masks."""
        return self._with_masks_of_next(self.env.step(self.action(action)))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        return self._with_masks_of_next((yield self.action(action)))

    def _with_masks_of_next(self, result: StepResult) -> StepResult:
        """Split the masks of the actor that acts next."""
        if not self._has_masks:
            return result
        return (self._with_split_masks(self.env.actor_id().step_key, result[0]), *result[1:])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and split masks."""
        observation, info = super().reset(seed=seed, options=options)
        if self._has_masks:
            observation = self._with_split_masks(self.env.actor_id().step_key, observation)
        return observation, info

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action, turn the actions back, and split masks."""
        inner = super().get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations, actions = inner
        if observations is not None:
            observations = {key: self._with_split_masks(key, seen) for key, seen in observations.items()}
        return observations, actions

    def replacement(self, head: str, space: Any, entry: Any) -> dict[str, spaces.Space[Any]]:
        """New heads, each a vector of some of the entries."""
        kinds = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
        parts = self.indices[head] = {name: list(part["indices"]) for name, part in entry.items()}
        indices = sorted(index for part in parts.values() for index in part)
        if not isinstance(space, kinds) or indices != list(range(*space.shape)):
            raise ValueError(f"split_config: {head!r}, {space}, is not a vector divided exactly among {parts}")
        return {name: _part(space, indices) for name, indices in parts.items()}

    def joined(self, head: str, values: dict[str, Any]) -> Any:
        """Join all parts to one vector."""
        parts = self.indices[head]
        whole = np.empty(sum(map(len, parts.values())), np.asarray(next(iter(values.values()))).dtype)
        for name, indices in parts.items():
            whole[indices] = values[name]
        return whole

    def divided(self, head: str, value: Any) -> dict[str, Any]:
        """Divide a vector into its parts."""
        return {name: np.asarray(value)[indices] for name, indices in self.indices[head].items()}


def _part(space: Any, indices: list[int]) -> spaces.Space[Any]:
    """Space of some entries of a vector."""
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[indices], space.high[indices], dtype=space.low.dtype.type)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec[indices], dtype=space.dtype.type, start=space.start[indices])
    return spaces.MultiBinary(len(indices))
