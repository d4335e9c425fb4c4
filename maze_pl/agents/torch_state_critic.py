"""Interfaces of state critics, and functions that they share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import (
    NetworkInput,
    auxiliary_shapes,
    evaluate_recurrent,
    networks_by_step,
    state_shapes,
    torch_dtype,
)
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec

STEP_KEY_OBSERVATION = "step_key"
"""Name of the one-hot observation that tells a shared critic the current sub-step."""


@dataclass(frozen=True, slots=True)
class CriticOutput:
    """Outputs of a state critic for the acts of one sub-step.

    Attributes:
        value: [B] values of the states.
        auxiliary: Name -> [B, *shape], the auxiliary outputs that the sub-step's network declares.
    """

    value: Tensor
    auxiliary: dict[str, Tensor] = field(default_factory=dict)


class Critic(nn.Module, ABC):
    """Estimates values, of states or of actions in states.

    Attributes:
        recurrent: Sub-step -> recurrent network. Its state is that of the policy's network, if they
            share it, or carried along the acts of each actor; see `TorchActorCritic`.
    """

    recurrent: Mapping[StepKey, nn.Module] = {}

    @property
    def parts(self) -> Sequence[nn.Module]:
        """Networks of the sub-steps in their order, or a single one for all sub-steps."""
        return [self]


class StateCritic(Critic, ABC):
    """Estimates the value of states.

    Attributes:
        kind: "shared": one value per row of a rollout, estimated at the row's first act. "step":
            each actor has its own stream, evaluated by the network of its sub-step. "delta": all
            acts form one stream, and each act of a row has its own value, which also depends on the
            observations of earlier sub-steps of the row.
    """

    kind: ClassVar[Literal["shared", "step", "delta"]]

    @classmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, spaces.Dict]:
        """Inputs of each network, by sub-step, or by "all" if one network serves all sub-steps."""
        if cls.kind == "shared":
            return {"all": shared_observation_space(spec)}
        return {key: step.observation_space for key, step in spec.steps.items()}

    @abstractmethod
    def value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """Values of the states in which actors of a sub-step are about to act.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], with the policy's recurrent state if it has one; see
                `TorchPolicy`.
            agent_id: [B] id of the agent that acts.

        Returns:
            [B]
        """

    def output(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> CriticOutput:
        """Return values and auxiliary outputs; arguments as for `value`."""
        return CriticOutput(self.value(step_key, observation, agent_id))

    def next_state(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the recurrent state after one act of each actor; empty for networks that are not recurrent.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], with the recurrent state before the acts.

        Returns:
            Name -> [B, ...]
        """
        return {}


class StepwiseStateCritic(StateCritic):
    """One network per sub-step, which takes its observations and is shared by its agents.

    Args:
        networks: One network per sub-step, by key or in the spec's order; each returns
            `{"value": [..., 1]}`.
        spec: Sub-steps with their observation and action spaces.

    Raises:
        ValueError: There is not exactly one network per sub-step.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module],
        spec: Spec,
    ) -> None:
        super().__init__()
        by_step = networks_by_step(networks, spec.step_keys)
        self.networks = nn.ModuleList(by_step.values())
        self.recurrent = {key: network for key, network in by_step.items() if state_shapes(network)}
        self._steps: dict[StepKey, tuple[nn.Module, NetworkInput]] = {}
        for key, network in by_step.items():
            names = {*spec.steps[key].observation_space.spaces, *state_shapes(network)}
            self._steps[key] = (network, NetworkInput(network, names))

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The networks."""
        return list(self.networks)

    def value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """[B] values; see `StateCritic.value`."""
        return self.output(step_key, observation, agent_id).value

    def output(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> CriticOutput:
        """Return the outputs of the sub-step's network; arguments as for `value`."""
        network, _ = self._steps[step_key]
        outputs = self._evaluate(step_key, observation)
        return CriticOutput(value_of(outputs), auxiliary_of(outputs, network))

    def next_state(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `StateCritic.next_state`."""
        outputs = self._evaluate(step_key, observation)
        return {name: outputs[name] for name in state_shapes(self.recurrent[step_key])}

    def _evaluate(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        network, inputs = self._steps[step_key]
        if step_key in self.recurrent:
            return evaluate_recurrent(network, inputs(observation), state_shapes(network))
        outputs: dict[str, Tensor] = network(inputs(observation))
        return outputs


def name_in_row(step_key: StepKey, name: str) -> str:
    """Name of an earlier sub-step's observation in the input of a later sub-step's critic."""
    return f"{step_key}/{name}"


def complete_observation(
    present: Mapping[str, Tensor], input_spaces: Mapping[str, spaces.Space[Any]], one_hot: Tensor
) -> dict[str, Tensor]:
    """Complete the input of a network that several sub-steps share.

    Entries that do not belong to the current sub-step are zeros.

    Args:
        present: Name -> [..., *shape], the entries of the current sub-step.
        input_spaces: Spaces of the entries of all sub-steps and of "step_key".
        one_hot: [number of sub-steps] one-hot encoding of the current sub-step.
    """
    name, tensor = next(iter(present.items()))
    leading = tensor.shape[: tensor.dim() - len(input_spaces[name].shape or ())]
    completed = dict(present)
    for name, space in input_spaces.items():
        if name not in present and name != STEP_KEY_OBSERVATION:
            shape = (*leading, *(space.shape or ()))
            completed[name] = torch.zeros(shape, dtype=torch_dtype(space), device=tensor.device)
    completed[STEP_KEY_OBSERVATION] = one_hot.expand(*leading, -1)
    return completed


def shared_observation_space(spec: Spec) -> spaces.Dict:
    """Observation space of a shared critic's network.

    Raises:
        ValueError: Observations of the same name differ in shape or type, or one has the reserved
            name.
    """
    if len(spec.steps) == 1:
        return next(iter(spec.steps.values())).observation_space
    by_step = {key: step.observation_space for key, step in spec.steps.items()}
    union = union_space(by_step, "observation").spaces
    if STEP_KEY_OBSERVATION in union:
        name = repr(STEP_KEY_OBSERVATION)
        raise ValueError(f"the observation {name} is reserved for shared critics; rename it")
    return spaces.Dict({**union, STEP_KEY_OBSERVATION: spaces.Box(0.0, 1.0, (len(spec.steps),))})


def union_space(by_step: Mapping[StepKey, spaces.Dict], what: str) -> spaces.Dict:
    """Union of the sub-steps' spaces, by name.

    Raises:
        ValueError: Entries of the same name have different shapes or types.
    """
    union: dict[str, spaces.Space[Any]] = {}
    for key, dict_space in by_step.items():
        for name, space in dict_space.spaces.items():
            known = union.setdefault(name, space)
            if known.shape != space.shape or known.dtype != space.dtype:
                here = f"has shape {space.shape} ({space.dtype}) in sub-step {key!r}"
                elsewhere = f"{known.shape} ({known.dtype}) in another"
                remedy = "rename one of them or use a step critic"
                raise ValueError(f"{what} {name!r} {here}, but {elsewhere}; {remedy}")
            union[name] = _covering(known, space)
    return spaces.Dict(union)


def _covering(first: spaces.Space[Any], second: spaces.Space[Any]) -> spaces.Space[Any]:
    """Space that contains two of the same shape and type; nothing depends on bounds of boxes."""
    if isinstance(first, spaces.Discrete) and isinstance(second, spaces.Discrete):
        start = min(first.start, second.start)
        end = max(first.start + first.n, second.start + second.n)
        return spaces.Discrete(end - start, start=start)
    if isinstance(first, spaces.MultiDiscrete) and isinstance(second, spaces.MultiDiscrete):
        starts = np.minimum(first.start, second.start)
        ends = np.maximum(first.start + first.nvec, second.start + second.nvec)
        return spaces.MultiDiscrete(ends - starts, start=starts)
    return second if isinstance(second, spaces.Box) else first


def auxiliary_of(outputs: Mapping[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Return the auxiliary outputs among a network's outputs."""
    return {name: outputs[name] for name in auxiliary_shapes(network)}


def value_of(output: Mapping[str, Tensor]) -> Tensor:
    """Return the values [...] of a network's output "value" [..., 1], at least as float32."""
    value = output["value"].squeeze(-1)
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
