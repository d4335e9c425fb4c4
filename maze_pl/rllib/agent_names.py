"""Names of agents and modules in RLlib."""

from typing import Any

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spec import Spec

FLAT_MODULE = "default_policy"
"""Name that RLlib gives the only module of a single-agent environment."""
AGENT_ID = "maze_pl_agent_id"
"""Observation with the id of the agent, in sub-steps with several agents."""


def agent_name(actor: ActorID) -> str:
    """Return the name of an actor: `<step key>/<agent id>`."""
    return f"{actor.step_key}/{actor.agent_id}"


def step_text_of(agent: str) -> str:
    """Return the step key in an agent's name, as text."""
    return agent.rpartition("/")[0]


def module_names(spec: Spec) -> dict[StepKey, str]:
    """Return the name of the module of each sub-step; step keys may have characters that RLlib refuses."""
    if spec.is_flat:
        return {spec.step_keys[0]: FLAT_MODULE}
    return {key: f"substep_{index}" for index, key in enumerate(spec.step_keys)}


class ModuleOfAgent:
    """Function from the name of an agent to the name of its module.

    Args:
        spec: The sub-steps.
    """

    def __init__(self, spec: Spec) -> None:
        self._modules = {str(key): name for key, name in module_names(spec).items()}

    def __call__(self, agent: str, *_: Any, **__: Any) -> str:
        """Return the module."""
        return self._modules[step_text_of(agent)]
