"""Composers of policies."""

from functools import partial

from torch import nn

from maze_pl.agents.torch_policy import PolicyNetworks, TorchPolicy, separate_agent_counts
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import DistributionMapperConfig, distribution_mappers
from maze_pl.perception.models.network_factory import PolicyNetworkFactory, build_network, factories_by_step


class ProbabilisticPolicyComposer:
    """Makes a policy whose networks give the parameters of probability distributions.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key; a single one in a list
            makes a network for each of them; null for those of a template. The constructor gets `obs_shapes` and
            `action_logits_shapes` (name -> tuple) and its own `init_args`; `forward` maps a dict of observations to a
            dict of logits, one per head.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has a network of its own.
    """

    def __init__(
        self,
        networks: list[PolicyNetworkFactory] | dict[StepKey, PolicyNetworkFactory] | None = None,
        substeps_with_separate_agent_nets: list[StepKey] | None = None,
    ) -> None:
        self.networks = networks
        self.substeps_with_separate_agent_nets = substeps_with_separate_agent_nets or []

    def compose(self, spec: Spec, distribution_mapper_config: DistributionMapperConfig | None = None) -> TorchPolicy:
        """Make the networks, try each of them on zeros, and put them into a policy.

        Args:
            spec: What the agent sees and does.
            distribution_mapper_config: Overrides of distributions, see `DistributionMapper`.

        Raises:
            ValueError: Networks do not fit the sub-steps, or their outputs the action heads.
            TypeError: A network or its outputs are of a wrong type, or no distribution fits a head.
        """
        separate = separate_agent_counts(spec, self.substeps_with_separate_agent_nets)
        mappers = distribution_mappers(spec, distribution_mapper_config)
        networks: dict[StepKey, PolicyNetworks] = {}
        for key, factory in factories_by_step(self.networks, spec.step_keys).items():
            step, shapes, count = spec.steps[key], mappers[key].logits_shapes, separate.get(key, 1)
            if count > 1 and isinstance(factory, nn.Module):
                raise ValueError(f"one network cannot serve {count} agents of sub-step {key!r}; give its class instead")
            agents = [f", agent {agent}" if key in separate else "" for agent in range(count)]
            makes = partial(build_network, factory, step.observation_space, shapes, action_logits_shapes={**shapes})
            networks[key] = [makes(where=f"policy network of sub-step {key!r}{agent}") for agent in agents]
        return TorchPolicy(networks, spec, distribution_mapper_config, list(separate))
