"""Evaluation of many acts without gradients, in parts whose observations fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey

if TYPE_CHECKING:
    from maze_pl.agents.torch_policy import TorchPolicy

Tensors = Mapping[str, Tensor]

MOST_ELEMENTS = 2**23
"""Maximum number of observation elements evaluated at once without gradients: 32 MiB as float32."""


def n_parts(observation: Tensors) -> int:
    """Return the number of parts that acts are evaluated in, for observations [n, ...]."""
    return max(1, -(-sum(tensor.numel() for tensor in observation.values()) // MOST_ELEMENTS))


def in_parts(evaluate: Callable[..., Tensor], observation: Tensors, agent_id: Tensor, *others: Tensors) -> Tensor:
    """Evaluate acts, in parts if they are large, as networks turn images into floats.

    Args:
        evaluate: Function of observations, agent ids and further tensors of some acts; returns [n].
        observation: Name -> [n, ...].
        agent_id: [n].
        others: Further tensors by name, [n, ...].

    Returns:
        [n] outputs.
    """
    if not len(agent_id):
        return torch.zeros(0, device=agent_id.device)
    outputs: list[Tensor] = []
    size = -(-len(agent_id) // n_parts(observation))
    for start in range(0, len(agent_id), size):
        part = slice(start, start + size)
        trees: list[Any] = [_sliced(tree, part) for tree in others]
        outputs.append(evaluate(_sliced(observation, part), agent_id[part], *trees))
    return torch.cat(outputs) if outputs[1:] else outputs[0]


def log_prob_in_parts(
    policy: TorchPolicy, step_key: StepKey, observation: Tensors, agent_id: Tensor, action: Tensors
) -> Tensor:
    """Return the log-probabilities [n] of acts of a sub-step; arguments as for `in_parts`."""

    def evaluate(observation: Tensors, agent_id: Tensor, action: Tensors) -> Tensor:
        return policy.distribution(step_key, observation, agent_id).log_prob(action)

    return in_parts(evaluate, observation, agent_id, action)


def _sliced(tree: Tensors, part: slice) -> dict[str, Tensor]:
    return {name: tensor[part] for name, tensor in tree.items()}
