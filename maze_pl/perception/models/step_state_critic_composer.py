"""Composer of state critics with one network per sub-step."""

from maze_pl import agents
from maze_pl.perception.models.composers import StateCriticComposerInterface


class StepStateCriticComposer(StateCriticComposerInterface):
    """One critic per sub-step, which evaluates each actor on its own stream of acts.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchStepStateCritic
