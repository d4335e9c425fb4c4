"""The policy protocol: what trained, random, heuristic and replaying policies have in common."""

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

Array = np.ndarray[Any, np.dtype[Any]]
Masks = Mapping[StepKey, Mapping[str, str]]


@dataclass(slots=True)
class PolicyBatch:
    """Actors of one sub-step that act now, one of each environment.

    Attributes:
        step_key: The sub-step, which names the policy.
        observation: Name -> [B, ...].
        agent_id: [B] which agent of the sub-step each row belongs to.
        state: Name -> [B, ...], the state that the policy returned after these actors' last acts, zero for those that
            have not acted in their episode. None: zero for all.
        is_first: [B] whether this is the actor's first act in its episode.
        maze_state: [B] the simulations' own states, in rollouts of a `MazeStatePolicy`.
        episode_index: [B] which episode each row belongs to, where whole episodes are played.
        n_acts: [B] acts in that episode before this one, of all actors.
    """

    step_key: StepKey
    observation: dict[str, Array]
    agent_id: Array
    state: dict[str, Array] | None = None
    is_first: Array | None = None
    maze_state: list[Any] | None = None
    episode_index: Array | None = None
    n_acts: Array | None = None


@dataclass(slots=True)
class PolicyStep:
    """What a policy decided.

    Attributes:
        action: Head -> [B, ...], as sampled; boxes may be exceeded by unbounded distributions.
        log_prob: [B] log-probability of the whole action, where the policy was asked for it.
        state: Name -> [B, ...], the policy's state after this act, for policies that remember.
    """

    action: dict[str, Array]
    log_prob: Array | None = None
    state: dict[str, Array] | None = None


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
            batch: The actors and what they see.
            deterministic: Take the most likely action instead of sampling.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            generator: Source of all randomness of this call.
        """
        ...


class MazeStatePolicy(Policy):
    """What a policy derives from that decides by `PolicyBatch.maze_state`, whatever wrappers make of observations."""


@contextlib.contextmanager
def evaluation_mode(policy: object) -> Iterator[None]:
    """Have networks act without dropout and the like; afterwards every module is in the mode that it was in before.

    Args:
        policy: A module, or anything else, which is left alone. A module with a part that overrides `train` is switched
            by its own `eval` and `train`.
    """
    if not isinstance(policy, nn.Module):
        yield
        return
    modules: list[nn.Module] = [policy]
    for module in modules:  # grows while it is walked; `Module.modules` and `Module.train` cost ten times as much
        modules += [child for child in module._modules.values() if child is not None]
    unusual = torch.jit.ScriptModule  # the mode of which is not an attribute of Python
    plain = all(type(m).train is nn.Module.train and not isinstance(m, unusual) for m in modules)
    before = [(module, module.training) for module in modules if module.training or not plain]
    if not plain:
        policy.eval()
    for module, _ in before if plain else ():
        object.__setattr__(module, "training", False)
    try:
        yield
    finally:
        if not plain:
            policy.train(before[0][1])
        set_mode = object.__setattr__ if plain else setattr  # the first one is faster
        for module, mode in before:  # whatever mode its own `train` has given to its parts
            set_mode(module, "training", mode)


class RandomPolicy:
    """Samples every action uniformly from its space, among the unmasked ones where a mask is declared.

    Unbounded boxes are sampled from a standard normal distribution, half-bounded ones from an exponential
    distribution that starts at the bound, as gymnasium does.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: For each sub-step, action head -> observation whose nonzero entries are allowed.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Masks | None = None) -> None:
        self.action_spaces_dict = copy.deepcopy(dict(action_spaces_dict))  # which have generators of their own
        self.masks = {key: dict(step_masks) for key, step_masks in (masks or {}).items()}

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Sample uniformly; `deterministic` and `temperature` have no meaning here and change nothing."""
        masks, action = self.masks.get(batch.step_key, {}), {}
        for head, space in self.action_spaces_dict[batch.step_key].spaces.items():
            mask = np.asarray(batch.observation[masks[head]]) if head in masks else None
            action[head] = _sample(space, len(batch.agent_id), mask, generator)
        return PolicyStep(action)


def _sample(space: spaces.Space[Any], n: int, mask: Array | None, generator: torch.Generator | None) -> Array:
    """[n, *space.shape] uniform samples."""
    if isinstance(space, spaces.Box):
        space.seed(int(torch.randint(2**31, (), generator=generator)))
        return np.stack([space.sample() for _ in range(n)])
    score = torch.rand((n, spaces.flatdim(space)), generator=generator).numpy()
    if mask is not None:
        score[mask == 0] = -1.0
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + score.argmax(-1))
    shape = n, *(space.shape or ())
    if isinstance(space, spaces.MultiDiscrete):
        parts = np.split(score, np.cumsum(space.nvec)[:-1], axis=-1)
        return np.stack([part.argmax(-1) for part in parts], axis=-1).reshape(shape)
    return (score > 0.5).astype(np.int8).reshape(shape)
