"""State-action critics: twin Q-networks with targets, shared by all sub-steps or one pair for each.

Discrete heads (Discrete, MultiDiscrete, MultiBinary) are outputs of a network, one number per
option, so that the expectation under the policy is an exact sum. Continuous heads are inputs, in
addition to the observations.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.func import functional_call

from maze_pl.agents.network_io import NetworkInput, networks_by_step, refuse_recurrent
from maze_pl.agents.torch_state_critic import Critic, complete_observation, shared_observation_space, union_space
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec
from maze_pl.distributions.probability_distribution import choice_sizes, chosen_options

Pair = Sequence[nn.Module]
"""Two networks that differ in their weights only."""


@dataclass(frozen=True, slots=True)
class CriticInputs:
    """Inputs and outputs of a pair of networks.

    Attributes:
        observation_space: Observations.
        action_space: Continuous heads of the action.
        q_shapes: Output -> (L,). For each discrete head, L is the number of options of all its
            choices, two for each bit. Without a discrete head: "q_value" -> (1,).
    """

    observation_space: spaces.Dict
    action_space: spaces.Dict
    q_shapes: Mapping[str, tuple[int, ...]]


class TwinNetwork(nn.Module):
    """Two networks and their target networks in one module, with stacked tensors [2, ...].

    Both networks are evaluated as one batch, except on the CPU, where they run one after the other:
    plain matrix products take a tenth less time there than batched ones.

    Args:
        pair: The two networks.

    Attributes:
        always_batched: Whether both networks are evaluated as one batch on the CPU, too.

    Raises:
        ValueError: There are not exactly two distinct networks whose tensors have the same names
            and shapes, or they are recurrent.
    """

    always_batched = False

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        shapes = [[(name, tensor.shape) for name, tensor in network.state_dict().items()] for network in pair]
        if len(pair) != 2 or pair[0] is pair[1] or shapes[0] != shapes[1]:
            kinds = [type(network).__name__ for network in pair]
            raise ValueError(f"a state-action critic needs two networks that differ in their weights only, got {kinds}")
        refuse_recurrent(pair[0], "a network of the state-action critic")
        self.network, self.target = copy.deepcopy(pair[0]), copy.deepcopy(pair[0])
        # Path of a tensor, dict with the stacked pair, dict with its target, key in both dicts.
        self._places: list[tuple[str, dict[str, Any], dict[str, Any], str]] = []
        stacked: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # shared tensors stay shared
        modules = zip(self.network.named_modules(), self.target.modules(), pair[1].modules(), strict=True)
        for (path, network), target, other in modules:
            for name, tensor in [*network._parameters.items(), *network._buffers.items()]:
                if tensor is None:
                    continue
                if id(tensor) not in stacked:
                    both = torch.stack([tensor.detach(), getattr(other, name).detach()])
                    first = nn.Parameter(both, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else both
                    stacked[id(tensor)] = first, both.clone(), tensor
                owner = network._parameters if name in network._parameters else network._buffers
                target._parameters.pop(name, None)
                owner[name], target._buffers[name], _ = stacked[id(tensor)]
                self._places.append((f"{path}.{name}".removeprefix("."), owner, target._buffers, name))

    def forward(self, inputs: Mapping[str, Tensor], target: bool = False) -> dict[str, Tensor]:
        """Evaluate both networks, or both target networks.

        Args:
            inputs: Name -> [B, ...].
            target: Whether to evaluate the target networks.

        Returns:
            Output -> [2, B, L].
        """
        tensors = {path: (copies if target else own)[name] for path, own, copies, name in self._places}
        evaluate = partial(functional_call, self.network, tie_weights=False)
        batched: dict[str, Tensor]
        if next(iter(inputs.values())).device.type != "cpu" or self.always_batched:
            batched = torch.vmap(evaluate, (0, None), randomness="different")(tensors, (inputs,))
            return batched
        halves = zip(*(both.unbind() for both in tensors.values()), strict=True)
        first, second = (evaluate(dict(zip(tensors, half, strict=True)), (inputs,)) for half in halves)
        return {name: torch.stack([first[name], second[name]]) for name in first}

    @torch.no_grad()
    def update_target(self, tau: float) -> None:
        """Update the target networks: target + tau * (network - target)."""
        pairs = {id(own[name]): (own[name], copies[name]) for _, own, copies, name in self._places}
        own, copies = zip(*(pair for pair in pairs.values() if pair[0].is_floating_point()), strict=True)
        torch._foreach_lerp_(copies, own, tau)


class TorchStateActionCritic(Critic, ABC):
    """Estimates Q-values with twin networks, each of which has a target network.

    Args:
        networks: Two networks for each entry of `critic_inputs`, by key or in order. They take
            observations and continuous heads in one dict of tensors [B, ...] and return a dict of
            outputs [B, L].
        spec: Sub-steps with their observation and action spaces.

    Raises:
        ValueError: The networks do not fit, or a continuous head has the name of an observation.
    """

    def __init__(self, networks: Sequence[Pair] | Mapping[StepKey, Pair], spec: Spec) -> None:
        super().__init__()
        critic_inputs = self.critic_inputs(spec)
        self.twins = nn.ModuleList(
            TwinNetwork(pair) for pair in networks_by_step(networks, tuple(critic_inputs)).values()
        )
        self._spaces = [{**one.observation_space.spaces, **one.action_space.spaces} for one in critic_inputs.values()]
        self._inputs = [NetworkInput(twin, {*seen}) for twin, seen in zip(self.twins, self._spaces, strict=True)]
        self._own = _by_step(spec)
        self._action_spaces = {key: step.action_space for key, step in spec.steps.items()}
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)

    @classmethod
    @abstractmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, CriticInputs]:
        """Inputs and outputs of each pair of networks, by sub-step, or by "all" for a shared pair.

        Raises:
            ValueError: A continuous head has the name of an observation, or entries of the same
                name differ in shape or type between sub-steps that share a pair.
        """

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The networks, without the target networks."""
        return [twin.network for twin in self.twins]  # type: ignore[misc]

    def q_values(
        self, step_key: StepKey, observation: Mapping[str, Tensor], action: Mapping[str, Tensor], target: bool = False
    ) -> dict[str, Tensor]:
        """Return the Q-values of both networks.

        Q(s, a) is the sum, over all outputs, of the entries that the action selects.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            action: Head -> [B, ...]; only continuous heads are used.
            target: Whether to evaluate the target networks.

        Returns:
            Discrete head -> [2, B, L], one value per option of its choices; a bit has two: not set,
            set. "q_value" -> [2, B, 1] if there is no discrete head.
        """
        own, index, prefix = self._own[step_key], self._index[step_key], ""
        seen: Mapping[str, Tensor] = {**observation, **{head: action[head] for head in own.action_space.spaces}}
        if len(self.twins) < len(self._index):
            seen = complete_observation(seen, self._spaces[0], self.get_buffer("_one_hot")[index])
            index, prefix = 0, f"{step_key}/"
        outputs = self.twins[index](self._inputs[index](seen), target)
        both = {name: outputs[prefix + name] for name in own.q_shapes}
        return {name: q.float() if q.dtype in (torch.float16, torch.bfloat16) else q for name, q in both.items()}

    def action_value(
        self, step_key: StepKey, observation: Mapping[str, Tensor], action: Mapping[str, Tensor], target: bool = False
    ) -> Tensor:
        """Return Q(s, a) of both networks for given actions.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            action: Head -> [B, ...], their actions.
            target: Whether to evaluate the target networks.

        Returns:
            [2, B]
        """
        heads, terms = self._action_spaces[step_key], list[Tensor]()
        for name, q in self.q_values(step_key, observation, action, target).items():
            if choice_sizes(heads.spaces.get(name)):
                chosen = chosen_options(heads[name], action[name])
                q = q.gather(-1, chosen.expand(2, *chosen.shape))
            terms.append(q)
        return torch.cat(terms, dim=-1).sum(dim=-1)

    def update_targets(self, tau: float) -> None:
        """Update the target networks: target + tau * (network - target)."""
        for twin in self.twins:
            twin.update_target(tau)  # type: ignore[operator]


class TorchStepStateActionCritic(TorchStateActionCritic):
    """A pair of networks for each sub-step, shared by its agents; see `TorchStateActionCritic` for the arguments."""

    @classmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, CriticInputs]:
        """Inputs and outputs by sub-step; see `TorchStateActionCritic.critic_inputs`."""
        return _by_step(spec)


class TorchSharedStateActionCritic(TorchStateActionCritic):
    """One pair of networks for all sub-steps; see `TorchStateActionCritic` for the arguments.

    With several sub-steps, its inputs are the observations and continuous heads of all of them,
    with zeros for entries that do not belong to the current sub-step, and the one-hot observation
    "step_key", which names the current sub-step. Its outputs are the outputs of all sub-steps,
    named `<step key>/<output>`.
    """

    @classmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, CriticInputs]:
        """Inputs and outputs, by the key "all"; see `TorchStateActionCritic.critic_inputs`."""
        own = _by_step(spec)
        if len(own) == 1:
            return {"all": next(iter(own.values()))}
        heads = union_space({key: one.action_space for key, one in own.items()}, "action head")
        outputs = {f"{key}/{name}": shape for key, one in own.items() for name, shape in one.q_shapes.items()}
        return {"all": _checked(CriticInputs(shared_observation_space(spec), heads, outputs), "some sub-steps")}


def _by_step(spec: Spec) -> dict[StepKey, CriticInputs]:
    critic_inputs: dict[StepKey, CriticInputs] = {}
    for key, step in spec.steps.items():
        sizes = {head: choice_sizes(space) for head, space in step.action_space.spaces.items()}
        continuous = spaces.Dict([(head, step.action_space[head]) for head, own in sizes.items() if not own])
        outputs = {head: (sum(own),) for head, own in sizes.items() if own} or {"q_value": (1,)}
        critic_inputs[key] = _checked(CriticInputs(step.observation_space, continuous, outputs), f"sub-step {key!r}")
    return critic_inputs


def _checked(critic_inputs: CriticInputs, where: str) -> CriticInputs:
    if taken := sorted({*critic_inputs.observation_space.spaces} & {*critic_inputs.action_space.spaces}):
        raise ValueError(f"the action heads {taken} of {where} have names of observations beside them: rename them")
    return critic_inputs
