"""Composers of critics."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl.agents import StateCritic, TorchDeltaStateCritic, TorchPolicy, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.agents.torch_state_critic import StepwiseStateCritic, shared_observation_space
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.perception.models.network_factory import CriticNetworkFactory, build_network, factories_by_step, takes

_OUTPUT = {"value": (1,)}


Networks = list[CriticNetworkFactory] | dict[StepKey, CriticNetworkFactory]


class StateCriticComposerInterface(ABC):
    """Makes a state critic that fits a specification.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key; a single one in a list
            makes a network for each of them; null for those of a template. The constructor gets `obs_shapes` (name ->
            tuple) and its own `init_args`, and `policy_network`, the policy's network of the same sub-step, if it has
            such an argument; `forward` maps a dict of observations to `{"value": [B, 1]}`.
    """

    def __init__(self, networks: Networks | None = None) -> None:
        self.networks = networks

    @abstractmethod
    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> StateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic.

        Args:
            spec: What the agent sees and does.
            policy: Has the networks of which those of the critic may use parts.

        Raises:
            ValueError: Networks do not fit the sub-steps, do not give `{"value": [B, 1]}`, or share parts with a policy
                that has not exactly one network for what they judge.
            TypeError: A network or its outputs are of a wrong type.
        """


class SharedStateCriticComposer(StateCriticComposerInterface):
    """One critic for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class by class path; null for that of a template. The constructor gets `obs_shapes` (name
            -> tuple) and its own `init_args`, and `policy_network`, the network of a policy that has no other, if it
            has such an argument; `forward` maps a dict of observations to `{"value": [B, 1]}`. With several sub-steps
            it sees the observations of all of them, see `TorchSharedStateCritic`.
    """

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> TorchSharedStateCritic:
        """Make the network, try it on zeros, and put it into a critic; see `StateCriticComposerInterface`."""
        given = list(self.networks.values()) if isinstance(self.networks, dict) else self.networks
        if given is not None and len(given) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(given)}")
        (factory,) = factories_by_step(given, ["all"]).values()
        network = _network(factory, shared_observation_space(spec), "shared critic network", policy, spec.step_keys)
        return TorchSharedStateCritic([network], spec)


class _StepwiseComposer(StateCriticComposerInterface, ABC):
    """A network for each sub-step."""

    critic: ClassVar[type[StepwiseStateCritic]]

    def compose(self, spec: Spec, policy: TorchPolicy | None = None) -> StepwiseStateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic."""
        networks = []
        for key, factory in factories_by_step(self.networks, spec.step_keys).items():
            space, where = spec.steps[key].observation_space, f"critic network of sub-step {key!r}"
            networks.append(_network(factory, space, where, policy, (key,)))
        return self.critic(networks, spec)


class StepStateCriticComposer(_StepwiseComposer):
    """A critic for each sub-step, which judges every actor by its own stream of acts.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = TorchStepStateCritic


class DeltaStateCriticComposer(_StepwiseComposer):
    """A critic for environments whose sub-steps act once each, in the same order, in every environment step.

    The first sub-step's network gives the value, each later one the difference to the value of the sub-step before; see
    `TorchDeltaStateCritic`. Rewards are those of the whole, also where an environment attributes them to actors.

    Args:
        networks: As for `StateCriticComposerInterface`.
    """

    critic = TorchDeltaStateCritic


def _network(
    factory: CriticNetworkFactory, space: spaces.Dict, where: str, policy: TorchPolicy | None, keys: Sequence[StepKey]
) -> nn.Module:
    """A network, with the policy's network for the same sub-steps if its class wants it."""
    if not takes(factory, "policy_network"):
        return build_network(factory, space, _OUTPUT, where)
    by_step = {} if policy is None else dict(zip(policy.spec.step_keys, policy.networks, strict=True))
    found = [network for key, networks in by_step.items() if key in keys for network in networks.children()]
    if len(found) != 1:
        raise ValueError(
            f"{where} shares parts with the policy's network for the same observations, which must be one network, not "
            f"{len(found)}: use a critic for each sub-step, agents without separate networks, or share nothing"
        )
    return build_network(factory, space, _OUTPUT, where, policy_network=found[0])


StateCriticComposer = SharedStateCriticComposer
"""The critic to use when there is no reason for another."""
