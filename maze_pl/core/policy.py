"""The policy protocol, common to trained, random, heuristic and replaying policies."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spaces import allowed_entries

Array = np.ndarray[Any, np.dtype[Any]]
Masks = Mapping[StepKey, Mapping[str, str]]


@dataclass(slots=True)
class PolicyBatch:
    """Actors of one sub-step that act now, at most one per environment.

    Attributes:
        step_key: Key of the sub-step, which names the policy.
        observation: Name -> [B, ...].
        agent_id: [B] agent of the sub-step that each row belongs to.
        policy_state: Name -> [B, ...], policy state after each actor's last act, zero for actors that have
            not acted in their episode. None: zero for all.
        is_first: [B] whether this is the actor's first act in its episode.
        maze_state: [B] states of the simulations, in rollouts of a `MazeStatePolicy`.
        envs: [B] environments, in rollouts of an `EnvPolicy`, which may copy them but not change them.
        episode_index: [B] episode that each row belongs to, if whole episodes are played.
        n_acts: [B] acts of all actors in that episode before this one.
        noise_state: Exploration noise of the actors after their last acts, without entries if none has
            acted; zero for actors that have not acted in their episode. None if the caller does not keep it, so that a
            policy explores independently in each act.
        env_index: [B] environment of the vector that each row belongs to, if whole episodes are played.
    """

    step_key: StepKey
    observation: dict[str, Array]
    agent_id: Array
    policy_state: dict[str, Array] | None = None
    is_first: Array | None = None
    maze_state: list[Any] | None = None
    episode_index: Array | None = None
    n_acts: Array | None = None
    noise_state: dict[str, Array] | None = None
    envs: list[Any] | None = None
    env_index: Array | None = None


@dataclass(slots=True)
class PolicyStep:
    """Decision of a policy.

    Attributes:
        action: Head -> [B, ...], as sampled; unbounded distributions may exceed the bounds of
            boxes.
        log_prob: [B] log-probability of the whole action, if it was requested.
        policy_state: Name -> [B, ...], policy state after this act, for recurrent policies.
        noise_state: Name -> [B, ...], exploration noise after this act, for policies that keep it for
            several acts.
    """

    action: dict[str, Array]
    log_prob: Array | None = None
    policy_state: dict[str, Array] | None = None
    noise_state: dict[str, Array] | None = None


@runtime_checkable
class Policy(Protocol):
    """Anything that chooses actions."""

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose one action for each actor of the batch.

        Args:
            batch: The actors and their observations.
            deterministic: Take the most likely action instead of sampling.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            generator: Source of all randomness of this call.
        """
        ...


class MazeStatePolicy(Policy):
    """Base of policies that use `PolicyBatch.maze_state`, regardless of observation wrappers."""

    def states_of(self, batch: PolicyBatch) -> list[Any]:
        """Return the states of the simulations, [B].

        Raises:
            ValueError: The batch has none.
        """
        if batch.maze_state is None:
            name = type(self).__name__
            raise ValueError(f"{name} needs the states of the simulation, which this batch does not have")
        return batch.maze_state


class EnvPolicy(Policy):
    """Base of policies that use `PolicyBatch.envs`, such as those that try actions in copies of them."""


@contextlib.contextmanager
def evaluation_mode(policy: object) -> Iterator[None]:
    """Switch networks to evaluation mode (no dropout etc.), then restore the mode of every module.

    Args:
        policy: A module; other objects are left unchanged. A module with a part that overrides
            `train` is switched by its `eval` and `train` methods.
    """
    if not isinstance(policy, nn.Module):
        yield
        return
    modules: list[nn.Module] = [policy]
    for module in modules:  # grows during the loop; `Module.modules` and `Module.train` take ten times as long
        modules += [child for child in module._modules.values() if child is not None]
    unusual = torch.jit.ScriptModule  # its mode is not a Python attribute
    plain = all(type(m).train is nn.Module.train and not isinstance(m, unusual) for m in modules)
    before = [(module, module.training) for module in modules if module.training or not plain]
    if plain:
        for module, _ in before:
            object.__setattr__(module, "training", False)
    else:
        policy.eval()
    try:
        yield
    finally:
        if not plain:
            policy.train(before[0][1])
        set_mode = object.__setattr__ if plain else setattr  # `object.__setattr__` is faster
        for module, mode in before:  # overrides the mode that `train` has given to its parts
            set_mode(module, "training", mode)


class RandomPolicy:
    """Samples every action uniformly from its space, or its unmasked entries if it has a mask.

    Unbounded boxes are sampled from a standard normal distribution, half-bounded ones from an exponential
    distribution that starts at the bound, as in Gymnasium.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: For each sub-step, action head -> name of its mask, an observation whose entries are
            1 where the head is allowed, and 0 elsewhere.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Masks | None = None) -> None:
        self.action_spaces_dict = copy.deepcopy(dict(action_spaces_dict))  # spaces hold random generators
        self.masks = {key: dict(step_masks) for key, step_masks in (masks or {}).items()}

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Sample uniformly; `deterministic` and `temperature` have no effect."""
        masks = self.masks.get(batch.step_key, {})
        n = len(batch.agent_id)
        action = {}
        for head, space in self.action_spaces_dict[batch.step_key].spaces.items():
            allowed = None
            if head in masks:
                mask = batch.observation[masks[head]]
                shape = (n, spaces.flatdim(space))
                allowed = allowed_entries(mask, shape, masks[head], head)
            action[head] = _sample(space, n, allowed, generator)
        return PolicyStep(action)


def _sample(space: spaces.Space[Any], n: int, mask: Array | None, generator: torch.Generator | None) -> Array:
    """[n, *space.shape] uniform samples."""
    if isinstance(space, spaces.Box):
        space.seed(int(torch.randint(2**31, (), generator=generator)))
        return np.stack([space.sample() for _ in range(n)])
    score = torch.rand((n, spaces.flatdim(space)), generator=generator).numpy()
    if mask is not None:
        score[~mask] = -1.0
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + score.argmax(-1))
    shape = n, *(space.shape or ())
    if isinstance(space, spaces.MultiDiscrete):
        parts = np.split(score, np.cumsum(space.nvec)[:-1], axis=-1)
        return np.stack([part.argmax(-1) for part in parts], axis=-1).reshape(shape)
    return (score > 0.5).astype(np.int8).reshape(shape)
