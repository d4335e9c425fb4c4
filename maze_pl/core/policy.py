"""The policy protocol: what trained, random, heuristic and replaying policies have in common."""

import contextlib
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
    usual = nn.Module.__setattr__, nn.RNNBase.__setattr__
    plain = all(type(m).train is nn.Module.train and type(m).__setattr__ in usual for m in modules)
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
        for module, mode in before:  # whatever mode its own `train` has given to its parts
            object.__setattr__(module, "training", mode)


class RandomPolicy:
    """Samples every action uniformly from its space, among the unmasked ones where a mask is declared.

    Unbounded boxes are sampled from a standard normal distribution, half-bounded ones from an exponential
    distribution that starts at the bound, as gymnasium does.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: For each sub-step, action head -> observation whose nonzero entries are allowed.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Masks | None = None) -> None:
        self.action_spaces_dict = dict(action_spaces_dict)
        self.masks = {key: dict(step_masks) for key, step_masks in (masks or {}).items()}

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Sample uniformly; `deterministic` and `temperature` have no meaning here and change nothing."""
        masks, action = self.masks.get(batch.step_key, {}), {}
        for head, space in self.action_spaces_dict[batch.step_key].spaces.items():
            mask = torch.from_numpy(np.asarray(batch.observation[masks[head]])) if head in masks else None
            action[head] = _sample(space, len(batch.agent_id), mask, generator).numpy()
        return PolicyStep(action)


def _sample(space: spaces.Space[Any], n: int, mask: torch.Tensor | None, generator: Any) -> torch.Tensor:
    """[n, *space.shape] uniform samples."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + _choose(n, int(space.n), mask, generator)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = [int(size) for size in space.nvec.flatten()]
        parts = torch.split(mask, sizes, dim=-1) if mask is not None else [None] * len(sizes)
        columns = [_choose(n, size, part, generator) for size, part in zip(sizes, parts, strict=True)]
        return torch.stack(columns, dim=-1).reshape(n, *space.shape)
    if isinstance(space, spaces.MultiBinary):
        bits = torch.rand((n, *space.shape), generator=generator) < 0.5
        if mask is not None:
            bits &= mask.reshape(bits.shape).bool()
        return bits.to(torch.int8)
    if isinstance(space, spaces.Box):
        return _sample_box(space, n, generator)
    raise TypeError(f"cannot sample from a space of type {type(space).__name__}")


def _choose(n: int, size: int, mask: torch.Tensor | None, generator: torch.Generator | None) -> torch.Tensor:
    if mask is None:
        return torch.randint(size, (n,), generator=generator)
    score = torch.rand((n, size), generator=generator).masked_fill(mask == 0, -1.0)
    return score.argmax(-1)


def _sample_box(space: spaces.Box, n: int, generator: torch.Generator | None) -> torch.Tensor:
    uniform = torch.rand((n, *space.shape), generator=generator, dtype=torch.float64).numpy()
    normal = torch.randn((n, *space.shape), generator=generator, dtype=torch.float64).numpy()
    below, above = space.bounded_below, space.bounded_above
    low = np.where(below, space.low, 0.0).astype(np.float64)
    high = np.where(above, space.high, 0.0).astype(np.float64)
    if space.dtype is not None and np.issubdtype(space.dtype, np.integer):
        return torch.from_numpy(np.floor(low + uniform * (high + 1 - low)).astype(space.dtype))
    exponential = -np.log1p(-uniform)
    half_bounded = np.where(below, low + exponential, np.where(above, high - exponential, normal))
    sample = np.where(below & above, low + uniform * (high - low), half_bounded)
    return torch.from_numpy(np.clip(sample.astype(space.dtype), space.low, space.high))
