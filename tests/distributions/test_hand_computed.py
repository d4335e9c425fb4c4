"""Numbers computed by hand, for each distribution and for the joint one."""

from __future__ import annotations

import math

import pytest
import torch
from gymnasium import spaces

from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    BetaProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    DictProbabilityDistribution,
    MultiCategoricalProbabilityDistribution,
    ProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)

LOG = math.log


def test_categorical_with_probabilities_one_and_three_quarters():
    distribution = CategoricalProbabilityDistribution(torch.tensor([0.0, LOG(3.0)]), spaces.Discrete(2))
    assert distribution.log_prob(torch.tensor(1)).item() == pytest.approx(LOG(0.75))
    assert distribution.entropy().item() == pytest.approx(0.25 * LOG(4) + 0.75 * LOG(4 / 3))
    assert distribution.deterministic_sample().item() == 1
    assert distribution.deterministic_sample().dtype == distribution.sample().dtype == torch.int64


def test_categorical_counts_from_the_start_of_its_space():
    space = spaces.Discrete(3, start=10)
    distribution = CategoricalProbabilityDistribution(torch.tensor([-50.0, -50.0, 50.0]), space)
    assert distribution.sample().item() == distribution.deterministic_sample().item() == 12
    assert distribution.log_prob(torch.tensor(12)).item() == pytest.approx(0.0)


def test_multi_categorical_adds_its_choices():
    logits = torch.tensor([0.0, LOG(3.0), 0.0, 0.0, 0.0])
    distribution = MultiCategoricalProbabilityDistribution(logits, spaces.MultiDiscrete([2, 3]))
    assert distribution.log_prob(torch.tensor([0, 2])).item() == pytest.approx(LOG(0.25) + LOG(1 / 3))
    assert distribution.entropy().item() == pytest.approx(0.25 * LOG(4) + 0.75 * LOG(4 / 3) + LOG(3))


def test_bernoulli_adds_its_bits():
    distribution = BernoulliProbabilityDistribution(torch.tensor([0.0, LOG(3.0)]), spaces.MultiBinary(2))
    assert distribution.log_prob(torch.tensor([1, 0], dtype=torch.int8)).item() == pytest.approx(LOG(0.5) + LOG(0.25))
    assert distribution.entropy().item() == pytest.approx(LOG(2) + 0.25 * LOG(4) + 0.75 * LOG(4 / 3))
    assert distribution.deterministic_sample().tolist() == [0, 1]


def test_diagonal_gaussian_reads_means_and_then_log_deviations():
    logits = torch.tensor([1.0, -1.0, LOG(2.0), 0.0])
    distribution = DiagonalGaussianProbabilityDistribution(logits, spaces.Box(-9.0, 9.0, (2,)))
    expected = -0.5 * 1.0 - LOG(2.0) - 0.5 * LOG(2 * math.pi) - 0.5 * 4.0 - 0.5 * LOG(2 * math.pi)
    assert distribution.log_prob(torch.tensor([3.0, 1.0])).item() == pytest.approx(expected)
    assert distribution.entropy().item() == pytest.approx(LOG(2.0) + LOG(2 * math.pi * math.e))
    assert distribution.deterministic_sample().tolist() == [1.0, -1.0]


def test_diagonal_gaussian_samples_have_its_mean_and_deviation():
    logits = torch.tensor([2.0, LOG(3.0)]).expand(100_000, 2)
    distribution = DiagonalGaussianProbabilityDistribution(logits, spaces.Box(-9.0, 9.0, (1,)), temperature=4.0)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    assert sample.mean().item() == pytest.approx(2.0, abs=0.1)
    assert sample.std().item() == pytest.approx(6.0, rel=0.02)


def test_kl_of_discrete_distributions():
    quarter = torch.tensor([0.0, LOG(3.0)])
    half = torch.zeros(2)
    expected = 0.25 * LOG(0.25 / 0.5) + 0.75 * LOG(0.75 / 0.5)
    coin = spaces.Discrete(2, start=5)
    first, second = (CategoricalProbabilityDistribution(logits, coin) for logits in (quarter, half))
    assert first.kl(second).item() == pytest.approx(expected)
    assert second.kl(first).item() == pytest.approx(0.5 * LOG(0.5 / 0.25) + 0.5 * LOG(0.5 / 0.75))
    bits = spaces.MultiBinary(2)  # the first bit is 1 with probability 1/2 against 3/4, the second one is the same
    first = BernoulliProbabilityDistribution(torch.tensor([0.0, 7.0]), bits)
    second = BernoulliProbabilityDistribution(torch.tensor([LOG(3.0), 7.0]), bits)
    assert first.kl(second).item() == pytest.approx(0.5 * LOG(0.5 / 0.75) + 0.5 * LOG(0.5 / 0.25), abs=1e-6)
    choices = spaces.MultiDiscrete([2, 3])
    first = MultiCategoricalProbabilityDistribution(torch.cat([quarter, torch.zeros(3)]), choices)
    logits = torch.cat([half, torch.tensor([1.0, 1.0, 2.0]).log()])
    second = MultiCategoricalProbabilityDistribution(logits, choices)
    third = LOG((1 / 3) / 0.25) * 2 / 3 + LOG((1 / 3) / 0.5) / 3
    assert first.kl(second).item() == pytest.approx(expected + third)


def test_kl_of_gaussians():
    space = spaces.Box(-9.0, 9.0, (2,))
    first = DiagonalGaussianProbabilityDistribution(torch.tensor([1.0, 3.0, LOG(2.0), 0.5]), space)
    second = DiagonalGaussianProbabilityDistribution(torch.tensor([0.0, 3.0, 0.0, 0.5]), space)
    assert first.kl(second).item() == pytest.approx((4.0 + 1.0) / 2 - 0.5 - LOG(2.0))
    assert second.kl(first).item() == pytest.approx(LOG(2.0) + (1.0 + 1.0) / 8 - 0.5)
    warm = DiagonalGaussianProbabilityDistribution(torch.tensor([0.0, 3.0, 0.0, 0.5]), space, temperature=4.0)
    assert second.kl(warm).item() == pytest.approx(2 * (LOG(2.0) + 1.0 / 8 - 0.5))


def test_kl_of_bounded_distributions_does_not_depend_on_the_bounds():
    for space in (spaces.Box(0.0, 1.0, (1,)), spaces.Box(-7.0, 3.0, (1,))):
        # densities 2 a and 1 of the fraction a of the width
        sloped = BetaProbabilityDistribution(torch.tensor([LOG(math.e - 1), -1e3]), space)
        flat = BetaProbabilityDistribution(torch.tensor([-1e3, -1e3]), space)
        assert sloped.kl(flat).item() == pytest.approx(LOG(2.0) - 0.5)
        assert flat.kl(sloped).item() == pytest.approx(1.0 - LOG(2.0))
        first = SquashedGaussianProbabilityDistribution(torch.tensor([1.0, LOG(2.0)]), space)
        second = SquashedGaussianProbabilityDistribution(torch.tensor([0.0, 0.0]), space)
        assert first.kl(second).item() == pytest.approx(2.0 - LOG(2.0))


def test_small_differences_of_gaussians_do_not_cancel():
    space = spaces.Box(-9.0, 9.0, (1,))
    first = DiagonalGaussianProbabilityDistribution(torch.tensor([0.0, 1e-3]), space)
    second = DiagonalGaussianProbabilityDistribution(torch.tensor([0.0, 0.0]), space)
    assert first.kl(second).item() == pytest.approx((math.expm1(2e-3) - 2e-3) / 2, rel=2e-4)


def test_a_custom_distribution_without_kl_says_what_to_do():
    class Fixed(ProbabilityDistribution):
        """Always the lowest action."""

        required_logits_shape = classmethod(lambda cls, space: (1,))
        sample = deterministic_sample = lambda self, generator=None: torch.zeros(1)
        log_prob = entropy = lambda self, action=None: torch.zeros(())

    fixed = Fixed(torch.zeros(1), spaces.Box(0.0, 1.0, (1,)))
    with pytest.raises(NotImplementedError, match="Fixed has no kl: override kl, or estimate it as the mean of"):
        fixed.kl(fixed)


def test_extreme_logits_give_finite_numbers():
    logits = torch.tensor([[1e30, -1e30], [-80.0, 80.0]])
    for kind, space in [
        (CategoricalProbabilityDistribution, spaces.Discrete(2)),
        (BernoulliProbabilityDistribution, spaces.MultiBinary(2)),
    ]:
        distribution = kind(logits, space)
        log_prob, entropy = distribution.log_prob_and_entropy(distribution.deterministic_sample())
        assert torch.isfinite(log_prob).all()
        torch.testing.assert_close(entropy, torch.zeros(2))


def joint():
    coin = torch.tensor([[LOG(0.25), LOG(0.75)]])
    return DictProbabilityDistribution(
        {
            "coin": CategoricalProbabilityDistribution(coin, spaces.Discrete(2)),
            "die": CategoricalProbabilityDistribution(torch.zeros(1, 6), spaces.Discrete(6)),
        }
    )


def test_joint_log_prob_and_entropy_are_sums_over_the_heads():
    distribution = joint()
    action = {"coin": torch.tensor([1]), "die": torch.tensor([5])}
    log_prob, entropy = distribution.log_prob_and_entropy(action)
    assert log_prob.tolist() == pytest.approx([LOG(0.75) - LOG(6)])
    assert entropy.tolist() == pytest.approx([0.25 * LOG(4) + 0.75 * LOG(4 / 3) + LOG(6)])
    torch.testing.assert_close(distribution.log_prob(action), log_prob)
    torch.testing.assert_close(distribution.entropy(), entropy)


def test_joint_kl_is_the_sum_over_the_heads_by_name():
    even = {
        "die": CategoricalProbabilityDistribution(torch.zeros(1, 6), spaces.Discrete(6)),
        "coin": CategoricalProbabilityDistribution(torch.zeros(1, 2), spaces.Discrete(2)),
    }
    expected = 0.25 * LOG(0.5) + 0.75 * LOG(1.5)
    assert joint().kl(DictProbabilityDistribution(even)).tolist() == pytest.approx([expected])
    sloped = torch.tensor([[1.0, 1.0, 1.0, 1.0, 1.0, 5.0]]).log()
    even["die"] = CategoricalProbabilityDistribution(sloped, spaces.Discrete(6))
    expected += 5 / 6 * LOG(10 / 6) + 1 / 6 * LOG(2 / 6)
    assert joint().kl(DictProbabilityDistribution(even)).tolist() == pytest.approx([expected])
    del even["coin"]
    with pytest.raises(ValueError, match=r"kl needs .* the same heads, got \['coin', 'die'\] and \['die'\]"):
        joint().kl(DictProbabilityDistribution(even))


def test_a_joint_distribution_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one head"):
        DictProbabilityDistribution({})


def test_joint_samples_and_modes_have_every_head():
    distribution = joint()
    assert set(distribution.sample()) == {"coin", "die"}
    assert distribution.deterministic_sample()["coin"].tolist() == [1]


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_log_prob_and_entropy_together_are_those_of_their_definitions(masked):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    action = torch.stack([torch.randint(0, n, (7,), generator=generator) for n in (2, 3)], dim=-1)
    mask = torch.ones(7, 5)
    if masked:
        mask[:, 4] = 0.0
        mask[:, 2:4] = 1.0
        action[:, 1] %= 2
    # Below 1, because going back through the definitions of masked entries overflows beyond it.
    weights = torch.rand(2, 7, generator=generator, dtype=torch.float64) - 0.5
    gradients = []
    for together in (True, False):
        leaf = logits.clone().requires_grad_()
        distribution = MultiCategoricalProbabilityDistribution(leaf, spaces.MultiDiscrete([2, 3]), mask=mask)
        if together:
            log_prob, entropy = distribution.log_prob_and_entropy(action)
        else:
            log_prob, entropy = distribution.log_prob(action), distribution.entropy()
        gradients.append(torch.autograd.grad(weights[0] @ log_prob + weights[1] @ entropy, leaf)[0])
    assert gradients[0].abs().max() > 0.1
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-12)


def test_the_log_prob_of_what_was_just_sampled_from_a_normal_distribution_does_not_depend_on_its_mean():
    mean, log_std = torch.tensor([0.5, -2e3], requires_grad=True), torch.tensor([-1.0, 3.0], requires_grad=True)
    distribution = DiagonalGaussianProbabilityDistribution(torch.cat([mean, log_std]), spaces.Box(-9.0, 9.0, (2,)))
    action = distribution.sample(torch.Generator().manual_seed(0))
    noise = torch.randn(2, generator=torch.Generator().manual_seed(0))
    found = distribution.log_prob(action)
    assert found.item() == pytest.approx(float(-0.5 * noise.square().sum() - 2.0 - LOG(2 * math.pi)))
    by_mean, by_log_std = torch.autograd.grad(found, (mean, log_std), allow_unused=True, materialize_grads=True)
    assert by_mean.tolist() == [0.0, 0.0] and by_log_std.tolist() == [-1.0, -1.0]
    given = distribution.log_prob(action.detach().clone())  # of an action from elsewhere
    (by_mean,) = torch.autograd.grad(given, (mean,))
    torch.testing.assert_close(by_mean, noise / log_std.detach().exp(), rtol=1e-3, atol=1e-3)
