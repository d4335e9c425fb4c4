"""Composer of state critics with one network for all sub-steps."""

from maze_pl import agents
from maze_pl.perception.models.composers import StateCriticComposerInterface


class SharedStateCriticComposer(StateCriticComposerInterface):
    """One critic for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class by class path; null uses the network of a template. The
            constructor gets `obs_shapes` (name -> tuple), its `init_args` and, if it has such an
            argument, `policy_network`, the policy's only network. `forward` maps a dict of
            observations to `{"value": [B, 1]}`. With several sub-steps, the inputs are the
            observations of all of them, see `TorchSharedStateCritic`.
    """

    critic = agents.TorchSharedStateCritic


StateCriticComposer = SharedStateCriticComposer
"""The default choice of critic."""
