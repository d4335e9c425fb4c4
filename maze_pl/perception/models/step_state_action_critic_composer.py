"""Composer of state-action critics with one pair of networks per sub-step."""

from maze_pl import agents
from maze_pl.perception.models.composers import StateActionCriticComposer


class StepStateActionCriticComposer(StateActionCriticComposer):
    """A pair of networks for each sub-step, shared by its agents.

    Args:
        networks: One network class per sub-step, in order or by key; a single one in a list makes
            the networks of all sub-steps. See `StateActionCriticComposer`.
    """

    critic = agents.TorchStepStateActionCritic
