"""Deep Q-networks by RLlib."""

from typing import ClassVar

from gymnasium import spaces

from maze_pl.distributions import EpsilonGreedyProbabilityDistribution
from maze_pl.modules.network_choice import DistributionOverrides
from maze_pl.rllib.iteration import RLlibIteration
from maze_pl.rllib.rllib_module import RLlibModule


class RLlibDQN(RLlibModule):
    """RLlib's DQN on networks of maze_pl, whose outputs are the values of the actions.

    Each sub-step must have one action head with a `Discrete` space that starts at 0, and
    `EpsilonGreedyProbabilityDistribution` as its distribution. With a critic, networks are dueling:
    the critic computes the values of states, the policy the advantages. See `RLlibModule` for the
    options.
    """

    rllib_config = "ray.rllib.algorithms.dqn.DQNConfig"
    learns_values = True
    critic_type: ClassVar[type] = object
    head_distributions: ClassVar[DistributionOverrides] = [
        {
            "action_space": "gymnasium.spaces.Space",
            "distribution": "maze_pl.distributions.EpsilonGreedyProbabilityDistribution",
        }
    ]

    def on_networks_ready(self) -> None:
        """Refuse action spaces and distributions that RLlib's DQN does not have.

        Raises:
            ValueError: See the class.
        """
        super().on_networks_ready()
        policy = self.policy
        for key, step in policy.spec.steps.items():
            heads = step.action_space.spaces
            space = next(iter(heads.values()))
            is_plain = len(heads) == 1 and isinstance(space, spaces.Discrete) and space.start == 0
            if not is_plain:
                fault = f"RLlib's DQN needs one Discrete action from 0 on, but sub-step {key!r} has {dict(heads)}"
                raise ValueError(f"{fault}: use maze_pl.modules.DQN, which has several heads, or another algorithm")
            for head, distribution in policy.distribution_classes(key).items():
                if not issubclass(distribution, EpsilonGreedyProbabilityDistribution):
                    where = f"action head {head!r} of sub-step {key!r} has a {distribution.__name__}"
                    remedy = "name EpsilonGreedyProbabilityDistribution in distribution_mapper_config"
                    raise ValueError(f"{where}, but DQN needs values of discrete options: {remedy}")
        policy.set_exploration(0.0)

    def training_step(self, batch: RLlibIteration, batch_idx: int) -> None:
        """Take over weights and exploration."""
        super().training_step(batch, batch_idx)
        if batch.epsilon is not None:
            self.policy.set_exploration(batch.epsilon)
            self.record("epsilon", batch.epsilon)
