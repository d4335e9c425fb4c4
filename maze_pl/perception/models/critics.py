"""Composers of critics."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from maze_pl.agents.torch_state_critic import (
    StateCritic,
    TorchDeltaStateCritic,
    TorchSharedStateCritic,
    TorchStepStateCritic,
    shared_observation_space,
)
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.perception.models.network_factory import CriticNetworkFactory, build_network, factories_by_step

_OUTPUT = {"value": (1,)}


class StateCriticComposerInterface(ABC):
    """Makes a state critic that fits a specification."""

    @abstractmethod
    def compose(self, spec: Spec) -> StateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic.

        Raises:
            ValueError: Networks do not fit the sub-steps, or do not give `{"value": [B, 1]}`.
            TypeError: A network or its outputs are of a wrong type.
        """


class SharedStateCriticComposer(StateCriticComposerInterface):
    """One critic for all sub-steps and agents; the choice for flat environments.

    Args:
        networks: One network class by class path. The constructor gets `obs_shapes` (name -> tuple) and its own
            `init_args`; `forward` maps a dict of observations to `{"value": [B, 1]}`. With several sub-steps it sees
            the observations of all of them, see `TorchSharedStateCritic`.
    """

    def __init__(self, networks: list[CriticNetworkFactory] | dict[StepKey, CriticNetworkFactory]) -> None:
        self.networks = networks

    def compose(self, spec: Spec) -> TorchSharedStateCritic:
        """Make the network, try it on zeros, and put it into a critic; see `StateCriticComposerInterface`."""
        factories = list(self.networks.values()) if isinstance(self.networks, dict) else list(self.networks)
        if len(factories) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(factories)}")
        space = shared_observation_space(spec)
        return TorchSharedStateCritic([build_network(factories[0], space, _OUTPUT, "shared critic network")], spec)


class StepStateCriticComposer(StateCriticComposerInterface):
    """A critic for each sub-step, which judges every actor by its own stream of acts.

    Args:
        networks: Network classes by class path, one for each sub-step, in order or by key; a single one in a list
            makes a network for each of them. The constructor gets `obs_shapes` (name -> tuple) and its own `init_args`;
            `forward` maps a dict of observations to `{"value": [B, 1]}`.
    """

    def __init__(self, networks: list[CriticNetworkFactory] | dict[StepKey, CriticNetworkFactory]) -> None:
        self.networks = networks

    def compose(self, spec: Spec) -> TorchStepStateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic."""
        return TorchStepStateCritic(_network_of_each_step(self.networks, spec), spec)


class DeltaStateCriticComposer(StateCriticComposerInterface):
    """A critic for environments whose sub-steps act once each, in the same order, in every environment step.

    The first sub-step's network gives the value, each later one the difference to the value of the sub-step before; see
    `TorchDeltaStateCritic`. Rewards are those of the whole, also where an environment attributes them to actors.

    Args:
        networks: As for `StepStateCriticComposer`.
    """

    def __init__(self, networks: list[CriticNetworkFactory] | dict[StepKey, CriticNetworkFactory]) -> None:
        self.networks = networks

    def compose(self, spec: Spec) -> TorchDeltaStateCritic:
        """Make the networks, try each of them on zeros, and put them into a critic."""
        return TorchDeltaStateCritic(_network_of_each_step(self.networks, spec), spec)


def _network_of_each_step(
    networks: list[CriticNetworkFactory] | dict[StepKey, CriticNetworkFactory], spec: Spec
) -> dict[StepKey, nn.Module]:
    return {
        key: build_network(factory, spec.steps[key].observation_space, _OUTPUT, f"critic network of sub-step {key!r}")
        for key, factory in factories_by_step(networks, spec.step_keys).items()
    }


StateCriticComposer = SharedStateCriticComposer
"""The critic to use when there is no reason for another."""
