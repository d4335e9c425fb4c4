"""What every distribution over an action head offers, and the random numbers that all of them draw from.

Distributions are short-lived: one is made for each forward pass. They hold tensors only, make no `torch.distributions`
objects and validate shapes, not values, because they sit in the innermost loop.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor

_SpaceType = TypeVar("_SpaceType", bound=spaces.Space[Any])


class ProbabilityDistribution(ABC):
    """A batch of distributions over the actions of one head, given by the outputs of a network.

    A subclass becomes available for a head by its class path in `distribution_mapper_config`.

    Args:
        logits: [..., L] network outputs, L as `required_logits_shape` says; any number of leading dimensions. Half
            precision is computed in float32.
        action_space: The space of the head.
        temperature: Above 1 flattens the distribution, below 1 sharpens it: p becomes proportional to p ** (1 / T).
        mask: [..., L] nonzero where an entry is allowed, None to allow all.

    Raises:
        ValueError: Shapes do not fit, the temperature is not positive, or the distribution cannot be masked.
        TypeError: It does not fit the space.
    """

    supports_mask: ClassVar[bool] = False

    def __init__(
        self, logits: Tensor, action_space: spaces.Space[Any], temperature: float = 1.0, mask: Tensor | None = None
    ) -> None:
        shape, given = tuple(self.required_logits_shape(action_space)), tuple(logits.shape)
        if given[len(given) - len(shape) :] != shape:
            sizes = ", ".join(map(str, shape))
            raise ValueError(f"{type(self).__name__} needs logits of shape [..., {sizes}] for its space, got {given}")
        if not temperature > 0:
            raise ValueError(f"temperature={temperature} must be positive; use deterministic actions for the limit 0")
        if mask is not None:
            if not self.supports_mask:
                raise ValueError(f"{type(self).__name__} cannot be masked; only discrete and binary heads can")
            if mask.shape[-1:] != logits.shape[-1:]:
                raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit logits of {given}")
        self.logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        self.action_space, self.temperature, self.mask = action_space, temperature, mask
        self._shape = tuple(action_space.shape or ())
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027  # most need nothing
        """Compute from these attributes what all methods use; called at the end of the constructor."""

    @classmethod
    @abstractmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        """Shape of the logits for one action, without batch dimensions.

        Raises:
            TypeError: This distribution does not fit the space.
        """

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one action for each batch entry.

        Args:
            generator: Source of randomness, on any device; the global one of the logits' device if None.

        Returns:
            [..., *action_space.shape]
        """

    @abstractmethod
    def deterministic_sample(self) -> Tensor:
        """The mode, [..., *action_space.shape]."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability (density for continuous heads) of `action` [..., *action_space.shape], as [...]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, [...]."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, [...]."""

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, sharing what both need."""
        return self.log_prob(action), self.entropy()

    @classmethod
    def _require(cls, space: spaces.Space[Any], kind: type[_SpaceType]) -> _SpaceType:
        """The space, if it is of the kind that this distribution is for."""
        if not isinstance(space, kind):
            raise TypeError(f"{cls.__name__} needs a {kind.__name__} space, got {space}")
        return space

    def _flat(self, action: Tensor) -> Tensor:
        """[..., n] the n = prod(shape) components of `action` [..., *shape]."""
        leading = action.shape[: action.dim() - len(self._shape)]
        return action.reshape((*leading, math.prod(self._shape)))

    def _shaped(self, components: Tensor) -> Tensor:
        """[..., *shape] actions from their n = prod(shape) components [..., n]."""
        return components if len(self._shape) == 1 else components.reshape((*components.shape[:-1], *self._shape))


class MaskableProbabilityDistribution(ProbabilityDistribution, ABC):
    """A distribution whose logits may be masked, see `masked_logits`."""

    supports_mask: ClassVar[bool] = True

    def _prepare(self) -> None:
        self._masked = masked_logits(self.logits, self.mask, self.temperature)


def masked_logits(logits: Tensor, mask: Tensor | None, temperature: float = 1.0) -> Tensor:
    """`logits` / `temperature` [..., L]; where `mask` [..., L] is 0 the lowest finite number: nothing becomes NaN."""
    logits = logits if temperature == 1.0 else logits / temperature
    if mask is None:
        return logits
    return torch.where(mask != 0, logits, torch.finfo(logits.dtype).min)


def drawn(draw: Callable[..., Tensor], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """What `torch.rand` or `torch.randn` draws on the generator's device, with shape, type and device of `like`."""
    device = like.device if generator is None else generator.device
    return draw(like.shape, generator=generator, dtype=like.dtype, device=device).to(like.device)
