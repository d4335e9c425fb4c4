"""Custom distributions: results of wrong shapes are refused by head, class and method when networks are built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions import ProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapper
from maze_pl.distributions.result_shapes import require_shapes

SPACE = spaces.Box(0, 1, (3,))


class Shares(ProbabilityDistribution):
    """Shares of a whole, as a user may write them; the generator is ignored."""

    @classmethod
    def required_logits_shape(cls, action_space: spaces.Space[Any]) -> tuple[int, ...]:
        return tuple(action_space.shape or ())

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return torch.distributions.Dirichlet(self.logits.exp()).sample()

    def deterministic_sample(self) -> Tensor:
        return self.logits.softmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return torch.distributions.Dirichlet(self.logits.exp()).log_prob(action)

    def entropy(self) -> Tensor:
        return torch.distributions.Dirichlet(self.logits.exp()).entropy()


class WideEntropy(Shares):
    """Has the entropy of each component."""

    def entropy(self) -> Tensor:
        return super().entropy().unsqueeze(-1)


class WideLogProb(Shares):
    """Keeps the last dimension."""

    def log_prob(self, action: Tensor) -> Tensor:
        return super().log_prob(action).unsqueeze(-1)


class OneSample(Shares):
    """Draws one action for the whole batch."""

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return super().sample(generator)[0]


class NumberAsMode(Shares):
    """Returns a number."""

    def deterministic_sample(self) -> Any:
        return 0.5


class WithoutEntropy(Shares):
    """Has no entropy."""

    def entropy(self) -> Tensor:
        raise NotImplementedError


class WithoutSamples(WideEntropy):
    """Cannot be tested."""

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (
            WideEntropy,
            r"^entropy of WideEntropy, .* action head 'mix', returned \(2, 1\) .* shape \(2,\)$",
        ),
        (WideLogProb, r"^log_prob of WideLogProb, .*'mix', returned \(2, 1\) .*: expected a tensor of shape \(2,\)$"),
        (OneSample, r"^sample of OneSample, .*'mix', returned \(3,\) .*: expected a tensor of shape \(2, 3\)$"),
        (NumberAsMode, r"^deterministic_sample of NumberAsMode, .* returned float .* shape \(2, 3\)$"),
    ],
)
def test_a_wrong_shape_is_refused_when_heads_get_their_distributions(distribution: type, message: str) -> None:
    config = [{"action_head": "mix", "distribution": distribution}]
    with pytest.raises(ValueError, match=message):
        DistributionMapper(spaces.Dict({"mix": SPACE}), config)


@pytest.mark.parametrize("distribution", [Shares, WithoutEntropy, WithoutSamples])
def test_other_distributions_pass_without_a_trace_in_the_generators(distribution: Any) -> None:
    state = torch.random.get_rng_state()
    require_shapes("mix", distribution, SPACE)
    assert torch.equal(torch.random.get_rng_state(), state)
