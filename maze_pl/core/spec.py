"""What an agent sees and does in each sub-step: all that networks, storage and checkpoints know of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space, mask_length, space_from_dict, space_to_dict


class Describable(Protocol):
    """The part of an environment that a `Spec` is read from."""

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step."""

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes."""

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, the observation that masks an action head."""


@dataclass(frozen=True)
class StepSpec:
    """One sub-step: one policy.

    Attributes:
        observation_space: A Dict of leaf spaces.
        action_space: A Dict of leaf spaces; its entries are called heads.
        n_agents: Number of agents that share this policy, -1 if it changes during an episode.
        n_slots: How many of them may be alive at once, which is what storage is made for.
        masks: Action head -> name of the observation whose nonzero entries are allowed.
    """

    observation_space: spaces.Dict
    action_space: spaces.Dict
    n_agents: int = 1
    n_slots: int = 1
    masks: dict[str, str] = field(default_factory=dict)

    @property
    def observation_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each observation, without batch dimensions."""
        return {name: tuple(space.shape or ()) for name, space in self.observation_space.spaces.items()}


@dataclass(frozen=True)
class Spec:
    """The sub-steps of an environment, in the order in which they were declared."""

    steps: dict[StepKey, StepSpec]

    @property
    def step_keys(self) -> tuple[StepKey, ...]:
        """Keys of all sub-steps."""
        return tuple(self.steps)

    @property
    def is_flat(self) -> bool:
        """Whether one agent with one policy acts once in each environment step."""
        return len(self.steps) == 1 and next(iter(self.steps.values())).n_slots == 1

    @classmethod
    def of(
        cls,
        env: Describable,
        max_agents: Mapping[StepKey, int] | None = None,
        masks: Mapping[str, str] | None = None,
    ) -> Spec:
        """Read the specification of an environment.

        Args:
            env: The environment, with all its wrappers.
            max_agents: Slots of each sub-step whose number of agents changes (count -1).
            masks: Further action head -> observation pairs, applied in each sub-step that has both.

        Raises:
            TypeError: A space is not supported, or a continuous head is masked.
            ValueError: A mask names an unknown head or observation or has the wrong length, or `max_agents` is missing.
        """
        max_agents = dict(max_agents or {})
        masks = dict(masks or {})
        steps: dict[StepKey, StepSpec] = {}
        names = [str(key) for key in env.observation_spaces_dict]
        if len(set(names)) != len(names):
            raise ValueError(f"sub-step keys {list(env.observation_spaces_dict)} are not distinct when written as text")
        if unknown_keys := set(max_agents) - set(env.observation_spaces_dict):
            declared = list(env.observation_spaces_dict)
            raise ValueError(f"max_agents names {sorted(map(str, unknown_keys))}; the sub-steps are {declared}")
        for key, observation_space in env.observation_spaces_dict.items():
            observation_space = dict_space(observation_space, f"the observation space of sub-step {key!r}")
            action_space = dict_space(env.action_spaces_dict[key], f"the action space of sub-step {key!r}")
            n_agents = int(env.agent_counts_dict[key])
            n_slots = max_agents.get(key, n_agents)
            if 0 < n_agents != n_slots:
                raise ValueError(
                    f"max_agents={n_slots} for sub-step {key!r}, which always has {n_agents} agents: leave it out"
                )
            if n_slots < 1:
                raise ValueError(
                    f"the number of agents of sub-step {key!r} changes during an episode (count {n_agents}); "
                    f"say how many may be alive at once by max_agents={{{key!r}: ...}}"
                )
            step_masks = dict(env.action_masks_dict.get(key, {})) | {
                head: name
                for head, name in masks.items()
                if head in action_space.spaces and name in observation_space.spaces
            }
            for head, name in step_masks.items():
                _check_mask(key, head, name, observation_space, action_space)
            steps[key] = StepSpec(observation_space, action_space, n_agents, n_slots, step_masks)
        known = {head for step in steps.values() for head in step.masks}
        if unknown := set(masks) - known:
            raise ValueError(f"action masks {sorted(unknown)} fit no sub-step: head or observation does not exist")
        return cls(steps)

    def to_dict(self) -> dict[str, Any]:
        """Describe the specification with YAML types only."""
        return {
            "steps": [
                {
                    "key": key,
                    "observation_space": space_to_dict(step.observation_space),
                    "action_space": space_to_dict(step.action_space),
                    "n_agents": step.n_agents,
                    "n_slots": step.n_slots,
                    "masks": dict(step.masks),
                }
                for key, step in self.steps.items()
            ]
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Spec:
        """Build the specification that `to_dict` described."""
        steps: dict[StepKey, StepSpec] = {}
        for step in description["steps"]:
            observation_space = dict_space(space_from_dict(step["observation_space"]), "observation space")
            action_space = dict_space(space_from_dict(step["action_space"]), "action space")
            masks = dict(step["masks"])
            steps[step["key"]] = StepSpec(observation_space, action_space, step["n_agents"], step["n_slots"], masks)
        return cls(steps)


def _check_mask(key: StepKey, head: str, name: str, observation_space: spaces.Dict, action_space: spaces.Dict) -> None:
    if head not in action_space.spaces:
        raise ValueError(f"mask for unknown action head {head!r} of sub-step {key!r}; heads: {list(action_space)}")
    if name not in observation_space.spaces:
        raise ValueError(f"mask {name!r} of sub-step {key!r} is not among its observations {list(observation_space)}")
    expected = mask_length(action_space.spaces[head], head)
    shape = observation_space.spaces[name].shape
    if shape != (expected,):
        raise ValueError(f"mask {name!r} for head {head!r} has shape {shape}, expected ({expected},)")
