"""Critics that estimate the value of a state: one for all sub-steps, or one for each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput, networks_by_step, torch_dtype
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec

STEP_KEY_OBSERVATION = "step_key"
"""Name under which a critic shared by several sub-steps sees which of them it judges, as a one-hot vector."""


class StateCritic(nn.Module, ABC):
    """Estimates the value of states.

    Attributes:
        kind: "shared": one value for each row of a rollout, taken at the row's first act. "step": each actor has a
            stream of its own, judged by the network of its sub-step.
    """

    kind: ClassVar[Literal["shared", "step"]]

    @abstractmethod
    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """Values of the states in which actors of a sub-step are about to act.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...].
            agent_id: [B] which agent acts.

        Returns:
            [B]
        """


class TorchSharedStateCritic(StateCritic):
    """One network for all sub-steps.

    With one sub-step it sees that sub-step's observations. With several it sees the observations of all of them, zeros
    for those that do not belong to the present sub-step, and which one that is as the one-hot observation "step_key".

    Args:
        networks: The network, alone in a list or a dict; it gives `{"value": [..., 1]}`.
        spec: What the agent sees and does.

    Raises:
        ValueError: There is not exactly one network, or observations of the same name differ between sub-steps.
    """

    kind = "shared"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[Any, nn.Module], spec: Spec) -> None:
        super().__init__()
        given = list(networks.values()) if isinstance(networks, Mapping) else list(networks)
        if len(given) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(given)}")
        self.network = given[0]
        self._inputs = NetworkInput(self.network)
        self._plain = NumpyNetwork(self.network)
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self._spaces = shared_observation_space(spec).spaces
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)

    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """[B] values; see `StateCritic.value`."""
        inputs = self._inputs(self._complete(step_key, observation))
        outputs = self._plain.outputs(inputs)
        return _value(self.network(inputs) if outputs is None else outputs)

    def _complete(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The observations of all sub-steps, and which one it is."""
        if len(self._index) == 1:
            return observation
        name, present = next(iter(observation.items()))
        leading = present.shape[: present.dim() - len(self._spaces[name].shape or ())]
        one_hot: Tensor = self.get_buffer("_one_hot")[self._index[step_key]]
        absent = {
            name: torch.zeros((*leading, *(space.shape or ())), dtype=torch_dtype(space), device=present.device)
            for name, space in self._spaces.items()
            if name not in observation and name != STEP_KEY_OBSERVATION
        }
        return {**observation, **absent, STEP_KEY_OBSERVATION: one_hot.expand(*leading, -1)}


class TorchStepStateCritic(StateCritic):
    """A network for each sub-step, which sees the observations of that sub-step and is shared by its agents.

    Args:
        networks: A network for each sub-step, by key or in the specification's order; each gives `{"value": [..., 1]}`.
        spec: What the agent sees and does.

    Raises:
        ValueError: The networks are not one for each sub-step.
    """

    kind = "step"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module], spec: Spec) -> None:
        super().__init__()
        by_step = networks_by_step(networks, spec.step_keys)
        self.networks = nn.ModuleList(by_step.values())
        self._steps = {key: (network, NetworkInput(network)) for key, network in by_step.items()}

    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """[B] values; see `StateCritic.value`."""
        network, inputs = self._steps[step_key]
        return _value(network(inputs(observation)))


def shared_observation_space(spec: Spec) -> spaces.Dict:
    """What the network of a shared critic sees.

    Raises:
        ValueError: Observations of the same name have different shapes, or one has the reserved name.
    """
    if len(spec.steps) == 1:
        return next(iter(spec.steps.values())).observation_space
    union: dict[str, spaces.Space[Any]] = {}
    for key, step in spec.steps.items():
        for name, space in step.observation_space.spaces.items():
            known = union.setdefault(name, space)
            if known.shape != space.shape or known.dtype != space.dtype:
                raise ValueError(
                    f"observation {name!r} has shape {space.shape} ({space.dtype}) in sub-step {key!r}, but "
                    f"{known.shape} ({known.dtype}) in another; rename one of them or use a step critic"
                )
    if STEP_KEY_OBSERVATION in union:
        raise ValueError(f"the observation {STEP_KEY_OBSERVATION!r} is reserved for shared critics; rename it")
    union[STEP_KEY_OBSERVATION] = spaces.Box(0.0, 1.0, (len(spec.steps),))
    return spaces.Dict(union)


def _value(output: Mapping[str, Tensor]) -> Tensor:
    return output["value"].squeeze(-1)  # [..., 1] -> [...]
