"""Composer of policies."""

from torch import nn

from maze_pl.agents.policy_step_parts import PolicyNetworks, separate_agent_counts
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import DistributionMapperConfig, distribution_mappers
from maze_pl.perception.models.composers import Networks
from maze_pl.perception.network_construction import build_network
from maze_pl.perception.network_factories import (
    PolicyNetworkFactory,
    factories_by_step,
    require_several,
)


class ProbabilisticPolicyComposer:
    """Makes a policy whose networks return the parameters of probability distributions.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key. A single
            one in a list makes a network for each sub-step; null uses the networks of a template.
            The constructor gets `obs_shapes` and `action_logits_shapes` (name -> tuple) and its
            `init_args`; `forward` maps a dict of observations to a dict of logits, one entry per
            head, and of auxiliary outputs, if the network declares any as `auxiliary_shapes`.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has its own network.
    """

    def __init__(
        self,
        networks: Networks[PolicyNetworkFactory] | None = None,
        substeps_with_separate_agent_nets: list[StepKey] | None = None,
    ) -> None:
        require_several(networks, type(self).__name__)
        self.networks = networks
        self.substeps_with_separate_agent_nets = substeps_with_separate_agent_nets or []

    def compose(self, spec: Spec, distribution_mapper_config: DistributionMapperConfig | None = None) -> TorchPolicy:
        """Make the networks, test each of them on zeros, and combine them into a policy.

        Args:
            spec: Sub-steps with their observation and action spaces.
            distribution_mapper_config: Overrides of distributions, see `DistributionMapper`.

        Raises:
            ValueError: The networks do not fit the sub-steps, or their outputs do not fit the
                action heads.
            TypeError: A network or its outputs have the wrong type, or no distribution fits a head.
        """
        separate = separate_agent_counts(spec, self.substeps_with_separate_agent_nets)
        mappers = distribution_mappers(spec, distribution_mapper_config)
        networks: dict[StepKey, PolicyNetworks] = {}
        for key, factory in factories_by_step(self.networks, spec.step_keys).items():
            step = spec.steps[key]
            shapes = mappers[key].network_shapes
            has_gsde = any(options.type == "gsde" for options in mappers[key].explorations.values())
            count = separate.get(key, 1)
            if count > 1 and isinstance(factory, nn.Module):
                refused = f"one network cannot serve {count} agents of sub-step {key!r}"
                raise ValueError(f"{refused}; give its class instead")
            networks_of_key = []
            for agent in range(count):
                where = f"policy network of sub-step {key!r}"
                if key in separate:
                    where += f", agent {agent}"
                network = build_network(
                    factory,
                    step.observation_space,
                    shapes,
                    where,
                    may_have_auxiliary=True,
                    action_logits_shapes=dict(shapes),
                    with_latent=has_gsde,
                )
                networks_of_key.append(network)
            networks[key] = networks_of_key
        return TorchPolicy(networks, spec, distribution_mapper_config, list(separate))
