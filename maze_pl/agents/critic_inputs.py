"""Inputs and outputs of the networks of state-action critics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.probability_distribution import choice_sizes

AGENT_OBSERVATION: Final = "agent"
"""Name of the one-hot observation of the agent that acts, for critics of separate policy networks."""


@dataclass(frozen=True, slots=True)
class CriticInputs:
    """Inputs and outputs of a pair of networks.

    Attributes:
        observation_space: Observations.
        action_space: Continuous heads of the action.
        q_shapes: Output -> (L,). For each discrete head, L is the number of options of all its
            choices, two for each bit. Without a discrete head: "q_value" -> (1,).
    """

    observation_space: spaces.Dict
    action_space: spaces.Dict
    q_shapes: Mapping[str, tuple[int, ...]]


def with_agents(spec: Spec, step_keys: Sequence[StepKey]) -> Spec:
    """Return a spec in which some sub-steps also have the one-hot observation "agent" [largest number of agents].

    Args:
        spec: Sub-steps with their observation and action spaces.
        step_keys: The sub-steps; none of them has a number of agents that changes.

    Raises:
        ValueError: There is an observation of this name.
    """
    steps = dict(spec.steps)
    for key in step_keys:
        observations = spec.steps[key].observation_space.spaces
        if AGENT_OBSERVATION in observations:
            reserved = f"the observation {AGENT_OBSERVATION!r} of sub-step {key!r} is reserved for critics"
            raise ValueError(f"{reserved} of agents with separate networks; rename it")
        one_hot = spaces.Box(0.0, 1.0, (most_agents(spec, step_keys),))
        steps[key] = replace(
            spec.steps[key], observation_space=spaces.Dict({**observations, AGENT_OBSERVATION: one_hot})
        )
    return Spec(steps)


def most_agents(spec: Spec, step_keys: Collection[StepKey]) -> int:
    """Largest number of agents of some sub-steps."""
    return max((spec.steps[key].n_agents for key in step_keys), default=0)


def inputs_by_step(spec: Spec) -> dict[StepKey, CriticInputs]:
    """Return the inputs and outputs of the Q-networks of each sub-step."""
    critic_inputs: dict[StepKey, CriticInputs] = {}
    for key, step in spec.steps.items():
        continuous = []
        q_shapes: dict[str, tuple[int, ...]] = {}
        for head, space in step.action_space.spaces.items():
            sizes = choice_sizes(space)
            if sizes:
                q_shapes[head] = (sum(sizes),)
            else:
                continuous.append((head, space))
        if not q_shapes:
            q_shapes["q_value"] = (1,)
        inputs = CriticInputs(step.observation_space, spaces.Dict(continuous), q_shapes)
        critic_inputs[key] = checked_inputs(inputs, f"sub-step {key!r}")
    return critic_inputs


def checked_inputs(critic_inputs: CriticInputs, where: str) -> CriticInputs:
    """Refuse continuous heads that have the names of observations."""
    observations = set(critic_inputs.observation_space.spaces)
    both = sorted(observations & set(critic_inputs.action_space.spaces))
    if both:
        remedy = "rename them"
        raise ValueError(f"the action heads {both} of {where} have names of observations: {remedy}")
    return critic_inputs
