"""Actions within the bounds of their spaces, on a device."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec


class ActionBounds:
    """Bounds of the actions of all sub-steps.

    Args:
        spec: Observation and action spaces of the agents.
        device: Device of the actions.
    """

    def __init__(self, spec: Spec, device: torch.device) -> None:
        self._bounds: dict[StepKey, dict[str, tuple[Tensor, Tensor]]] = {}  # of the heads that have any
        for key, step in spec.steps.items():
            self._bounds[key] = {}
            for head, part in step.action_space.spaces.items():
                if isinstance(part, spaces.Box) and (part.bounded_below.any() or part.bounded_above.any()):
                    low, high = (torch.from_numpy(limit).to(device) for limit in (part.low, part.high))
                    self._bounds[key][head] = low, high

    def played(self, key: StepKey, action: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the actions that are played for those that were sampled, head -> [..., *shape]."""
        bounds = self._bounds[key]
        return {head: values.clamp(*bounds[head]) if head in bounds else values for head, values in action.items()}
