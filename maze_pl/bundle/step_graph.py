"""The computation of a sub-step, from raw observations to actions, as one module of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.agents import TorchPolicy
from maze_pl.agents.policy_outputs import complete_outputs
from maze_pl.bundle.action_stages import applied, marked, split_heads, within_bounds
from maze_pl.bundle.head_outputs import HeadOutputs, head_outputs
from maze_pl.bundle.observation_stages import observation_stage, torch_type
from maze_pl.bundle.wrapper_roles import WrapperRoles
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl.core.spaces import space_to_dict, without_integer_types
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution
from maze_pl_runtime.inputs import read_space

Tensors = dict[str, Tensor]
Described = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of an array, without batch dimension."""


class StepGraph(nn.Module):
    """Wrappers and networks of a sub-step, from inputs to outputs by name.

    Inputs are `observation/<name>`, `state/<name>`, `agent_id` if agents have separate networks, and
    `uniforms`. Outputs are `action/<head>`, the most likely action; `sample/<head>`, the action that
    the uniform numbers determine; `parameters/<head>` of the distributions; and `next_state/<name>`.

    Args:
        policy: The policy.
        key: The sub-step.
        roles: Roles of the wrappers.

    Attributes:
        key: The sub-step.
        observations: Observation as the environment returns it -> its space, as plain values, with
            `clipped` if the first wrapper clips it, so that it may even be infinite.
        actions: Action head of the environment -> its space, as plain values.
        masks: Action head -> the observation that masks it: heads of the environment with the masks that
            the caller sees declared, and heads of the policy whose masks are declared further out.
        heads: Action head of the policy -> its outputs.
        state: Entry of the policy state -> its type and shape.
        n_networks: Number of networks, one for each agent if there are several.
        exploration: Scale of exploration of sampled actions, for distributions that have one.

    Raises:
        ExportError: A distribution cannot be exported.
    """

    def __init__(self, policy: TorchPolicy, key: StepKey, roles: WrapperRoles) -> None:
        super().__init__()
        self.key = key
        self._parts = policy.parts_of(key)
        self._space = policy.spec.steps[key].action_space
        self.exploration = 0.0 if policy.exploration is None else float(policy.exploration)
        self.networks: Any = nn.ModuleList(self._parts.networks)
        self.n_networks = len(self._parts.networks)
        outside = roles.outside
        self.observations = _described(outside.observation_spaces_dict[key])
        self.actions = _described(outside.action_spaces_dict[key])
        self.masks = dict(outside.action_masks_dict.get(key, {}))
        self.heads: dict[str, HeadOutputs] = {}
        for head, (distribution, space) in self._parts.mapper.heads.items():
            self.heads[head] = head_outputs(head, distribution, space)
        self.state: dict[str, Described] = {}
        self._stages = []
        for position, wrapper in enumerate(reversed(roles.included)):
            stage = observation_stage(wrapper, key, position)
            if stage is not None:
                self._stages.append(stage)
                self.state |= stage.state
        for name in self.observations:
            if self._stages and self._stages[0].clips(name):
                self.observations[name]["clipped"] = True
        self._action_wrappers = list(roles.included)
        self._add_outer_masks()
        self._observed = list(policy.spec.steps[key].observation_space.spaces)
        for name, shape in self._parts.state_shapes.items():
            self.state[name] = (np.dtype(np.float32), shape)

    def _add_outer_masks(self) -> None:
        """Note observations that mask heads of the policy because wrappers in the bundle declare them."""
        declared = dict(self.masks)  # also for the heads that wrappers split these into
        for wrapper in reversed(self._action_wrappers):
            declared = split_heads(wrapper, declared)
        for head, mask in self._parts.mapper.masks.items():
            name: str | None = mask
            for stage in reversed(self._stages):
                name = stage.origin(name) if name is not None else None
            if name in self.observations and declared.get(head) != name:
                self.masks[head] = name

    @property
    def n_uniforms(self) -> int:
        """Number of uniform numbers that determine the actions of all heads."""
        return sum(outputs.n_uniforms for outputs in self.heads.values())

    def distribution_of(self, head: str) -> str:
        """Return the class path of the distribution of a head of the policy."""
        distribution, _ = self._parts.mapper.heads[head]
        return f"{distribution.__module__}.{distribution.__qualname__}"

    def near_ties(
        self, parameters: Mapping[str, Array], tolerance: float, uniforms: Array | None = None
    ) -> dict[str, Array]:
        """Return which entries of an action are choices that rounding errors may change.

        For the most likely action, these are choices whose two best options are equally likely; for a
        sampled one, those whose uniform number is at the limit between two options.

        Args:
            parameters: Head of the policy -> [size] parameters, as the graph returns them.
            tolerance: Largest difference of log-probabilities, and of cumulative probabilities.
            uniforms: [n_uniforms] numbers that determine a sampled action; None for the most likely one.

        Returns:
            Head of the environment -> [*shape] bool.
        """
        marks: Tensors = {}
        first = 0
        for head, outputs in self.heads.items():
            shape = self._space[head].shape or ()
            of_head = range(first, first + outputs.n_uniforms)
            first += outputs.n_uniforms
            if not outputs.choices:
                marks[head] = torch.zeros((1, *shape), dtype=torch.bool)
                continue
            ties = []
            of_choices = np.split(np.asarray(parameters[head]), np.cumsum(outputs.choices)[:-1])
            for options, number in zip(of_choices, of_head, strict=True):
                if uniforms is None:
                    ties.append(_is_tie(options, tolerance))
                else:
                    ties.append(_is_at_limit(options, float(uniforms[number]), tolerance))
            marks[head] = torch.tensor(ties).reshape(1, *shape)
        for wrapper in self._action_wrappers:
            marks = marked(wrapper, marks)
        return {head: marks[head][0].numpy() for head in self.actions}

    def example(self, n: int, generator: torch.Generator) -> Tensors:
        """Return inputs for n actors, for tracing."""
        inputs: Tensors = {}
        for name, space in self.observations.items():
            dtype, shape, low, high = read_space(space)
            value = torch.rand((n, *shape), generator=generator)
            if space["type"] != "box":
                lowest = torch.from_numpy(np.asarray(low))
                n_values = torch.from_numpy(np.asarray(high - low + 1))
                value = lowest + (value * n_values).floor()
            inputs[f"observation/{name}"] = value.to(torch_type(dtype))
        for name, (dtype, shape) in self.state.items():
            inputs[f"state/{name}"] = torch.zeros((n, *shape), dtype=torch_type(dtype))
        if self.n_networks > 1:
            inputs["agent_id"] = torch.arange(n) % self.n_networks
        if self.n_uniforms:
            inputs["uniforms"] = torch.rand((n, self.n_uniforms), dtype=torch.float64, generator=generator)
        return inputs

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensors:
        """Compute the outputs; all tensors are [B, ...]."""
        observation = {name: inputs[f"observation/{name}"] for name in self.observations}
        state = {name: inputs[f"state/{name}"] for name in self.state}
        next_state: Tensors = {}
        for stage in self._stages:
            observation, changed = stage.apply(observation, state)
            next_state |= changed
        observation = {name: observation[name] for name in self._observed}
        agent_id = inputs.get("agent_id")
        network_state = {name: state[name] for name in self._parts.state_shapes}
        outputs = self._network_outputs({**observation, **network_state}, agent_id)
        outputs = complete_outputs(self._parts, outputs, agent_id)
        for name in network_state:
            next_state[name] = outputs[name].float()
        result = self.decisions(self._distribution(outputs, observation), inputs.get("uniforms"))
        return result | {f"next_state/{name}": next_state[name] for name in self.state}

    def _network_outputs(self, tensors: Tensors, agent_id: Tensor | None) -> Tensors:
        """Outputs of the network of each actor."""
        tensors = self._parts.inputs(tensors)
        chosen: Tensors = dict(self.networks[0](tensors))
        for agent, network in enumerate(self.networks[1:], start=1):
            assert agent_id is not None
            for name, value in network(tensors).items():
                further_dimensions = [1] * (value.dim() - 1)
                is_agent = (agent_id == agent).reshape(-1, *further_dimensions)
                chosen[name] = torch.where(is_agent, value, chosen[name])
        return chosen

    def _distribution(self, outputs: Tensors, observation: Tensors) -> DictProbabilityDistribution:
        """Joint distribution of all heads, with masks."""
        mapper = self._parts.mapper
        masks = {head: observation[name] for head, name in mapper.masks.items()}
        joint = mapper.logits_dict_to_distribution(outputs, 1.0, masks)
        for part in joint.distributions.values():
            part.exploration = self.exploration
        return joint

    def decisions(self, joint: DictProbabilityDistribution, uniforms: Tensor | None) -> Tensors:
        """Compute actions as the environment takes them, and parameters of the distributions.

        Args:
            joint: Distribution of all heads for B actors.
            uniforms: [B, n_uniforms] numbers that determine the sampled actions; None if there are none.

        Returns:
            The outputs of this module but the policy state, name -> [B, ...].
        """
        result: Tensors = {}
        sampled: Tensors = {}
        first = 0
        for head, outputs in self.heads.items():
            part = joint.distributions[head]
            result[f"parameters/{head}"] = outputs.parameters(part)
            sampled[head] = part.deterministic_sample()
            if outputs.n_uniforms:
                assert uniforms is not None
                sampled[head] = outputs.sample(part, uniforms[:, first : first + outputs.n_uniforms])
            first += outputs.n_uniforms
        for prefix, action in (("action", joint.deterministic_sample()), ("sample", sampled)):
            action = within_bounds(action, self._space)
            for wrapper in self._action_wrappers:
                action = applied(wrapper, action)
            for head, space in self.actions.items():
                dtype, shape, _, _ = read_space(space)
                result[f"{prefix}/{head}"] = action[head].reshape(-1, *shape).to(torch_type(dtype))
        return result


def _is_tie(log_probs: Array, tolerance: float) -> bool:
    """True if the two best of some options are equally likely.

    Args:
        log_probs: [options] their log-probabilities.
        tolerance: Largest difference.
    """
    best = np.sort(log_probs)[-2:]
    return len(best) == 2 and bool(best[1] - best[0] <= tolerance)


def _is_at_limit(log_probs: Array, uniform: float, tolerance: float) -> bool:
    """True if a uniform number is so close to the limit between two possible options that it may mean either.

    Args:
        log_probs: [options] log-probabilities of the options of a choice.
        uniform: The number.
        tolerance: Largest error of a cumulative probability.
    """
    probability = np.exp(log_probs.astype(np.float64))
    probability = probability / probability.sum()
    highest = np.cumsum(probability)
    lowest = highest - probability
    is_near = (lowest - tolerance <= uniform) & (uniform <= highest + tolerance) & (probability > 0)
    return int(np.count_nonzero(is_near)) > 1


def _described(space: Any) -> dict[str, dict[str, Any]]:
    """Describe the entries of a Dict space; integers of discrete ones are int64 in bundles."""
    return {name: without_integer_types(space_to_dict(part)) for name, part in space.spaces.items()}
