"""Composer of state-action critics with one pair of networks for all sub-steps."""

from maze_pl import agents
from maze_pl.perception.models.composers import StateActionCriticComposer


class SharedStateActionCriticComposer(StateActionCriticComposer):
    """One pair of networks for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class, as for `StateActionCriticComposer`. With several sub-steps, the
            inputs are the entries of all of them, see `TorchSharedStateActionCritic`.
    """

    critic = agents.TorchSharedStateActionCritic
