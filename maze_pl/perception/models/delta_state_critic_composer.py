"""Composer of critics that add up the changes of the value over the sub-steps."""

from maze_pl import agents
from maze_pl.perception.models.composers import StateCriticComposerInterface


class DeltaStateCriticComposer(StateCriticComposerInterface):
    """A critic for environments whose sub-steps act once each, in the same order, in every environment step.

    The first sub-step's network estimates the value; each later one estimates the difference from
    the previous sub-step's value, see `TorchDeltaStateCritic`. The reward is the total of the
    environment step, even if the environment attributes rewards to actors.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = agents.TorchDeltaStateCritic
