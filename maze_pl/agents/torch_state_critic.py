"""State-value critics: shared by all sub-steps, one per sub-step, or by adding up differences."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import (
    NetworkInput,
    evaluate_recurrent,
    networks_by_step,
    state_shapes,
    torch_dtype,
)
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec

STEP_KEY_OBSERVATION = "step_key"
"""Name of the one-hot observation that tells a shared critic the current sub-step."""


class Critic(nn.Module, ABC):
    """Estimates values, of states or of actions in states.

    Attributes:
        recurrent: Sub-step -> recurrent network. Its state is the state of the policy's network.
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


class TorchSharedStateCritic(StateCritic):
    """One network for all sub-steps.

    With one sub-step, its inputs are that sub-step's observations. With several, they are the
    observations of all sub-steps, with zeros for entries that do not belong to the current
    sub-step, and the one-hot observation "step_key", which names the current sub-step.

    Args:
        networks: A list or dict with the one network, which returns `{"value": [..., 1]}`.
        spec: Sub-steps with their observation and action spaces.

    Raises:
        ValueError: There is not exactly one network, it is recurrent although there are several
            sub-steps, or observations of the same name differ between sub-steps.
    """

    kind = "shared"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[Any, nn.Module], spec: Spec) -> None:
        super().__init__()
        if len(networks) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(networks)}")
        self.network = next(iter(networks.values() if isinstance(networks, Mapping) else networks))
        self._plain = NumpyNetwork(self.network)
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self._spaces = shared_observation_space(spec).spaces
        self._state_shapes = state_shapes(self.network)
        self._inputs = NetworkInput(self.network, {*self._spaces, *self._state_shapes})
        if self._state_shapes:
            self.recurrent = {spec.step_keys[0]: self.network}
            if len(spec.steps) > 1:
                raise ValueError(
                    "a critic of several sub-steps cannot be recurrent, but its network has the "
                    f"state {list(self._state_shapes)}: use a step critic"
                )
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The network."""
        return [self.network]

    def value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """[B] values; see `StateCritic.value`."""
        if len(self._index) > 1:
            one_hot = self.get_buffer("_one_hot")[self._index[step_key]]
            observation = complete_observation(observation, self._spaces, one_hot)
        inputs = self._inputs(observation)
        if self._state_shapes:
            return _value(evaluate_recurrent(self.network, inputs, self._state_shapes))
        outputs = self._plain.outputs(inputs)
        return _value(self.network(inputs) if outputs is None else outputs)


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
        """[B] output of the sub-step's network; see `StateCritic.value`."""
        network, inputs = self._steps[step_key]
        if step_key in self.recurrent:
            return _value(evaluate_recurrent(network, inputs(observation), state_shapes(network)))
        return _value(network(inputs(observation)))


class TorchStepStateCritic(StepwiseStateCritic):
    """One value network per sub-step; see `StepwiseStateCritic` for the arguments."""

    kind = "step"


class TorchDeltaStateCritic(StepwiseStateCritic):
    """Value network of the first sub-step, and networks for the value's change in each later one.

        V_0 = f_0(o_0),   V_k = stop_gradient(V_{k-1}) + f_k(o_k)

    A later network, which often observes only a small part of the state, thus only estimates how
    the preceding acts changed the value.

    Args:
        networks: One network per sub-step, by key or in the spec's order; each returns
            `{"value": [..., 1]}`.
        spec: Sub-steps with their observation and action spaces. Each sub-step acts exactly once
            per row, in this order.

    Raises:
        ValueError: There is not exactly one network per sub-step, a network is recurrent, or a
            sub-step has several agents.
    """

    kind = "delta"

    def __init__(
        self,
        networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module],
        spec: Spec,
    ) -> None:
        super().__init__(networks, spec)
        self._names = {key: tuple(step.observation_space.spaces) for key, step in spec.steps.items()}
        several = {key: step.n_agents for key, step in spec.steps.items() if step.n_agents != 1}
        if several:
            raise ValueError(
                f"a delta critic needs one agent in each sub-step, not {several}, "
                "where -1 is a number that changes: use a step or a shared critic"
            )
        if self.recurrent:
            networks_of = f"networks {list(self.recurrent)}"
            raise ValueError(f"a delta critic cannot be recurrent, as its {networks_of} are: use a step critic")

    def value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """[B] values; see `StateCritic.value`.

        Args:
            step_key: The sub-step.
            observation: Observations of the sub-step and, named by `name_in_row`, of the row's
                earlier sub-steps.
            agent_id: Ignored.
        """
        current = {name: observation[name] for name in self._names[step_key]}
        value = super().value(step_key, current)
        for key in itertools.takewhile(lambda key: key != step_key, self._names):
            earlier = {name: observation[name_in_row(key, name)] for name in self._names[key]}
            with torch.no_grad():
                earlier_value = super().value(key, earlier)
            value = value + earlier_value
        return value


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


def _value(output: Mapping[str, Tensor]) -> Tensor:
    value = output["value"].squeeze(-1)  # [..., 1] -> [...]
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
