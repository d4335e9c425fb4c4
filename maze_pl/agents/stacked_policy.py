"""Many copies of a policy with different parameters, which act together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from maze_pl.agents.numpy_sampling import Sampling, numpy_views
from maze_pl.agents.policy_outputs import checked_outputs, network_inputs
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array, PolicyBatch, PolicyStep
from maze_pl.core.population import perturbed_parameters
from maze_pl.core.spaces import allowed_entries

if TYPE_CHECKING:
    from maze_pl.agents.torch_policy import TorchPolicy
    from maze_pl.core.spec import Spec

_FEWER = 0.7  # share of the stacked copies; if at most this share still acts, the others are dropped


class StackedPolicy:
    """Copies of a policy, the i-th of which acts in environment i; they take their most likely actions.

    The trainable parameters are stacked, so that each layer is one batched product of all copies
    (`torch.vmap`). Everything else, such as buffers, is that of the policy. Copies whose episodes are over are
    dropped once at most 70% of the stacked copies still act.

    The networks are evaluated for two copies first, once together and once one after the other; the outputs must
    agree.

    Args:
        policy: The policy; `TorchPolicy.stacked` makes its copies.

    Raises:
        ValueError: Copies of the policy cannot act together, with the reason.
    """

    def __init__(self, policy: TorchPolicy) -> None:
        self.policy = policy
        self._slices = _slices_of(policy)
        self._evaluate: dict[StepKey, Callable[..., dict[str, Tensor]]] = {}
        self._stacks: dict[StepKey, dict[str, Tensor]] = {}
        self._n_stacked = 0  # number of copies in the stacks
        self._place = np.zeros(0, np.int64)  # of each copy in the stacks
        for key in policy.spec.step_keys:
            step = policy.parts_of(key)
            if step.state_shapes or step.explorations or len(step.networks) != 1:
                raise ValueError(f"sub-step {key!r} has policy states, explorations, or a network for each agent")
            if not any(parameter in self._slices for parameter in step.networks[0].parameters()):
                raise ValueError(f"the network of sub-step {key!r} has no trainable parameters")
            self._evaluate[key] = _evaluated(step.networks[0])
        was_training = policy.training
        policy.eval()
        try:
            for key in policy.spec.step_keys:
                self._compare(key)
        finally:
            policy.train(was_training)

    def load(self, values: Tensor) -> None:
        """Set the parameters of all copies.

        Args:
            values: [S, P] trainable parameters of S copies, in the order of `perturbed_parameters`.
        """
        self._stacks = {}
        for key in self.policy.spec.step_keys:
            network = self.policy.parts_of(key).networks[0]
            self._stacks[key] = {
                name: values[:, self._slices[parameter]].reshape(-1, *parameter.shape)
                for name, parameter in network.named_parameters()
                if parameter in self._slices
            }
        self._n_stacked = len(values)
        self._place = np.arange(len(values))

    def keep(self, copies: Array) -> None:
        """Select the copies that still act.

        Args:
            copies: [n] their numbers, in ascending order.
        """
        if len(copies) > _FEWER * self._n_stacked or not len(copies):
            return
        places = torch.from_numpy(self._place[copies])
        for stack in self._stacks.values():
            for name, values in stack.items():
                stack[name] = values[places.to(values.device)]
        self._n_stacked = len(copies)
        self._place[copies] = np.arange(len(copies))

    def act(self, batch: PolicyBatch, *, deterministic: bool = True, **options: Any) -> PolicyStep:
        """Choose the most likely action of each actor.

        Args:
            batch: The actors; `env_index` names the copies.
            deterministic: Must be True.
            options: Options of `TorchPolicy.act`, which have no effect on most likely actions.
        """
        assert deterministic and batch.env_index is not None
        key = batch.step_key
        step = self.policy.parts_of(key)
        allowed = {}
        for head, name, n_entries in step.masks:
            allowed[head] = allowed_entries(batch.observation[name], (len(batch.agent_id), n_entries), name, head)
        observation = network_inputs(batch)  # in inference mode, changes in place are not counted
        return PolicyStep(self._chosen(batch, observation, allowed))

    @torch.inference_mode()
    def _chosen(
        self, batch: PolicyBatch, observation: Mapping[str, Tensor], allowed: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the most likely actions [B, ...] by head."""
        key, places = batch.step_key, self._place[batch.env_index]
        step = self.policy.parts_of(key)
        logits = self._outputs(key, step.inputs(observation), places)
        checked_outputs(step, key, logits, observation)
        arrays = numpy_views(logits)
        chosen = None if arrays is None else step.sampler.choose(arrays, allowed, Sampling(True, 1.0, None))
        if chosen is None:
            masks = {head: observation[name].to(step.inputs.device) for head, name in step.mapper.masks.items()}
            joint = step.mapper.logits_dict_to_distribution(logits, 1.0, masks)
            chosen = {head: value.cpu().numpy() for head, value in joint.deterministic_sample().items()}
        return chosen

    @torch.inference_mode()
    def _compare(self, key: StepKey) -> None:
        """Raise ValueError if two copies together do not compute what each of them computes alone."""
        step = self.policy.parts_of(key)
        values = torch.cat([parameter.reshape(-1) for parameter in perturbed_parameters(self.policy)])
        self.load(torch.stack([values, 1.01 * values]))
        inputs = step.inputs(_samples(self.policy.spec, key))
        try:
            together = self._evaluate[key](self._stacks[key], dict(inputs))
            for number in (0, 1):
                own = {name: stacked[number] for name, stacked in self._stacks[key].items()}
                observation = {name: value[number : number + 1] for name, value in inputs.items()}
                for head, value in functional_call(step.networks[0], own, (observation,)).items():
                    torch.testing.assert_close(together[head][number : number + 1], value, rtol=1e-4, atol=1e-4)
        except Exception as error:  # torch.vmap and networks raise errors of many classes
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(f"torch.vmap does not evaluate the network of sub-step {key!r}: {reason}") from error

    def _outputs(self, key: StepKey, inputs: Mapping[str, Tensor], places: Array) -> dict[str, Tensor]:
        """Outputs of the networks [B, L], each of the copy in the given place of the stack."""
        stack = self._stacks[key]
        if len(places) == self._n_stacked and bool((np.diff(places) > 0).all()):
            return self._evaluate[key](stack, dict(inputs))
        rows = torch.from_numpy(places)
        filled = {}
        for name, value in inputs.items():
            filled[name] = value.new_zeros(self._n_stacked, *value.shape[1:])
            filled[name][rows.to(value.device)] = value
        outputs = self._evaluate[key](stack, filled)
        return {name: value[rows.to(value.device)] for name, value in outputs.items()}


def _samples(spec: Spec, key: StepKey) -> dict[str, Tensor]:
    """Two observations of a sub-step, drawn from its space."""
    space = copy.deepcopy(spec.steps[key].observation_space)  # environments may draw from it
    space.seed(0)
    drawn = [space.sample(), space.sample()]
    return {name: torch.from_numpy(np.stack([np.asarray(one[name]) for one in drawn])) for name in space}


def _slices_of(policy: nn.Module) -> dict[nn.Parameter, slice]:
    """Slice of each trainable parameter in the vector of all of them."""
    slices: dict[nn.Parameter, slice] = {}
    begin = 0
    for parameter in perturbed_parameters(policy):
        slices[parameter] = slice(begin, begin + parameter.numel())
        begin += parameter.numel()
    return slices


def _evaluated(network: nn.Module) -> Callable[[dict[str, Tensor], dict[str, Tensor]], dict[str, Tensor]]:
    """Return a function of stacked parameters and inputs [S, ...] that returns the outputs [S, L]."""

    def evaluate(parameters: dict[str, Tensor], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs = functional_call(network, parameters, ({name: value.unsqueeze(0) for name, value in inputs.items()},))
        return {name: value.squeeze(0) for name, value in outputs.items()}

    return torch.vmap(evaluate)
