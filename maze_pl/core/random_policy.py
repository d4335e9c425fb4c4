"""The random policy, which environments and replay use until another policy acts."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array, PolicyBatch, PolicyStep
from maze_pl.core.spaces import allowed_entries

Masks = Mapping[StepKey, Mapping[str, str]]
_MOST_BOXES = 64


class RandomPolicy:
    """Samples every action uniformly from its space, or its unmasked entries if it has a mask.

    A choice of which a mask allows nothing is made among all entries, as by networks.
    Unbounded boxes are sampled from a standard normal distribution, half-bounded ones from an
    exponential distribution that starts at the bound, as in Gymnasium.

    Args:
        action_spaces_dict: Action space of each sub-step.
        masks: For each sub-step, action head -> name of its mask, an observation whose entries are
            1 where the head is allowed, and 0 elsewhere.
    """

    def __init__(self, action_spaces_dict: Mapping[StepKey, spaces.Dict], masks: Masks | None = None) -> None:
        self.action_spaces_dict = copy.deepcopy(dict(action_spaces_dict))  # spaces hold random generators
        self.masks = {key: dict(step_masks) for key, step_masks in (masks or {}).items()}
        self._boxes: dict[tuple[StepKey, str, int], Any] = {}  # spaces of n actions, for a few n

    def add_masks(self, masks: Masks) -> None:
        """Take the masks of heads that have none yet."""
        for key, step_masks in masks.items():
            self.masks[key] = {**step_masks, **self.masks.get(key, {})}

    def act(self, batch: PolicyBatch, *, generator: torch.Generator | None = None, **_: Any) -> PolicyStep:
        """Sample uniformly; `deterministic` and `temperature` have no effect."""
        masks = self.masks.get(batch.step_key, {})
        n = len(batch.agent_id)
        action = {}
        for head, space in self.action_spaces_dict[batch.step_key].spaces.items():
            if isinstance(space, spaces.Box):
                action[head] = self._sample_box(batch.step_key, head, n, generator)
                continue
            allowed = None
            if head in masks:
                mask = batch.observation[masks[head]]
                shape = (n, spaces.flatdim(space))
                allowed = allowed_entries(mask, shape, masks[head], head)
            action[head] = _sample(space, n, allowed, generator)
        return PolicyStep(action)

    def _sample_box(self, step_key: StepKey, head: str, n: int, generator: torch.Generator | None) -> Array:
        """[n, *space.shape] samples of a head, all by one call of Gymnasium."""
        box = self._boxes.get((step_key, head, n))
        if box is None:
            if len(self._boxes) == _MOST_BOXES:
                self._boxes.clear()
            box = batch_space(self.action_spaces_dict[step_key][head], n)
            self._boxes[step_key, head, n] = box
        box.seed(int(torch.randint(2**31, (), generator=generator)))
        return np.asarray(box.sample())


def _sample(space: spaces.Space[Any], n: int, mask: Array | None, generator: torch.Generator | None) -> Array:
    """[n, *space.shape] uniform samples of a space of whole numbers."""
    score = torch.rand((n, spaces.flatdim(space)), generator=generator).numpy()
    if mask is not None:
        score[~mask] -= 1.0  # below all allowed ones
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start + score.argmax(-1))
    shape = n, *(space.shape or ())
    if isinstance(space, spaces.MultiDiscrete):
        parts = np.split(score, np.cumsum(space.nvec)[:-1], axis=-1)
        choices = np.stack([part.argmax(-1) for part in parts], axis=-1)
        return np.asarray(space.start + choices.reshape(shape))
    return (score > 0.5).astype(np.int8).reshape(shape)
