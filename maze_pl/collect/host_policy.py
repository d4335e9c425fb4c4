"""Policies that choose actions in arrays, such as the random policy, for environments in tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, PolicyBatch


class HostPolicy:
    """Has the distributions that a `TensorCollector` samples from, and asks another policy for the actions.

    Each act copies observations to the host and waits for the device, so that acts are not
    recorded as a graph.

    Args:
        policy: Chooses the actions.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def distribution(
        self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None
    ) -> HostActions:
        """Return the actions of one sub-step, to be sampled.

        Args:
            step_key: The sub-step.
            observation: Name -> [N, ...] tensors on a device.
            agent_id: [N] agents; 0 if None.
        """
        device = next(iter(observation.values())).device
        arrays = {name: tensor.cpu().numpy() for name, tensor in observation.items()}
        n = len(next(iter(arrays.values())))
        agents = torch.zeros(n, dtype=torch.int64) if agent_id is None else agent_id.cpu()
        return HostActions(self._policy, PolicyBatch(step_key, arrays, agents.numpy()), device)


class HostActions:
    """Actions of one sub-step, chosen when they are sampled.

    Args:
        policy: Chooses the actions.
        batch: Observations.
        device: Device of the actions.
    """

    def __init__(self, policy: Policy, batch: PolicyBatch, device: torch.device) -> None:
        self._policy = policy
        self._batch = batch
        self._device = device

    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Choose actions.

        Args:
            generator: Generator of any device; the policy draws from one of the host, which is
                seeded by it.

        Returns:
            Head -> [N, ...].
        """
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        step: Any = self._policy.act(self._batch, generator=torch.Generator().manual_seed(seed))
        return {head: torch.as_tensor(action).to(self._device) for head, action in step.action.items()}
