"""Policies that choose actions in arrays, such as the random policy, for environments in tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec


class HasDistributions(Protocol):
    """A policy that computes distributions of actions from tensors, such as `TorchPolicy`."""

    def distribution(self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None) -> Any:
        """Compute the joint distribution of the actions of one sub-step."""
        ...


def why_on_host(policy: Any) -> str | None:
    """Return why a policy must choose actions by `act` on the host; None if its distributions suffice."""
    name = type(policy).__name__
    acts_on_device = getattr(policy, "acts_on_device", None)
    if acts_on_device is None:
        return f"{name} chooses its actions there, as it has no attribute acts_on_device"
    if not acts_on_device:
        told = "recurrent policies and those with generalised state-dependent exploration (gSDE)"
        return f"{name} chooses its actions there, like {told}, as its acts_on_device is false"
    kinds = type(policy).__mro__
    overriding = next((place for place, kind in enumerate(kinds) if "act" in vars(kind)), len(kinds))
    declaring = [kind for kind in kinds if vars(kind).keys() & {"acts_on_device", "distribution"}]
    if declaring and overriding < kinds.index(declaring[0]):
        return f"{name} overrides act, which distributions on a device would bypass"
    return None


class HostPolicy:
    """Has the distributions that a `TensorCollector` samples from, and asks another policy for the actions.

    Each act copies observations to the host and waits for the device, so that acts are not
    recorded as a graph. The policy gets what it gets from array environments: observations in the
    types of their spaces, and the policy and noise states of its actors.

    Args:
        policy: Chooses the actions.
        spec: Observation and action spaces of the agents, one in each sub-step.
        slots: Keeps the policy and noise states of N environments.
        begins: [N] bool, on a device: whether the next act of each sub-step is the first one of
            its episode.
    """

    def __init__(self, policy: Policy, spec: Spec, slots: ActorSlots, begins: Tensor) -> None:
        self._policy = policy
        self._spec = spec
        self._slots = slots
        self._begins = begins

    def with_random_actions(self) -> HostPolicy:
        """Return a policy for the same environments that chooses random actions."""
        actions = {key: step.action_space for key, step in self._spec.steps.items()}
        masks = {key: step.masks for key, step in self._spec.steps.items()}
        return HostPolicy(RandomPolicy(actions, masks), self._spec, self._slots, self._begins)

    def distribution(
        self, step_key: StepKey, observation: Mapping[str, Tensor], agent_id: Tensor | None = None
    ) -> HostActions:
        """Return the actions of one sub-step, to be sampled.

        Args:
            step_key: The sub-step.
            observation: Name -> [N, ...] tensors on a device.
            agent_id: [N] agents; 0 if None.
        """
        arrays = {}
        for name, space in self._spec.steps[step_key].observation_space.spaces.items():
            arrays[name] = observation[name].cpu().numpy().astype(np.dtype(space.dtype))  # a copy
        is_first = self._begins.cpu().numpy().copy()
        agents = np.zeros(len(is_first), np.int64) if agent_id is None else agent_id.cpu().numpy()
        batch = PolicyBatch(step_key, arrays, agents, is_first=is_first)
        return HostActions(self._policy, batch, self._slots, self._spec, self._begins.device)


class HostActions:
    """Actions of one sub-step, chosen when they are sampled.

    Args:
        policy: Chooses the actions.
        batch: Observations.
        slots: As for `HostPolicy`.
        spec: As for `HostPolicy`.
        device: Device of the actions.
    """

    def __init__(self, policy: Policy, batch: PolicyBatch, slots: ActorSlots, spec: Spec, device: torch.device) -> None:
        self._policy = policy
        self._batch = batch
        self._slots = slots
        self._key = spec.step_keys.index(batch.step_key)
        self._device = device

    def sample(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Choose actions, and keep the policy states after them.

        Args:
            generator: Generator of any device; the policy draws from one of the host, which is
                seeded by it.

        Returns:
            Head -> [N, ...].
        """
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        envs = np.arange(len(self._batch.agent_id))
        slots = np.zeros_like(envs)
        assert self._batch.is_first is not None
        actors = self._slots.offsets[self._key] + slots
        self._slots.acted_in_episode[envs, actors] = ~self._batch.is_first
        on_host = torch.Generator().manual_seed(seed)
        step = self._slots.act(self._policy, self._batch, self._key, envs, slots, generator=on_host)
        return {head: torch.as_tensor(action).to(self._device) for head, action in step.action.items()}
