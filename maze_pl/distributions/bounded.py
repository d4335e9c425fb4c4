"""What distributions over bounded boxes share: where an action lies between the borders, exactly also next to them.

Near a border the distance to it decides about the density, and a number close to 1 cannot tell how close. Actions are
therefore made from, and read as, two fractions of the width: from the low and from the high border.
"""

import functools
import math
from abc import ABC
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution


class BoundedProbabilityDistribution(ProbabilityDistribution, ABC):
    """Independent components between `low` and `high` of a Box: logits [..., 2n], two numbers for each of the n.

    Actions are [..., *shape], n = prod(shape), and never outside of the box. On its border, which only rounding
    reaches, they have the density half a rounding step inside.

    Raises:
        ValueError: A mask was given.
        TypeError: The space is not a Box with finite bounds.
    """

    def _prepare(self) -> None:
        low, high = self.action_space.low, self.action_space.high  # type: ignore[attr-defined]
        bounds = low.tobytes() + high.tobytes(), low.dtype.str, low.shape
        # [*shape, 2] the borders, from each the distance to the other, and what fraction of it a border counts as
        self._border, self._width, self._step = _borders(*bounds, self.logits.dtype, self.logits.device)

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """(2 * number of components,)."""
        if isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
            single = torch.finfo(torch.float32)
            width = np.subtract(action_space.high, action_space.low, dtype=np.float64)
            step = single.eps * np.maximum(np.abs(action_space.low), np.abs(action_space.high))
            if ((width > 2 * step) & (width < single.max)).all():
                return (2 * math.prod(action_space.shape),)
        raise TypeError(
            f"{cls.__name__} needs a Box of floats with finite bounds, low < high in each component, got "
            f"{action_space}; for one without bounds there is DiagonalGaussianProbabilityDistribution"
        )

    def _action(self, fraction: Tensor) -> Tensor:
        """[..., *shape] actions at these fractions [..., *shape, 2] of the width from low and high."""
        seen_from = self._border + fraction * self._width
        return torch.where(fraction[..., 0] < fraction[..., 1], seen_from[..., 0], seen_from[..., 1])

    def _log_fraction(self, action: Tensor) -> Tensor:
        """[..., *shape, 2] logarithms of the fractions that `action` [..., *shape] is away from low and from high."""
        fraction = (action.to(self._border.dtype).unsqueeze(-1) - self._border) / self._width
        return torch.where(fraction > 0, fraction, self._step).log()

    def _total(self, terms: Tensor) -> Tensor:
        """[...] sums of `terms` [..., *shape] over the components."""
        n_leading = terms.dim() - self._border.dim() + 1
        return terms.reshape((*terms.shape[:n_leading], -1)).sum(dim=-1).to(self.logits.dtype)


@functools.lru_cache(maxsize=64)
def _borders(
    bounds: bytes, stored: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Borders of a box (the last numbers of this type inside), distances between them, and half rounding steps.

    At 0 numbers are closer to each other than those that were rounded at the size of the box: a step is at least that.
    """
    kind: Any = np.float64 if dtype == torch.float64 else np.float32
    exact = np.moveaxis(np.frombuffer(bounds, stored).reshape(2, *shape), 0, -1)
    border, inward = exact.astype(kind), np.array([np.inf, -np.inf], kind)
    border = np.where((exact - border) * np.sign(inward) > 0, np.nextafter(border, inward), border)
    width = border[..., ::-1] - border
    step = np.maximum((np.nextafter(border, inward) - border) / width, np.finfo(kind).eps / 4) / 2
    with torch.inference_mode(False):  # kept, and used where gradients are computed too
        return [torch.from_numpy(array.astype(kind)).to(device) for array in (border, width, step)]
