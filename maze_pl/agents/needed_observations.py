"""Observations without which a policy cannot act."""

from typing import cast

from maze_pl.agents.input_range import HasParts, has_parts
from maze_pl.agents.network_io import read_keys
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import StepSpec


def needed_observations(policy: object, step_key: StepKey, step: StepSpec) -> set[str]:
    """Return the names of the observations that the networks of a sub-step read, and of its masks.

    A critic may observe more, such as the state of all agents. Networks that do not say what they
    read (`read_keys`), and other policies, need all observations.

    Args:
        policy: The policy.
        step_key: The sub-step.
        step: Its spaces and masks.
    """
    observations = set(step.observation_space.spaces)
    if not has_parts(type(policy)):  # type: ignore[arg-type]  # mypy does not know that classes are hashable
        return observations
    needed = set(step.masks.values())
    for network in cast(HasParts, policy).parts_of(step_key).networks:
        keys = read_keys(network)
        needed |= observations if keys is None else keys & observations
    return needed or observations
