"""Stacks of the observations of several steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.observation_stack_array_wrapper import ObservationStackArrayWrapper
from maze_pl.envs.structured_env import Array, Dicts, Observation, ResetResult, StructuredEnv
from maze_pl.envs.wrapper import ObservationWrapper

if TYPE_CHECKING:
    from maze_pl.envs.tensors.tensor_env import TensorEnv

History = dict[str, Array]
"""Name of each stack -> [stack_steps, ...] the latest observations, the newest last."""


@dataclass(frozen=True)
class StackConfig:
    """Configuration of one stack; see `ObservationStackWrapper`."""

    observation: str
    stack_steps: int
    keep_original: bool = False
    tag: str | None = None
    delta: bool = False

    @property
    def name(self) -> str:
        """Name of the stack."""
        return self.observation if self.tag is None else f"{self.observation}-{self.tag}"

    def space(self, space: spaces.Space[Any]) -> spaces.Box:
        """Space of the stack."""
        if not isinstance(space, spaces.Box) or self.stack_steps < 1:
            wrong = f"{self.observation!r}, {space}, cannot be stacked {self.stack_steps} times"
            raise ValueError(f"observation {wrong}; stack at least 1, of a Box (PreProcessingWrapper encodes others)")
        low, high = (np.repeat(bound[np.newaxis], self.stack_steps, axis=0) for bound in (space.low, space.high))
        if self.delta:
            low, high = (bound.astype(np.result_type(bound, np.float32)) for bound in (low, high))
            with np.errstate(over="ignore"):  # bounds at the largest float become infinite
                low[:-1], high[:-1] = low[-1] - high[-1], high[-1] - low[-1]
        return spaces.Box(low, high, dtype=low.dtype.type)

    def next(self, history: History, observation: Array) -> Array:
        """The stack with one more observation, which also becomes part of the history."""
        earlier = history.get(self.name)
        if earlier is None:
            earlier = np.repeat(observation[np.newaxis], self.stack_steps, axis=0)
        latest = history[self.name] = np.concatenate([earlier[1:], observation[np.newaxis]])
        if self.delta:
            latest = latest.astype(np.result_type(latest, np.float32))
            latest[:-1] = latest[-1] - latest[:-1]
        return latest


class ObservationStackWrapper(ObservationWrapper):
    """Stacks an actor's latest observations along a new first axis, the newest last.

    Each actor (sub-step and agent) has separate stacks. Its first observation of an episode fills
    all entries. Options of each stack in `stack_config`:

    - `observation`: name of the observation, a Box; it is stacked in every sub-step that has it
    - `keep_original`: whether to keep the single observation, too; the stack then needs a tag; no
      by default
    - `tag`: the stack is called `<observation>-<tag>`, or like the observation if None, the default
    - `delta`: whether each entry but the newest is the newest minus the earlier observation, as
      floats; no by default
    - `stack_steps`: number of observations in a stack, the newest included

    Args:
        env: The environment to wrap.
        stack_config: One entry for each stack.

    Attributes:
        stacks: The stacks.
        dropped: Observations that are replaced by their stacks.

    Raises:
        TypeError: An option is unknown or missing.
        ValueError: An observation is unknown or not a Box, `stack_steps` is below 1, a name would
            occur twice, or an action mask would be replaced.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> stack = {"observation": "observation", "keep_original": True, "tag": "stacked", "stack_steps": 3}
        >>> env = ObservationStackWrapper(GymMazeEnv("CartPole-v1"), stack_config=[stack])
        >>> {name: space.shape for name, space in env.observation_space.items()}
        {'observation': (4,), 'observation-stacked': (3, 4)}
    """

    has_history = True

    def __init__(self, env: StructuredEnv, stack_config: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(env)
        self.stacks = [StackConfig(**entry) for entry in stack_config]
        self.dropped = {stack.observation for stack in self.stacks if not stack.keep_original}
        known = {name for space in env.observation_spaces_dict.values() for name in space.spaces}
        if unknown := {stack.observation for stack in self.stacks} - known:
            raise ValueError(f"stack_config names {sorted(unknown)}, which are not among {sorted(known)}")
        masks = {name for step_masks in env.action_masks_dict.values() for name in step_masks.values()}
        if replaced := masks & ({stack.name for stack in self.stacks} | self.dropped):
            remedy = "set keep_original: true, and a tag"
            raise ValueError(f"stack_config replaces {sorted(replaced)}, which serve as action masks; {remedy}")
        self._observation_spaces = {}
        for key, space in env.observation_spaces_dict.items():
            stacked = {name: part for name, part in space.items() if name not in self.dropped}
            for stack in [stack for stack in self.stacks if stack.observation in space.spaces]:
                if stack.name in stacked:
                    raise ValueError(f"stack_config makes two observations {stack.name!r} in {key!r}; use tags")
                stacked[stack.name] = stack.space(space[stack.observation])
            self._observation_spaces[key] = spaces.Dict(stacked)
        self._live: dict[Hashable, History] = {}  # by actor
        self._recorded: dict[Hashable, History] = {}  # by sub-step

    def observation(self, observation: Observation) -> Observation:
        """Stack the observation of the actor that acts next."""
        return self._stacked(self._live.setdefault(self.env.actor_id(), {}), observation)

    def _stacked(self, history: History, observation: Observation) -> Observation:
        """Add an observation to the history, and return it with its stacks."""
        stacked = {name: value for name, value in observation.items() if name not in self.dropped}
        for stack in self.stacks:
            if stack.observation in observation:
                stacked[stack.name] = stack.next(history, observation[stack.observation])
        return stacked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with new stacks."""
        self._live.clear()
        return super().reset(seed=seed, options=options)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert recorded states, in the order of recording, with separate stacks.

        All agents of a sub-step share these stacks, as a state does not tell which agent it belongs
        to.
        """
        inner = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        observations, actions = inner
        if first_step_in_episode:
            self._recorded.clear()
        if observations is None:
            return None, actions
        stacked = {}
        for key, observation in observations.items():
            stacked[key] = self._stacked(self._recorded.setdefault(key, {}), observation)
        return stacked, actions

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        """Return the form for array environments."""
        return ObservationStackArrayWrapper(env, self)

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        """Return the form for environments in tensors."""
        from maze_pl.envs.tensors.observation_stack_tensor_wrapper import ObservationStackTensorWrapper

        return ObservationStackTensorWrapper(env, self)
