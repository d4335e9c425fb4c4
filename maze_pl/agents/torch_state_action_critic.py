"""Base of state-action critics: twin Q-networks with targets.

Discrete heads (Discrete, MultiDiscrete, MultiBinary) are outputs of a network, one number per
option, so that the expectation under the policy is an exact sum. Continuous heads are inputs, in
addition to the observations, as fractions of their bounds.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from maze_pl.agents.bounded_actions import READS_FRACTIONS, boxes_to_scale, complete_critic, fraction_of_bounds
from maze_pl.agents.critic_inputs import AGENT_OBSERVATION, CriticInputs, inputs_by_step, most_agents, with_agents
from maze_pl.agents.network_io import NetworkInput, networks_by_step, refuse_recurrent
from maze_pl.agents.torch_state_critic import Critic, complete_observation
from maze_pl.core.actor_id import StepKey
from maze_pl.core.soft_update import SoftUpdate
from maze_pl.core.spec import Spec
from maze_pl.core.torch_random_state import restore_torch_random_state, torch_random_state
from maze_pl.distributions.probability_distribution import choice_sizes, chosen_options

Pair = Sequence[nn.Module]
"""Two networks that differ in their weights only."""


class _Place(NamedTuple):
    """The place of a stacked tensor in the modules of both networks.

    Attributes:
        path: Path of the tensor in the network.
        owner: Dict of a module's tensors that holds the stacked pair.
        target_owner: Dict that holds the stacked pair of the target networks.
        name: Key in both dicts.
    """

    path: str
    owner: dict[str, Any]
    target_owner: dict[str, Any]
    name: str


class _Stacked(NamedTuple):
    """A tensor of both networks, [2, ...].

    Attributes:
        pair: The stacked tensors, a parameter if they are.
        target: Their copy for the target networks.
        original: The tensor of the first network, kept alive so that its `id` is not reused.
    """

    pair: Tensor
    target: Tensor
    original: Tensor


def _stack(tensor: Tensor, other: Tensor) -> _Stacked:
    """Stack a tensor of the first network and the same tensor of the second one."""
    both = torch.stack([tensor.detach(), other.detach()])
    pair = both
    if isinstance(tensor, nn.Parameter):
        pair = nn.Parameter(both, tensor.requires_grad)
    return _Stacked(pair, both.clone(), tensor)


def _shapes(network: nn.Module) -> list[tuple[str, torch.Size]]:
    """Names and shapes of a network's tensors."""
    return [(name, tensor.shape) for name, tensor in network.state_dict().items()]


class TwinNetwork(nn.Module):
    """Two networks and their target networks in one module, with stacked tensors [2, ...].

    Both networks are evaluated as one batch, except on the CPU, where they run one after the other:
    plain matrix products take a tenth less time there than batched ones. Networks that `torch.vmap`
    cannot evaluate, such as those that look at values, run one after the other everywhere.

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
        if len(pair) != 2 or pair[0] is pair[1] or _shapes(pair[0]) != _shapes(pair[1]):
            classes = [type(network).__name__ for network in pair]
            needed = "two networks that differ in their weights only"
            raise ValueError(f"a state-action critic needs {needed}, got {classes}")
        refuse_recurrent(pair[0], "a network of the state-action critic")
        self.network = copy.deepcopy(pair[0])
        self.target = copy.deepcopy(pair[0])
        self._places: list[_Place] = []
        self._is_batchable = True  # until torch.vmap fails
        self._soft_update = SoftUpdate()
        stacked: dict[int, _Stacked] = {}  # shared tensors stay shared
        modules = zip(
            self.network.named_modules(),
            self.target.modules(),
            pair[1].modules(),
            strict=True,
        )
        # In the modules of both copies, the stacked pair takes the place of each tensor. Tensors of
        # the target are buffers, which need no gradient.
        for (path, network), target, other in modules:
            for name, tensor in [*network._parameters.items(), *network._buffers.items()]:
                if tensor is None:
                    continue
                if id(tensor) not in stacked:
                    stacked[id(tensor)] = _stack(tensor, getattr(other, name))
                is_parameter = name in network._parameters
                owner: dict[str, Any] = network._parameters if is_parameter else network._buffers
                owner[name] = stacked[id(tensor)].pair
                target._parameters.pop(name, None)
                target._buffers[name] = stacked[id(tensor)].target
                full_name = f"{path}.{name}".removeprefix(".")
                self._places.append(_Place(full_name, owner, target._buffers, name))

    def forward(
        self, inputs: Mapping[str, Tensor], target: bool = False, only_first: bool = False
    ) -> dict[str, Tensor]:
        """Evaluate both networks, or both target networks.

        Args:
            inputs: Name -> [B, ...].
            target: Whether to evaluate the target networks.
            only_first: Whether to evaluate the first network only.

        Returns:
            Output -> [2, B, L]; [1, B, L] of the first network.
        """
        tensors = {}
        for place in self._places:
            owner = place.target_owner if target else place.owner
            tensors[place.path] = owner[place.name]
        evaluate = partial(functional_call, self.network, tie_weights=False)
        if only_first:
            outputs = evaluate({path: both[0] for path, both in tensors.items()}, (inputs,))
            return {name: output.unsqueeze(0) for name, output in outputs.items()}
        device = next(iter(inputs.values())).device
        is_batched = device.type != "cpu" or self.always_batched
        if not (is_batched and self._is_batchable):
            return _one_by_one(evaluate, tensors, inputs)
        batched: dict[str, Tensor]
        random_state = torch_random_state(device)
        try:
            batched = torch.vmap(evaluate, (0, None), randomness="different")(tensors, (inputs,))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            restore_torch_random_state(random_state, device)  # a network that was not tried draws the same numbers
            batched = _one_by_one(evaluate, tensors, inputs)  # raises errors of the networks
            self._is_batchable = False
            _say_why_one_by_one(error)
        return batched

    def update_target(self, tau: float) -> None:
        """Update the target networks: target + tau * (network - target)."""
        targets = {}
        tensors = {}
        for place in self._places:
            tensor = place.owner[place.name]
            if tensor.is_floating_point():
                tensors[id(tensor)] = tensor  # once, if it is shared
                targets[id(tensor)] = place.target_owner[place.name]
        self._soft_update.apply(list(targets.values()), list(tensors.values()), tau)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._soft_update.forget()  # the tensors may leave their device
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved


def _one_by_one(
    evaluate: Callable[..., dict[str, Tensor]], tensors: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Evaluate both networks one after the other; result as in `TwinNetwork.forward`."""
    first_tensors = {}
    second_tensors = {}
    for path, both in tensors.items():
        first_tensors[path], second_tensors[path] = both.unbind()
    first = evaluate(first_tensors, (inputs,))
    second = evaluate(second_tensors, (inputs,))
    return {name: torch.stack([first[name], second[name]]) for name in first}


def _say_why_one_by_one(error: Exception) -> None:
    """Log why a pair of networks is not evaluated as one batch."""
    from pytorch_lightning.utilities import rank_zero_info  # here, as acting does not need it

    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    slower = "both networks of a critic are evaluated one after the other, which takes longer"
    rank_zero_info(f"{slower}: torch.vmap does not evaluate them: {reason}")


class TorchStateActionCritic(Critic, ABC):
    """Estimates Q-values with twin networks, each of which has a target network.

    Args:
        networks: Two networks for each entry of `critic_inputs`, by key or in order. They take
            observations and continuous heads in one dict of tensors [B, ...] and return a dict of
            outputs [B, L]. Continuous heads are scaled from their bounds to [-1, 1]; components
            without finite bounds are as they are.
        spec: Sub-steps with their observation and action spaces.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has a separate policy
            network. There, the networks also take the one-hot observation "agent": otherwise each
            policy would climb the mean of the values of all agents.

    Attributes:
        spec: The given one, with the observation "agent" where networks take it.

    Raises:
        ValueError: The networks do not fit, a continuous head has the name of an observation, or
            an observation has the name "agent" where agents have separate networks.
    """

    def __init__(
        self,
        networks: Sequence[Pair] | Mapping[StepKey, Pair],
        spec: Spec,
        substeps_with_separate_agent_nets: Sequence[StepKey] = (),
    ) -> None:
        super().__init__()
        self._told = frozenset(substeps_with_separate_agent_nets)  # sub-steps
        self.spec = spec = with_agents(spec, substeps_with_separate_agent_nets)
        critic_inputs = self.critic_inputs(spec)
        self.twins = nn.ModuleList(
            TwinNetwork(pair) for pair in networks_by_step(networks, tuple(critic_inputs)).values()
        )
        # spaces of the inputs of each pair, by name
        self._spaces = [
            {**inputs.observation_space.spaces, **inputs.action_space.spaces} for inputs in critic_inputs.values()
        ]
        self._inputs = [
            NetworkInput(twin, set(input_spaces)) for twin, input_spaces in zip(self.twins, self._spaces, strict=True)
        ]
        self._inputs_by_step = inputs_by_step(spec)
        self._action_spaces = {key: step.action_space for key, step in spec.steps.items()}
        self._boxes = {key: boxes_to_scale(inputs.action_space) for key, inputs in self._inputs_by_step.items()}
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)
        agents = torch.arange(most_agents(spec, self._told))
        self.register_buffer("_agents", agents, persistent=False)
        self._reads_fractions = True
        if any(inputs.action_space.spaces for inputs in critic_inputs.values()):
            self.register_buffer(READS_FRACTIONS, torch.ones(1, dtype=torch.int64))  # can be averaged

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
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        action: Mapping[str, Tensor],
        target: bool = False,
        only_first: bool = False,
        agent_id: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the Q-values of both networks.

        Q(s, a) is the sum, over all outputs, of the entries that the action selects.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            action: Head -> [B, ...], in the units of their spaces; only continuous heads are used.
            target: Whether to evaluate the target networks.
            only_first: Whether to evaluate the first network only, with 1 in place of 2 below.
            agent_id: [B] ids of the agents; required if agents have separate policy networks.

        Returns:
            Discrete head -> [2, B, L], one value per option of its choices; a bit has two: not set,
            set. "q_value" -> [2, B, 1] if there is no discrete head.

        Raises:
            ValueError: The ids of the agents are missing.
        """
        critic_inputs = self._inputs_by_step[step_key]
        index = self._index[step_key]
        prefix = ""  # of the outputs' names
        inputs = dict(observation)
        for head in critic_inputs.action_space.spaces:
            inputs[head] = action[head]
        if self._reads_fractions:
            for head, box in self._boxes[step_key].items():
                inputs[head] = fraction_of_bounds(action[head], box)
        if step_key in self._told:
            if agent_id is None:
                fault = f"the agents of sub-step {step_key!r} have separate policy networks"
                raise ValueError(f"{fault}: pass agent_id, as the critic must know which of them acts")
            agents = self.get_buffer("_agents")
            inputs[AGENT_OBSERVATION] = (agent_id.to(agents.device).unsqueeze(-1) == agents).float()
        if len(self.twins) < len(self._index):  # a pair that all sub-steps share
            one_hot = self.get_buffer("_one_hot")[index]
            inputs = complete_observation(inputs, self._spaces[0], one_hot)
            index = 0
            prefix = f"{step_key}/"
        outputs = self.twins[index](self._inputs[index](inputs), target, only_first)
        q_values = {}
        for name in critic_inputs.q_shapes:
            q = outputs[prefix + name]
            is_half = q.dtype in (torch.float16, torch.bfloat16)
            q_values[name] = q.float() if is_half else q
        return q_values

    def action_value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        action: Mapping[str, Tensor],
        target: bool = False,
        only_first: bool = False,
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """Return Q(s, a) of both networks for given actions.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...], the actors' observations.
            action: Head -> [B, ...], their actions.
            target: Whether to evaluate the target networks.
            only_first: Whether to evaluate the first network only.
            agent_id: [B] ids of the agents; required if agents have separate policy networks.

        Returns:
            [2, B]; [1, B] of the first network.
        """
        heads = self._action_spaces[step_key]
        terms = []
        q_values = self.q_values(step_key, observation, action, target, only_first, agent_id)
        for name, q in q_values.items():
            if choice_sizes(heads.spaces.get(name)):
                chosen = chosen_options(heads[name], action[name])
                q = q.gather(-1, chosen.expand(len(q), *chosen.shape))
            terms.append(q)
        return torch.cat(terms, dim=-1).sum(dim=-1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load tensors; a critic of version 0.2.0 goes on reading actions as they are."""
        if READS_FRACTIONS in self._buffers:
            complete_critic(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if READS_FRACTIONS in self._buffers:
            self._reads_fractions = bool(self.get_buffer(READS_FRACTIONS))

    def update_targets(self, tau: float) -> None:
        """Update the target networks: target + tau * (network - target)."""
        for twin in self.twins:
            twin.update_target(tau)  # type: ignore[operator]
