"""Masks hold in sampling, mode, log-probability, entropy and gradients, and never give NaN."""

from __future__ import annotations

import math

import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    EpsilonGreedyProbabilityDistribution,
    MultiCategoricalProbabilityDistribution,
)
from maze_pl.perception import ActionMaskingBlock

MASKABLE = {
    "categorical": (CategoricalProbabilityDistribution, spaces.Discrete(4)),
    "multi_categorical": (MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([3, 2, 4])),
    "bernoulli": (BernoulliProbabilityDistribution, spaces.MultiBinary(5)),
}


def test_masked_categorical_is_the_distribution_over_what_is_allowed():
    logits = torch.tensor([0.0, 9.0, math.log(3.0), 5.0])
    distribution = CategoricalProbabilityDistribution(
        logits, spaces.Discrete(4), mask=torch.tensor([1.0, 0.0, 7.0, 0.0])
    )
    assert distribution.log_prob(torch.tensor(2)).item() == pytest.approx(math.log(0.75))
    assert distribution.entropy().item() == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3))
    assert distribution.deterministic_sample().item() == 2
    assert distribution.log_prob(torch.tensor(1)).exp().item() == 0.0


def test_masked_categorical_samples_allowed_options_only():
    mask = torch.tensor([0, 1, 0, 1]).expand(20_000, 4)
    distribution = CategoricalProbabilityDistribution(torch.randn(4).expand(20_000, 4), spaces.Discrete(4), mask=mask)
    assert set(distribution.sample().tolist()) == {1, 3}


def test_masks_of_multi_categoricals_are_concatenated():
    space = spaces.MultiDiscrete([2, 3])
    mask = torch.tensor([False, True, True, False, True]).expand(5_000, 5)
    distribution = MultiCategoricalProbabilityDistribution(torch.zeros(5_000, 5), space, mask=mask)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    assert set(sample[:, 0].tolist()) == {1}
    assert set(sample[:, 1].tolist()) == {0, 2}
    torch.testing.assert_close(distribution.entropy(), torch.full((5_000,), math.log(2)))
    torch.testing.assert_close(distribution.log_prob(sample), torch.full((5_000,), -math.log(2)))


def test_a_masked_bit_is_always_zero_and_contributes_nothing():
    logits = torch.tensor([5.0, 0.0, 30.0]).expand(1_000, 3)
    distribution = BernoulliProbabilityDistribution(
        logits, spaces.MultiBinary(3), mask=torch.tensor([0, 1, 0]).expand(1_000, 3)
    )
    sample = distribution.sample()
    assert not sample[:, [0, 2]].any()
    assert sample[:, 1].float().mean().item() == pytest.approx(0.5, abs=0.1)
    assert not distribution.deterministic_sample()[:, [0, 2]].any()
    torch.testing.assert_close(distribution.log_prob(sample), torch.full((1_000,), math.log(0.5)))
    torch.testing.assert_close(distribution.entropy(), torch.full((1_000,), math.log(2)))


@pytest.mark.parametrize("shape", [(4,), (2, 4), (1, 1, 4), (3, 2, 1), (3, 1, 4), (3, 2, 5)])
def test_a_mask_whose_shape_would_have_to_be_broadcast_is_refused(shape):
    with pytest.raises(ValueError, match=r"mask of shape .* does not fit logits of \(3, 2, 4\)"):
        CategoricalProbabilityDistribution(torch.zeros(3, 2, 4), spaces.Discrete(4), mask=torch.ones(shape))
    CategoricalProbabilityDistribution(torch.zeros(3, 2, 4), spaces.Discrete(4), mask=torch.ones(3, 2, 4))


def test_where_nothing_is_allowed_every_option_is_equally_likely():
    distribution = CategoricalProbabilityDistribution(
        torch.tensor([5.0, 0.0, -3.0]), spaces.Discrete(3), mask=torch.zeros(3)
    )
    assert distribution.entropy().item() == pytest.approx(math.log(3))


CONFLICTING = {
    "categorical": (CategoricalProbabilityDistribution, spaces.Discrete(4), [[0, 1, 2, 3]]),
    "multi_categorical": (
        MultiCategoricalProbabilityDistribution,
        spaces.MultiDiscrete([4, 3]),
        [[0, 1, 2, 3], [4, 5, 6]],
    ),
    "epsilon_greedy": (EpsilonGreedyProbabilityDistribution, spaces.Discrete(4), [[0, 1, 2, 3]]),
    "epsilon_greedy_choices": (
        EpsilonGreedyProbabilityDistribution,
        spaces.MultiDiscrete([4, 3]),
        [[0, 1, 2, 3], [4, 5, 6]],
    ),
}


@pytest.mark.parametrize("by_network", [float(torch.finfo(torch.float32).min), -math.inf])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", CONFLICTING)
def test_a_mask_holds_if_the_network_masks_all_that_it_allows(name, temperature, by_network):
    kind, space, choices = CONFLICTING[name]
    n_options = sum(len(choice) for choice in choices)
    logits = torch.randn(2_000, n_options, generator=torch.Generator().manual_seed(0))
    logits[:, 1:3] = by_network
    mask = torch.ones(2_000, n_options)
    mask[:, [0, 3]] = 0
    distribution = kind(logits, space, temperature, mask)
    distribution.exploration = 0.5
    if not name.startswith("epsilon"):
        expected = torch.tensor([0.0, 0.5, 0.5, 0.0]).expand(2_000, 4)
        torch.testing.assert_close(distribution.log_probs_of_options().exp()[:, :4], expected)
        other = kind(torch.zeros(2_000, n_options), space)
        assert torch.isinf(other.kl(distribution)).all()
    sample = distribution.sample(torch.Generator().manual_seed(1)).reshape(2_000, -1)
    assert set(sample[:, 0].tolist()) <= {1, 2}  # a low temperature leaves only the best one of the greedy
    assert distribution.deterministic_sample().reshape(2_000, -1)[0, 0] in (1, 2)
    free = kind(logits, space, temperature, torch.ones_like(mask))
    free.exploration = 0.5
    assert set(free.sample(torch.Generator().manual_seed(1)).reshape(2_000, -1)[:, 0].tolist()) <= {0, 3}


@pytest.mark.parametrize("name", MASKABLE)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_nothing_is_nan_and_nothing_masked_happens(name, data):
    kind, space = MASKABLE[name]
    (size,) = kind.required_logits_shape(space)
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    scale = data.draw(st.sampled_from([0.0, 1.0, 1e3, 1e20]))
    temperature = data.draw(st.sampled_from([1e-3, 1.0, 1e3]))
    logits = (scale * torch.randn(64, size, generator=torch.Generator().manual_seed(0))).requires_grad_()
    distribution = kind(logits, space, temperature, mask.expand(64, size))
    action = distribution.sample(torch.Generator().manual_seed(1))
    log_prob, entropy = distribution.log_prob_and_entropy(action)
    (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits)
    for value in (log_prob, entropy, gradient):
        assert torch.isfinite(value).all()
    assert not gradient[:, ~mask].any()
    assert (entropy >= -1e-4).all()
    parts = [mask] if name != "multi_categorical" else torch.split(mask, space.nvec.tolist())
    if name == "bernoulli":
        assert not action[:, ~mask].any()
    else:
        for part, column in zip(parts, action.reshape(64, -1).unbind(-1), strict=True):
            assert not part.any() or part[column].all()


def test_masked_options_add_nothing_to_kl_and_what_only_the_other_excludes_is_infinite():
    space = spaces.Discrete(4)
    mask = torch.tensor([1, 0, 1, 0])
    logits = torch.tensor([0.0, 9.0, math.log(3.0), 5.0])
    one_in_four = CategoricalProbabilityDistribution(logits, space, mask=mask)
    even = CategoricalProbabilityDistribution(torch.zeros(4), space, mask=mask)
    everything = CategoricalProbabilityDistribution(torch.zeros(4), space)
    kl = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert one_in_four.kl(even).item() == pytest.approx(kl)
    assert one_in_four.kl(everything).item() == pytest.approx(kl + math.log(2))
    assert everything.kl(even).item() == math.inf
    other = CategoricalProbabilityDistribution(torch.zeros(4), space, mask=torch.tensor([1, 1, 0, 0]))
    assert one_in_four.kl(other).item() == math.inf
    nothing = CategoricalProbabilityDistribution(logits, space, mask=torch.zeros(4))
    assert nothing.kl(everything).item() == pytest.approx(0.0, abs=1e-6)
    bits = spaces.MultiBinary(2)
    first = BernoulliProbabilityDistribution(torch.tensor([0.0, 3.0]), bits, mask=torch.tensor([1, 0]))
    second = BernoulliProbabilityDistribution(torch.tensor([math.log(3.0), -8.0]), bits, mask=torch.tensor([1, 0]))
    assert first.kl(second).item() == pytest.approx(0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))
    third = BernoulliProbabilityDistribution(torch.tensor([math.log(3.0), 0.0]), bits)
    assert first.kl(third).item() == pytest.approx(first.kl(second).item() + math.log(2))
    assert third.kl(first).item() == math.inf


@pytest.mark.parametrize("name", MASKABLE)
def test_gradients_of_kl_under_the_same_mask_are_finite_and_0_where_masked(name):
    kind, space = MASKABLE[name]
    (size,) = kind.required_logits_shape(space)
    mask = torch.arange(size).fmod(2).expand(64, size)
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 1e20):
        first, second = ((scale * torch.randn(64, size, generator=generator)).requires_grad_() for _ in range(2))
        kl = kind(first, space, mask=mask).kl(kind(second, space, mask=mask))
        assert torch.isfinite(kl).all() and (kl >= -1e-5).all()
        for gradient in torch.autograd.grad(kl.sum(), (first, second)):
            assert torch.isfinite(gradient).all()
            assert not gradient[mask == 0].any()
            assert scale > 1.0 or gradient[mask == 1].any()


def test_gaussians_cannot_be_masked():
    with pytest.raises(ValueError, match="cannot be masked"):
        DiagonalGaussianProbabilityDistribution(torch.zeros(2), spaces.Box(-1, 1, (1,)), mask=torch.ones(2))


def test_masks_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match=r"mask of shape \(3,\) does not fit logits of \(4,\)"):
        CategoricalProbabilityDistribution(torch.zeros(4), spaces.Discrete(4), mask=torch.ones(3))


@pytest.mark.parametrize("name", MASKABLE)
@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
def test_logits_that_a_block_has_masked_give_what_a_mask_gives(name, temperature):
    kind, space = MASKABLE[name]
    (size,) = kind.required_logits_shape(space)
    mask = torch.arange(size).fmod(2).expand(8, size)
    logits = torch.randn(8, size, generator=torch.Generator().manual_seed(0))
    block = ActionMaskingBlock(["logits", "mask"], "masked", [[size], [size]])
    masked = block({"logits": logits, "mask": mask})["masked"].requires_grad_()
    by_block, by_mask = kind(masked, space, temperature), kind(logits, space, temperature, mask)
    action = by_mask.sample(torch.Generator().manual_seed(1))
    for found, expected in (
        (by_block.probabilities(), by_mask.probabilities()),
        (by_block.log_prob_and_entropy(action), by_mask.log_prob_and_entropy(action)),
        ((by_block.entropy(), by_block.kl(by_block)), (by_mask.entropy(), torch.zeros(8))),
    ):
        torch.testing.assert_close(found, expected)
    log_prob, entropy = by_block.log_prob_and_entropy(action)
    (gradient,) = torch.autograd.grad((log_prob + entropy + by_block.entropy()).sum(), masked)
    assert bool(torch.isfinite(gradient).all()) and bool(gradient.any()) and not bool(gradient[mask == 0].any())


def test_probabilities_of_infinite_logits_have_finite_entropies():
    distribution = CategoricalProbabilityDistribution(torch.tensor([0.0, -math.inf, 0.0]), spaces.Discrete(3))
    assert distribution.entropy().item() == pytest.approx(math.log(2))
    assert distribution.probabilities()[1][1] == 0.0


@pytest.mark.parametrize("name", MASKABLE)
@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
def test_infinite_logits_that_a_network_has_masked_give_what_a_mask_gives(name, temperature):
    kind, space = MASKABLE[name]
    (size,) = kind.required_logits_shape(space)
    mask = torch.arange(size).fmod(2).expand(8, size)
    free, logits = (torch.randn(8, size, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    by_network = kind(torch.where(mask != 0, logits, -math.inf), space, temperature)
    by_mask = kind(free, space, temperature, mask)
    action = by_mask.sample(torch.Generator().manual_seed(1))
    assert torch.equal(by_network.sample(torch.Generator().manual_seed(1)), action)
    assert torch.equal(by_network.deterministic_sample(), by_mask.deterministic_sample())
    found, expected = (
        (*one.log_prob_and_entropy(action), one.log_prob(action), one.entropy(), one.kl(kind(0.5 * one.logits, space)))
        for one in (by_network, by_mask)
    )
    torch.testing.assert_close(found[:4], expected[:4])
    assert bool(torch.isfinite(found[4]).all())
    for part, other in zip(found, expected[:4], strict=False):
        gradients = [
            torch.autograd.grad(one.sum(), x, retain_graph=True)[0] for one, x in ((part, logits), (other, free))
        ]
        assert bool(torch.isfinite(gradients[0]).all())
        torch.testing.assert_close(*gradients)


def test_masked_logits_with_large_ones_have_finite_entropies_and_gradients():
    """The logarithms of the probabilities overflow to minus infinity."""
    logits = torch.tensor([1e33, 0.0, 5.0], requires_grad=True)
    mask = torch.tensor([1, 1, 0])
    distribution = CategoricalProbabilityDistribution(logits, spaces.Discrete(3), mask=mask)
    log_prob, entropy = distribution.log_prob_and_entropy(torch.tensor(0))
    (gradient,) = torch.autograd.grad(log_prob + entropy, logits)
    assert (log_prob.item(), entropy.item(), gradient.tolist()) == (0.0, 0.0, [0.0, 0.0, 0.0])
