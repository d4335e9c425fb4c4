"""Critics that estimate the value of a state: one for all sub-steps, one for each, or differences between them."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput, evaluate_recurrent, networks_by_step, state_shapes, torch_dtype
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec

STEP_KEY_OBSERVATION = "step_key"
"""Name under which a critic shared by several sub-steps sees which of them it judges, as a one-hot vector."""


class Critic(nn.Module, ABC):
    """Estimates how well it goes.

    Attributes:
        recurrent: By sub-step, networks that carry a state from act to act, which is that of the policy's network.
    """

    recurrent: Mapping[StepKey, nn.Module] = {}

    @property
    def parts(self) -> Sequence[nn.Module]:
        """What judges each sub-step, in their order; a single one for all of them."""
        return [self]


class StateCritic(Critic, ABC):
    """Estimates the value of states.

    Attributes:
        kind: "shared": one value for each row of a rollout, taken at the row's first act. "step": each actor has a
            stream of its own, judged by the network of its sub-step. "delta": each act of a row has a value of its own
            in the one stream of all acts; it sees the observations of earlier sub-steps of the row too.
    """

    kind: ClassVar[Literal["shared", "step", "delta"]]

    @classmethod
    def judged(cls, spec: Spec) -> dict[StepKey, spaces.Dict]:
        """What each network sees, by sub-step, or by "all" where one network judges all of them."""
        if cls.kind == "shared":
            return {"all": shared_observation_space(spec)}
        return {key: step.observation_space for key, step in spec.steps.items()}

    @abstractmethod
    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """Values of the states in which actors of a sub-step are about to act.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], and what the policy carries, if anything; see `TorchPolicy`.
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
        ValueError: There is not exactly one network, it carries a state from act to act though there are several
            sub-steps, or observations of the same name differ between sub-steps.
    """

    kind = "shared"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[Any, nn.Module], spec: Spec) -> None:
        super().__init__()
        given = list(networks.values()) if isinstance(networks, Mapping) else list(networks)
        if len(given) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(given)}")
        self.network = given[0]
        self._plain = NumpyNetwork(self.network)
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self._spaces = shared_observation_space(spec).spaces
        self._state_shapes = state_shapes(self.network)
        self._inputs = NetworkInput(self.network, {*self._spaces, *self._state_shapes})
        if self._state_shapes:
            self.recurrent = {spec.step_keys[0]: self.network}
            if len(spec.steps) > 1:
                raise ValueError(
                    f"a critic of several sub-steps cannot remember {list(self._state_shapes)}: use a step critic"
                )
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The network."""
        return [self.network]

    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
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
    """A network for each sub-step, which sees the observations of that sub-step and is shared by its agents.

    Args:
        networks: A network for each sub-step, by key or in the specification's order; each gives `{"value": [..., 1]}`.
        spec: What the agent sees and does.

    Raises:
        ValueError: The networks are not one for each sub-step.
    """

    def __init__(self, networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module], spec: Spec) -> None:
        super().__init__()
        by_step = networks_by_step(networks, spec.step_keys)
        self.networks = nn.ModuleList(by_step.values())
        self.recurrent = {key: network for key, network in by_step.items() if state_shapes(network)}
        self._steps = {
            key: (network, NetworkInput(network, {*spec.steps[key].observation_space.spaces, *state_shapes(network)}))
            for key, network in by_step.items()
        }

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The networks."""
        return list(self.networks)

    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """[B] what the network of a sub-step gives; see `StateCritic.value`."""
        network, inputs = self._steps[step_key]
        if step_key in self.recurrent:
            return _value(evaluate_recurrent(network, inputs(observation), state_shapes(network)))
        return _value(network(inputs(observation)))


class TorchStepStateCritic(StepwiseStateCritic):
    """A network for each sub-step, which gives the value; see `StepwiseStateCritic` for the arguments."""

    kind = "step"


class TorchDeltaStateCritic(StepwiseStateCritic):
    """The first sub-step's network gives the value, each later one by how much its sub-step's value differs.

        V_0 = f_0(o_0),   V_k = stop_gradient(V_{k-1}) + f_k(o_k)

    So a later network, which often sees little of the whole, only has to say what the acts before it have changed.

    Args:
        networks: A network for each sub-step, by key or in the specification's order; each gives `{"value": [..., 1]}`.
        spec: What the agent sees and does; in each row its sub-steps act once each, in this order.

    Raises:
        ValueError: The networks are not one for each sub-step or carry a state from act to act, or a sub-step has
            several agents.
    """

    kind = "delta"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module], spec: Spec) -> None:
        super().__init__(networks, spec)
        self._names = {key: tuple(step.observation_space.spaces) for key, step in spec.steps.items()}
        if several := {key: step.n_slots for key, step in spec.steps.items() if step.n_slots > 1}:
            raise ValueError(
                f"a delta critic needs one agent in each sub-step, not {several}: use a step or a shared critic"
            )
        if self.recurrent:
            raise ValueError(
                f"a delta critic cannot remember, as its networks {list(self.recurrent)} do: use a step critic"
            )

    def value(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Tensor:
        """[B] values; see `StateCritic.value`.

        Args:
            step_key: The sub-step.
            observation: Its observations, and those of the earlier sub-steps of the row as `name_in_row` names them.
            agent_id: Not needed.
        """
        value = super().value(step_key, {name: observation[name] for name in self._names[step_key]})
        for key in itertools.takewhile(lambda key: key != step_key, self._names):
            seen = {name: observation[name_in_row(key, name)] for name in self._names[key]}
            with torch.no_grad():
                before = super().value(key, seen)
            value = value + before
        return value


def name_in_row(step_key: StepKey, name: str) -> str:
    """Under which name a later sub-step's critic sees an observation of an earlier sub-step of the row."""
    return f"{step_key}/{name}"


def complete_observation(
    present: Mapping[str, Tensor], seen: Mapping[str, spaces.Space[Any]], one_hot: Tensor
) -> dict[str, Tensor]:
    """What a network that is shared by several sub-steps sees: zeros for what does not belong to the present one.

    Args:
        present: Name -> [..., *shape] what belongs to the sub-step.
        seen: All that belongs to any of them, and "step_key".
        one_hot: [number of sub-steps] which one it is.
    """
    name, tensor = next(iter(present.items()))
    leading = tensor.shape[: tensor.dim() - len(seen[name].shape or ())]
    absent = {
        name: torch.zeros((*leading, *(space.shape or ())), dtype=torch_dtype(space), device=tensor.device)
        for name, space in seen.items()
        if name not in present and name != STEP_KEY_OBSERVATION
    }
    return {**present, **absent, STEP_KEY_OBSERVATION: one_hot.expand(*leading, -1)}


def shared_observation_space(spec: Spec) -> spaces.Dict:
    """What the network of a shared critic sees.

    Raises:
        ValueError: Observations of the same name have different shapes, or one has the reserved name.
    """
    if len(spec.steps) == 1:
        return next(iter(spec.steps.values())).observation_space
    union = union_space({key: step.observation_space for key, step in spec.steps.items()}, "observation").spaces
    if STEP_KEY_OBSERVATION in union:
        raise ValueError(f"the observation {STEP_KEY_OBSERVATION!r} is reserved for shared critics; rename it")
    return spaces.Dict({**union, STEP_KEY_OBSERVATION: spaces.Box(0.0, 1.0, (len(spec.steps),))})


def union_space(by_step: Mapping[StepKey, spaces.Dict], what: str) -> spaces.Dict:
    """All that there is in any sub-step.

    Raises:
        ValueError: Entries of the same name have different shapes or types.
    """
    union: dict[str, spaces.Space[Any]] = {}
    for key, own in by_step.items():
        for name, space in own.spaces.items():
            known = union.setdefault(name, space)
            if known.shape != space.shape or known.dtype != space.dtype:
                raise ValueError(
                    f"{what} {name!r} has shape {space.shape} ({space.dtype}) in sub-step {key!r}, but "
                    f"{known.shape} ({known.dtype}) in another; rename one of them or use a step critic"
                )
    return spaces.Dict(union)


def _value(output: Mapping[str, Tensor]) -> Tensor:
    value = output["value"].squeeze(-1)  # [..., 1] -> [...]
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
