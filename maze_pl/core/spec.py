"""Specification of an environment's sub-steps: all that networks, storage and checkpoints know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import dict_space, space_from_dict, space_to_dict


@dataclass(frozen=True)
class StepSpec:
    """Specification of one sub-step, which has one policy.

    Attributes:
        observation_space: A Dict of leaf spaces.
        action_space: A Dict of leaf spaces; its entries are called heads.
        n_agents: Number of agents that share this policy, -1 if it changes during an episode.
        n_slots: Number of agents that may be alive at once; the initial size of storage.
        masks: Action head -> name of its mask, an observation whose entries are 1 where the head is
            allowed, and 0 elsewhere.
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
    """The sub-steps of an environment, in the order of their declaration."""

    steps: dict[StepKey, StepSpec]

    @property
    def step_keys(self) -> tuple[StepKey, ...]:
        """Keys of all sub-steps."""
        return tuple(self.steps)

    @property
    def is_flat(self) -> bool:
        """True if one agent with one policy acts once in each environment step."""
        return len(self.steps) == 1 and next(iter(self.steps.values())).n_agents == 1

    @classmethod
    def of(
        cls, env: Any, max_agents: Mapping[StepKey, int] | None = None, masks: Mapping[str, str] | None = None
    ) -> Spec:
        """Read the specification of an environment.

        Args:
            env: The environment with all its wrappers; provides the dictionaries of spaces, counts
                and masks.
            max_agents: Slots of each sub-step whose number of agents changes (count -1).
            masks: Further action head -> observation pairs, applied in each sub-step that has both.

        Raises:
            TypeError: A space is not supported, or a continuous head is masked.
            ValueError: A mask names an unknown head or observation or has the wrong length,
                sub-step keys are equal as text, or `max_agents` is missing or does not fit.
        """
        max_agents = max_agents or {}
        declared = list(env.observation_spaces_dict)
        steps: dict[StepKey, StepSpec] = {}
        if len(set(map(str, declared))) != len(declared):
            raise ValueError(f"sub-step keys {declared} are not distinct when written as text")
        if unknown_keys := set(max_agents) - set(declared):
            raise ValueError(f"max_agents names {sorted(map(str, unknown_keys))}; the sub-steps are {declared}")
        for key, observation_space in env.observation_spaces_dict.items():
            observation_space = dict_space(observation_space, f"the observation space of sub-step {key!r}")
            action_space = dict_space(env.action_spaces_dict[key], f"the action space of sub-step {key!r}")
            n_agents = int(env.agent_counts_dict[key])
            n_slots = max_agents.get(key, n_agents)
            if 0 < n_agents != n_slots:
                fault = f"max_agents={n_slots} for sub-step {key!r}, which always has {n_agents} agents"
                raise ValueError(f"{fault}: leave it out")
            if n_slots < 1:
                fault = f"the number of agents of sub-step {key!r} changes during an episode (count {n_agents})"
                options = f"--max_agents '{{{key}: 4}}' (with fit: --data.max_agents)"
                remedy = f"say how many may be alive at once, such as by max_agents={{{key!r}: 4}} in Python"
                raise ValueError(f"{fault}; {remedy}, or {options} on the command line")
            own = dict(env.action_masks_dict.get(key, {}))
            steps[key] = StepSpec(observation_space, action_space, n_agents, n_slots, own)
        return cls(steps).with_masks(masks or {})

    def with_masks(self, masks: Mapping[str, str]) -> Spec:
        """Return a copy with further masks, which replace present masks of the same heads.

        Args:
            masks: Action head -> observation, applied in each sub-step that has both.

        Raises:
            TypeError: A continuous head is masked.
            ValueError: A mask names an unknown head or observation or has the wrong length.
        """
        steps = {}
        for key, step in self.steps.items():
            own = step.masks | _fitting(step.observation_space, step.action_space, masks)
            steps[key] = _checked(key, replace(step, masks=own))
        if unknown := set(masks).difference(*(step.masks for step in steps.values())):
            raise ValueError(f"action masks {sorted(unknown)} fit no sub-step: head or observation does not exist")
        return Spec(steps)

    def to_dict(self) -> dict[str, Any]:
        """Describe the specification with YAML types only."""
        steps = []
        for key, step in self.steps.items():
            described = {name: space_to_dict(getattr(step, name)) for name in ("observation_space", "action_space")}
            steps.append({"key": key, **vars(step), **described})
        return {"steps": steps}

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Spec:
        """Build the specification that `to_dict` described.

        Raises:
            ValueError: A mask is for an unknown head or observation, or has the wrong length.
        """
        steps: dict[StepKey, StepSpec] = {}
        for step in description["steps"]:
            described = StepSpec(
                observation_space=dict_space(space_from_dict(step["observation_space"]), "observation space"),
                action_space=dict_space(space_from_dict(step["action_space"]), "action space"),
                n_agents=step["n_agents"],
                n_slots=step["n_slots"],
                masks=dict(step["masks"]),
            )
            steps[step["key"]] = _checked(step["key"], described)
        return cls(steps)


def fitting_masks(env: Any, masks: Mapping[str, str]) -> dict[StepKey, dict[str, str]]:
    """Select, for each sub-step of an environment, the masks whose head and observation it has.

    Args:
        env: The environment with some of its wrappers. Heads that cannot be masked are left out, as
            outer wrappers may still change them.
        masks: Action head -> observation.
    """
    fitting = {}
    for key, observation_space in env.observation_spaces_dict.items():
        action_space = env.action_spaces_dict[key]
        if isinstance(observation_space, spaces.Dict) and isinstance(action_space, spaces.Dict):
            found = _fitting(observation_space, action_space, masks)
            fitting[key] = {
                head: name for head, name in found.items() if not isinstance(action_space[head], spaces.Box)
            }
    return fitting


def _fitting(observation_space: spaces.Dict, action_space: spaces.Dict, masks: Mapping[str, str]) -> dict[str, str]:
    heads, observations = action_space.spaces, observation_space.spaces
    return {head: name for head, name in masks.items() if head in heads and name in observations}


def _checked(key: StepKey, step: StepSpec) -> StepSpec:
    """Return a sub-step if its masks are valid."""
    heads = step.action_space.spaces
    observations = step.observation_space.spaces
    for head, name in step.masks.items():
        if head not in heads:
            raise ValueError(f"mask for unknown action head {head!r} of sub-step {key!r}; heads: {list(heads)}")
        if name not in observations:
            raise ValueError(f"mask {name!r} of sub-step {key!r} is not among its observations {list(observations)}")
        if isinstance(heads[head], spaces.Box):
            raise TypeError(f"the action head {head!r} is a Box, which cannot be masked")
        shape = observations[name].shape
        expected = (spaces.flatdim(heads[head]),)
        if shape != expected:
            raise ValueError(f"mask {name!r} for head {head!r} has shape {shape}, expected {expected}")
    return step
