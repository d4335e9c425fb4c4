"""Interfaces of distributions over action heads, and functions that they share.

Distributions are short-lived: a new one is made in each forward pass. They hold tensors only,
create no `torch.distributions` objects, and validate shapes but not values, because they run in the
innermost loop.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

Kind = TypeVar("Kind", bound="ProbabilityDistribution")


class ProbabilityDistribution(ABC):
    """A batch of distributions over the actions of one head, given by the outputs of a network.

    A subclass becomes available for a head by its class path in `distribution_mapper_config`.

    Args:
        logits: [..., L] network outputs, L as `required_logits_shape` says; any number of leading
            dimensions. Half precision is computed in float32.
        action_space: The space of the head.
        temperature: Above 1 flattens the distribution, below 1 sharpens it: p becomes proportional
            to p ** (1 / T).
        mask: [..., L] nonzero where an entry is allowed, None to allow all.

    Attributes:
        supports_mask: Whether the distribution can be masked.
        has_exploration_scale: Whether all randomness comes from `exploration`, so that networks
            cannot be trained by probabilities: algorithms that do so refuse the distribution.
        uses_bounds: Whether actions depend on the bounds of a Box, as those that fill it do.
        exploration: Scale of exploration, a scalar that the policy sets in each distribution. It
            has an effect only in distributions that document one.

    Raises:
        ValueError: Shapes do not fit, the temperature is not positive, or the distribution cannot
            be masked.
        TypeError: The distribution does not fit the space.
    """

    supports_mask: ClassVar[bool] = False
    has_exploration_scale: ClassVar[bool] = False
    uses_bounds: ClassVar[bool] = False
    exploration: Tensor | float = 0.0

    def __init__(
        self,
        logits: Tensor,
        action_space: spaces.Space[Any],
        temperature: float = 1.0,
        mask: Tensor | None = None,
    ) -> None:
        expected = tuple(self.required_logits_shape(action_space))
        shape = tuple(logits.shape)
        if shape[len(shape) - len(expected) :] != expected:
            sizes = ", ".join(map(str, expected))
            needed = f"logits of shape [..., {sizes}] for its space"
            raise ValueError(f"{type(self).__name__} needs {needed}, got {shape}")
        if not temperature > 0:
            remedy = "use deterministic actions for the limit 0"
            raise ValueError(f"temperature={temperature} must be positive; {remedy}")
        if mask is not None:
            if not self.supports_mask:
                reason = "only discrete and binary heads can"
                raise ValueError(f"{type(self).__name__} cannot be masked; {reason}")
            if mask.shape != logits.shape:
                found = f"mask of shape {tuple(mask.shape)}"
                raise ValueError(f"{found} does not fit logits of {shape}")
        self.logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        self.action_space = action_space
        self.temperature = temperature
        self.mask = mask
        self._shape = tuple(action_space.shape or ())
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027  # optional hook
        """Precompute values that several methods use; called at the end of the constructor."""

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
            generator: Source of randomness, on any device; the global one of the logits' device if
                None.

        Returns:
            [..., *action_space.shape]
        """

    @abstractmethod
    def deterministic_sample(self) -> Tensor:
        """The mode, [..., *action_space.shape]."""

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability (density for continuous heads) of `action` [..., *shape].

        It has the type of the logits.
        """

    def environment_log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape] as environments receive it.

        Environments receive actions that are clipped to the bounds of a Box, which records hold. If
        samples end on a bound in this way, that bound has a probability: that of all samples on or
        beyond it. The other actions have the density of `log_prob`.
        """
        return self.log_prob(action)

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, [...]."""

    def log_prob_and_entropy(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob(action)` and `entropy()`, with shared computations."""
        return self.log_prob(action), self.entropy()

    def kl(self, other: "ProbabilityDistribution") -> Tensor:
        """[...] Kullback-Leibler divergence from this distribution to `other`, in nats.

            KL(p || q) = E[log p(a) - log q(a)] for actions a of p

        where p is this distribution and q the other one. Kullback and Leibler 1951. It is exact for
        all distributions of this package: a sum over options, or a closed form.

        Args:
            other: A distribution of the same kind over the same space, with the same leading
                dimensions; temperatures and masks may differ.

        Raises:
            NotImplementedError: A custom distribution has no `kl`.
            TypeError: The other distribution is of another kind.
            ValueError: The other distribution is over another space.
        """
        remedy = "override kl, or estimate it as the mean of log_prob(a) - other.log_prob(a) over samples a"
        raise NotImplementedError(f"{type(self).__name__} has no kl: {remedy}")

    def _comparable(self, other: "ProbabilityDistribution", kind: type[Kind]) -> Kind:
        """Return the other distribution if it is of a kind and over the same space, for `kl`."""
        if not isinstance(other, kind):
            raise TypeError(f"kl of {type(self).__name__} needs a {kind.__name__}, got {type(other).__name__}")
        if other.action_space is not self.action_space and other.action_space != self.action_space:
            spaces_of_both = f"got {self.action_space} and {other.action_space}"
            raise ValueError(f"kl needs two distributions over the same action space, {spaces_of_both}")
        return other

    @classmethod
    def _require(cls, space: spaces.Space[Any], required: type[spaces.Space[Any]]) -> Any:
        """Return the space if it has the required type; raise TypeError otherwise."""
        if not isinstance(space, required):
            raise TypeError(f"{cls.__name__} needs a {required.__name__} space, got {space}")
        return space

    def _flat(self, action: Tensor) -> Tensor:
        """[..., n] the n = prod(shape) components of `action` [..., *shape]."""
        leading = action.shape[: action.dim() - len(self._shape)]
        return action.reshape((*leading, math.prod(self._shape)))

    def _shaped(self, components: Tensor) -> Tensor:
        """[..., *shape] actions from their n = prod(shape) components [..., n]."""
        if len(self._shape) == 1:
            return components
        return components.reshape((*components.shape[:-1], *self._shape))


class MaskableProbabilityDistribution(ProbabilityDistribution, ABC):
    """A distribution whose logits may be masked, see `masked_logits`."""

    supports_mask: ClassVar[bool] = True

    def _prepare(self) -> None:
        self._masked = masked_logits(self.logits, self.mask, self.temperature)

    @abstractmethod
    def log_probs_of_options(self) -> Tensor:
        """[..., L] log-probability of each option of all choices, as ordered by `chosen_options`."""

    def probabilities(self) -> tuple[Tensor, Tensor]:
        """[..., L] probability of every option of all choices, and its logarithm, 0 if impossible.

        This keeps sums of p * log p and their gradients finite.
        """
        log_probs = self.log_probs_of_options()
        probability = log_probs.exp()
        return probability, torch.where(probability > 0, log_probs, 0.0)

    def log_prob(self, action: Tensor) -> Tensor:
        """[...] log-probability of `action` [..., *shape]: the sum over its choices."""
        options = chosen_options(self.action_space, action)
        return self.log_probs_of_options().gather(-1, options).sum(dim=-1)

    def entropy(self) -> Tensor:
        """[...] entropy in nats: -sum p log p over the options of all (independent) choices."""
        probability, log_probs = self.probabilities()
        return -(probability * log_probs).sum(dim=-1)

    def kl(self, other: ProbabilityDistribution) -> Tensor:
        """[...] KL(p || q) in nats: sum of p log(p / q) over the options of all choices.

        Options with p = 0, such as masked ones, add nothing. If the mask of the other distribution
        excludes an option that is possible here, the divergence is infinite.
        """
        kind = MaskableProbabilityDistribution
        options = self._comparable(other, kind).log_probs_of_options()  # type: ignore[type-abstract]
        log_probs = self.log_probs_of_options()
        probability = log_probs.exp()
        if other.mask is not None:  # finite numbers stand for the logits of masked options
            options = options.masked_fill(impossible(options), -math.inf)
        difference = torch.where(probability > 0, log_probs - options, 0.0)
        return (probability * difference).sum(dim=-1)


def masked_logits(logits: Tensor, mask: Tensor | None, temperature: float = 1.0) -> Tensor:
    """`logits` / `temperature` [..., L], with the lowest finite number where a mask is 0.

    `mask` is [..., L]. A finite number avoids NaN. Numbers that a block has masked in this way stay
    finite. If the mask allows nothing else, the options that the network masks are taken: they get
    half of the lowest number, which leaves probability 0 to those that the mask forbids.
    """
    lowest = torch.finfo(logits.dtype).min
    if temperature != 1.0:
        logits = (logits / temperature).clamp(min=lowest)
    return logits if mask is None else torch.where(mask != 0, logits.clamp(min=0.5 * lowest), lowest)


def masked_by_network(logits: Tensor) -> Tensor:
    """[..., L] True where a network has masked logits [..., L].

    Blocks such as `ActionMaskingBlock` use the lowest finite number, other networks minus infinity.
    """
    return logits < 0.5 * torch.finfo(logits.dtype).min


def impossible(log_probs: Tensor) -> Tensor:
    """[..., L] True where log-probabilities [..., L] are those of impossible options: lower than any other number."""
    return log_probs < 0.25 * torch.finfo(log_probs.dtype).min


def drawn(draw: Callable[..., Tensor], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw by `torch.rand` or `torch.randn` on the generator's device.

    The result has shape, type and device of `like`.
    """
    device = like.device if generator is None else generator.device
    return draw(like.shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


# ------------------------------------------------------------------------------------ discrete


def sample_index(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """[...] indices drawn from softmax(logits) [..., n].

    Sampled by an exponential race: the largest p_i / E_i wins, E_i standard exponential; i wins
    with probability p_i. Entries of probability 0 never win, because the uniform numbers are kept
    away from 0.
    """
    probability = functional.softmax(logits, dim=-1)
    tiny = torch.finfo(probability.dtype).tiny
    minus_exponential = drawn(torch.rand, probability, generator).clamp_min_(tiny).log_()
    return (probability / minus_exponential).argmin(dim=-1)


def choice_sizes(space: spaces.Space[Any] | None) -> list[int]:
    """Number of options of each choice of an action: 2 for a bit; none for continuous spaces.

    Example:
        >>> choice_sizes(spaces.Discrete(3)), choice_sizes(spaces.MultiBinary(2))
        ([3], [2, 2])
        >>> choice_sizes(spaces.Box(0, 1))
        []
    """
    if isinstance(space, spaces.MultiBinary):
        return [2] * math.prod(space.shape)
    sizes = getattr(space, "nvec", [space.n] if isinstance(space, spaces.Discrete) else [])
    return [int(size) for size in np.ravel(sizes)]


def chosen_options(space: spaces.Space[Any], action: Tensor) -> Tensor:
    """[..., number of choices] int64 options of an action [..., *space.shape].

    They are indices into the concatenated options of all choices.

    Example:
        >>> chosen_options(spaces.MultiDiscrete([3, 2]), torch.tensor([1, 0]))
        tensor([1, 3])
    """
    choices = action.reshape((*action.shape[: action.dim() - len(space.shape or ())], -1)).long()
    if isinstance(space, spaces.Discrete):
        return choices - int(space.start) if space.start else choices
    sizes = choice_sizes(space)
    return choices + _first_options(sizes, action.device) if len(sizes) > 1 else choices


def _first_options(sizes: Sequence[int], device: torch.device) -> Tensor:
    """[number of choices] index of the first option of each choice, made on the device without a copy."""
    if len(set(sizes)) == 1:
        return torch.arange(0, sum(sizes), sizes[0], device=device)
    indices = itertools.accumulate(sizes[:-1], initial=0)
    return torch.cat([torch.full((1,), index, device=device) for index in indices])


class _LogProbAndEntropy(torch.autograd.Function):
    """log p_i and H of softmax(logits) [..., n], with their gradients in closed form.

        d log p_i / d l_j = [i = j] - p_j,   dH / d l_j = -p_j * (log p_j + H)

    Automatic differentiation of the definitions takes three times as many operations.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """[...] log p_i and H, for `index` [..., 1]."""
        log_probs = functional.log_softmax(logits, dim=-1)
        probability = log_probs.exp()
        # 0 where an option is masked, also by a logit of minus infinity
        terms = probability * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)
        entropy = -terms.sum(dim=-1)
        ctx.save_for_backward(index, probability, terms, entropy)
        return log_probs.gather(-1, index).squeeze(-1), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_log_prob: Tensor, by_entropy: Tensor) -> tuple[Tensor, None]:
        """[..., n] gradient with respect to the logits."""
        index, probability, terms, entropy = ctx.saved_tensors
        by_log_prob = by_log_prob.unsqueeze(-1)
        slope = torch.addcmul(terms, probability, entropy.unsqueeze(-1))
        weighted = by_entropy.unsqueeze(-1) * slope
        towards_others = torch.addcmul(weighted, probability, by_log_prob).neg()
        return towards_others.scatter_add(-1, index, by_log_prob), None


def log_prob_and_entropy_of(logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """[...] log-probability of `index` [...] under softmax(logits) [..., n], and entropy."""
    function: Any = _LogProbAndEntropy
    both: tuple[Tensor, Tensor] = function.apply(logits, index.long().unsqueeze(-1))
    return both
