"""Layout of the logits and masks of all action heads in one tensor, from which RLlib makes distributions."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.agents import TorchPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper

Actions = Tensor | dict[str, Tensor]
"""Values [...] of the only head, or head -> values."""


@dataclass(frozen=True)
class ActionLayout:
    """Logits of all heads, followed by the masks of the masked ones.

    Attributes:
        mapper: Distributions of the sub-step.
        logit_sizes: Head -> number of logits.
        mask_sizes: Head -> number of entries of its mask.
    """

    mapper: DistributionMapper
    logit_sizes: dict[str, int]
    mask_sizes: dict[str, int]

    @classmethod
    def of(cls, policy: TorchPolicy, step_key: StepKey) -> "ActionLayout":
        """Return the layout of a sub-step."""
        parts = policy.parts_of(step_key)
        logit_sizes = {head: shape[0] for head, shape in parts.mapper.logits_shapes.items()}
        return cls(parts.mapper, logit_sizes, {mask.head: mask.n_entries for mask in parts.masks})

    @property
    def size(self) -> int:
        """Number of all entries."""
        return sum(self.logit_sizes.values()) + sum(self.mask_sizes.values())

    def pack(self, logits: Mapping[str, Tensor], observation: Mapping[str, Tensor]) -> Tensor:
        """Concatenate logits and masks.

        Args:
            logits: Head -> [..., L].
            observation: Name -> [..., *shape], with the masks.

        Returns:
            [..., `size`]
        """
        parts = [logits[head] for head in self.logit_sizes]
        for head in self.mask_sizes:
            parts.append(observation[self.mapper.masks[head]].to(parts[0]))
        return torch.cat(parts, -1)

    def distribution(self, packed: Tensor) -> DictProbabilityDistribution:
        """Make the joint distribution of what `pack` has returned."""
        sizes = [*self.logit_sizes.values(), *self.mask_sizes.values()]
        pieces = iter(torch.split(packed, sizes, -1))
        logits = {head: next(pieces) for head in self.logit_sizes}
        masks = {head: next(pieces) for head in self.mask_sizes}
        return self.mapper.logits_dict_to_distribution(logits, 1.0, masks)

    @property
    def is_single(self) -> bool:
        """True if there is only one head, whose values are the actions."""
        return len(self.logit_sizes) == 1

    def to_rllib(self, action: Mapping[str, Tensor]) -> Actions:
        """Return actions in the form of `rllib_action_space`."""
        return next(iter(action.values())) if self.is_single else dict(action)

    def from_rllib(self, action: Actions | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return head -> values [...] of actions in the form of `rllib_action_space`.

        Values have the type that distributions expect: RLlib may change that of integers.
        """
        values = {next(iter(self.logit_sizes)): action} if isinstance(action, Tensor) else dict(action)
        typed = {}
        for head, value in values.items():
            _, space = self.mapper.heads[head]
            typed[head] = value if isinstance(space, spaces.Box) else value.long()
        return typed
