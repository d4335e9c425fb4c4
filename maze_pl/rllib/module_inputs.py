"""Observations and agents' ids in the batches of RLlib."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from maze_pl.rllib.agent_names import AGENT_ID


class ModuleInputs(NamedTuple):
    """Inputs of policies and critics.

    Attributes:
        observation: Name -> [B, ...].
        agent_id: [B] ids of the agents; None in sub-steps with one agent.
    """

    observation: dict[str, Tensor]
    agent_id: Tensor | None


def module_inputs(observations: Mapping[str, Tensor]) -> ModuleInputs:
    """Separate the agents' ids from their observations.

    Args:
        observations: Name -> [B, ...].
    """
    observation = dict(observations)
    agent_id = observation.pop(AGENT_ID, None)
    return ModuleInputs(observation, None if agent_id is None else agent_id.long())
