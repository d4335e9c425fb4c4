"""Steps of a policy from a batch of observations to actions: inputs of networks, their outputs, and samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from maze_pl.agents.changed_inputs import refuse_changes
from maze_pl.agents.gaussian_exploration import NoiseState, noisy
from maze_pl.agents.network_io import LATENT
from maze_pl.agents.numpy_sampling import Sampling
from maze_pl.agents.policy_step_parts import PolicyStepParts
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import PolicyBatch
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution

Tensors = Mapping[str, Tensor]
Outputs = TypeVar("Outputs", bound=Mapping[str, Any] | None)


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """The policy's outputs for one sub-step.

    Attributes:
        step_key: The sub-step.
        action_logits: Head -> [..., L] outputs of the network, before temperature and masks.
        distribution: Joint distribution of all heads, with temperature and masks.
        auxiliary: Name -> [..., *shape], the auxiliary outputs that the network declares.
    """

    step_key: StepKey
    action_logits: dict[str, Tensor]
    distribution: DictProbabilityDistribution
    auxiliary: dict[str, Tensor] = field(default_factory=dict)

    @property
    def entropy(self) -> Tensor:
        """[...] entropy of the joint distribution in nats."""
        return self.distribution.entropy()


def complete_outputs(step: PolicyStepParts, outputs: dict[str, Tensor], agent_id: Tensor | None) -> dict[str, Tensor]:
    """Complete the networks' outputs by the parameters of explorations; features are left out."""
    if not step.explorations:
        return outputs
    completed = dict(outputs)
    features = completed.pop(LATENT) if step.has_gsde else None
    for head, exploration in step.explorations.items():
        completed[head] = exploration(outputs[head], features, agent_id)
    return completed


def checked_outputs(
    step: PolicyStepParts, step_key: StepKey, outputs: Outputs, observation: Mapping[str, Any]
) -> Outputs:
    """Return the outputs of networks that act, after a look for NaN in the logits.

    NaN of observations that are not finite is left to those who know the environment they are of.

    Args:
        step: Parts of the sub-step.
        step_key: The sub-step.
        outputs: Name -> [B, ...] arrays or tensors; None if torch is to compute them.
        observation: Name -> [B, ...] arrays, or new tensors, which must not have been changed in place.

    Raises:
        ValueError: A number is NaN, or an observation has changed.
    """
    for values in observation.values():
        if isinstance(values, Tensor) and not values.is_inference() and values._version:
            refuse_changes(observation, [0] * len(observation), _name_of(step), step_key)
    if outputs is None:
        return outputs
    for head in step.mapper.heads:
        if head in outputs and _has_nan(outputs[head]) and all(map(_is_finite, observation.values())):
            raise ValueError(_not_a_number(step, step_key, head))
    return outputs


def _is_finite(values: Any) -> bool:
    """True if an array or a tensor has neither NaN nor infinite numbers."""
    is_finite = values.isfinite() if isinstance(values, Tensor) else np.isfinite(values)
    return bool(is_finite.all())


def _has_nan(output: Any) -> bool:
    """True if an array or a tensor has a NaN, for which the largest number is one."""
    if isinstance(output, Tensor):
        return bool(output.numel()) and isnan(output.max())
    return bool(output.size) and isnan(output.item(output.argmax()))


def _not_a_number(step: PolicyStepParts, step_key: StepKey, head: str) -> str:
    """Describe outputs that are NaN, and what they may come from."""
    fault = f"{_name_of(step)} returned NaN for action head {head!r} of sub-step {step_key!r}"
    for network in step.networks:
        for name, parameter in network.named_parameters():
            if not bool(parameter.isfinite().all()):
                remedy = "if they became so in training, lower lr, and limit the gradient with max_grad_norm"
                return f"{fault}: its weights {name!r} are NaN or infinite; {remedy}"
    causes = "a division by 0, a logarithm or root of a negative number, or an infinite observation"
    return f"{fault}, though its weights are finite: look for {causes}"


def _name_of(step: PolicyStepParts) -> str:
    return f"the policy's network, {type(step.networks[0]).__name__},"


def sample_with_noise(
    step: PolicyStepParts,
    distribution: DictProbabilityDistribution,
    features: Tensor,
    agent_id: Tensor | None,
    state: NoiseState,
    sampling: Sampling,
) -> dict[str, Tensor]:
    """Sample an action for each actor, with the noise of gsde for the heads that have it."""
    sampled: dict[str, Tensor] = {}
    for head, part in distribution.distributions.items():
        exploration = step.explorations.get(head)
        if exploration is None or not exploration.is_gsde:
            sampled[head] = part.sample(sampling.generator)
            continue
        xi = state.next(head, exploration, sampling.generator)
        noise = exploration.noise(features, xi, agent_id)
        shifted = type(part)(noisy(part.logits, noise, sampling.temperature), part.action_space, sampling.temperature)
        sampled[head] = shifted.deterministic_sample()
    return sampled


def network_of_each(batch: PolicyBatch, n_networks: int) -> Tensor | None:
    """[B] number of the network of each actor's agent; None if there is only one.

    Raises:
        ValueError: An agent has no network.
    """
    if n_networks == 1:
        return None
    agent_id = torch.from_numpy(np.asarray(batch.agent_id))
    if not bool(((agent_id >= 0) & (agent_id < n_networks)).all()):
        ids = f"agent ids {agent_id.tolist()} of sub-step {batch.step_key!r}"
        raise ValueError(f"{ids}: it has {n_networks} agents")
    return agent_id


def separate_outputs(networks: Sequence[nn.Module], observation: Tensors, agent_id: Tensor) -> dict[str, Tensor]:
    """Pass each agent's rows through its network.

    All networks run, even on no rows, so that they stay in the graph.
    """
    logits: dict[str, Tensor] = {}
    for agent, network in enumerate(networks):
        rows = (agent_id == agent).nonzero(as_tuple=True)
        inputs = {name: tensor[rows] for name, tensor in observation.items()}
        for head, value in network(inputs).items():
            if head not in logits:
                logits[head] = value.new_zeros((*agent_id.shape, *value.shape[1:]))
            logits[head] = logits[head].index_put(rows, value)
    return logits


def sample(
    distribution: DictProbabilityDistribution,
    deterministic: bool,
    generator: torch.Generator | None,
) -> dict[str, Tensor]:
    """Sample an action for each actor, or take the most likely one."""
    if deterministic:
        return distribution.deterministic_sample()
    return distribution.sample(generator)


def network_inputs(batch: PolicyBatch) -> dict[str, Tensor]:
    """Observations and policy state of a batch as tensors, name -> [B, ...]."""
    tensors = {name: _tensor(array) for name, array in batch.observation.items()}
    if batch.policy_state is not None:
        tensors |= {name: _tensor(array) for name, array in batch.policy_state.items()}
    return tensors


def _tensor(array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    """A view of the array, not to be written to; a copy where torch does not allow a view."""
    try:
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except ValueError:  # of its strides or byte order
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
