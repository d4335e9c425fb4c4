"""What every distribution must do, checked against torch.distributions and by sampling."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    BetaProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DeterministicProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    MultiCategoricalProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)

CASES = {
    "categorical": (CategoricalProbabilityDistribution, spaces.Discrete(5)),
    "categorical_from_minus_2": (CategoricalProbabilityDistribution, spaces.Discrete(4, start=-2)),
    "multi_categorical": (MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([3, 1, 4])),
    "multi_categorical_2d": (MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([[3, 2], [2, 4]])),
    "bernoulli": (BernoulliProbabilityDistribution, spaces.MultiBinary(3)),
    "bernoulli_2d": (BernoulliProbabilityDistribution, spaces.MultiBinary([2, 3])),
    "gaussian": (DiagonalGaussianProbabilityDistribution, spaces.Box(-np.inf, np.inf, (3,))),
    "gaussian_2d": (DiagonalGaussianProbabilityDistribution, spaces.Box(-np.inf, np.inf, (2, 2))),
    "gaussian_scalar": (DiagonalGaussianProbabilityDistribution, spaces.Box(-np.inf, np.inf, ())),
    "beta": (BetaProbabilityDistribution, spaces.Box(np.float32([-1, 0, 5]), np.float32([1, 3, 5.5]))),
    "beta_2d": (BetaProbabilityDistribution, spaces.Box(0, 1, (2, 2))),
    "beta_scalar": (BetaProbabilityDistribution, spaces.Box(-2, 0, ())),
    "squashed": (SquashedGaussianProbabilityDistribution, spaces.Box(np.float32([-1, 0, 5]), np.float32([1, 3, 5.5]))),
    "squashed_2d": (SquashedGaussianProbabilityDistribution, spaces.Box(0, 1, (2, 2))),
    "squashed_scalar": (SquashedGaussianProbabilityDistribution, spaces.Box(-2, 0, ())),
}
BOUNDED = [name for name in CASES if name.startswith(("beta", "squashed"))]
DISCRETE = [name for name in CASES if "gaussian" not in name and name not in BOUNDED]
LEADING = [(), (6,), (2, 3)]


def reference(name, space, logits):
    """The same distribution by torch, over flat actions; returns it and how to turn an action into its form."""
    if name.startswith("categorical"):
        return [torch.distributions.Categorical(logits=logits)], lambda a: [a - int(space.start)]
    if name.startswith("multi"):
        sizes = space.nvec.reshape(-1).tolist()
        parts = [torch.distributions.Categorical(logits=part) for part in torch.split(logits, sizes, -1)]
        return parts, lambda a: list(a.reshape(*logits.shape[:-1], len(sizes)).unbind(-1))
    if name.startswith("bernoulli"):
        bits = torch.distributions.Independent(torch.distributions.Bernoulli(logits=logits), 1)
        return [bits], lambda a: [a.reshape(logits.shape).to(logits.dtype)]
    if name in BOUNDED:
        return [bounded_reference(name, space, logits)], lambda a: [a.reshape(*logits.shape[:-1], -1)]
    mean, log_std = logits.chunk(2, -1)
    normal = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    return [normal], lambda a: [a.reshape(mean.shape)]


class Transformed(torch.distributions.TransformedDistribution):
    """That of torch, with an entropy: a fine sum over what a tanh is of."""

    def entropy(self):
        if isinstance(self.base_dist, torch.distributions.Beta):
            return (self.base_dist.entropy() + self.transforms[0].scale.log()).sum(-1)
        noise = torch.linspace(-9.0, 9.0, 20_001, dtype=torch.float64)
        weight = torch.exp(-0.5 * noise.square()) / torch.exp(-0.5 * noise.square()).sum()
        x = self.base_dist.mean.unsqueeze(-1) + self.base_dist.stddev.unsqueeze(-1) * noise
        slope = self.transforms[0].log_abs_det_jacobian(x, x)
        return (self.base_dist.entropy() + (weight * slope).sum(-1) + self.transforms[1].scale.log()).sum(-1)

    def log_prob(self, value):
        return super().log_prob(value).sum(-1)


def bounded_reference(name, space, logits):
    low, high = (torch.from_numpy(np.array(bound, np.float64).reshape(-1)) for bound in (space.low, space.high))
    first, second = logits.chunk(2, -1)
    if name.startswith("beta"):
        base = torch.distributions.Beta(1 + first.exp().log1p(), 1 + second.exp().log1p())
        return Transformed(base, [torch.distributions.AffineTransform(low, high - low)])
    stretch = torch.distributions.AffineTransform((low + high) / 2, (high - low) / 2)
    normal = torch.distributions.Normal(first, second.exp())
    return Transformed(normal, [torch.distributions.TanhTransform(), stretch])


def make(name, leading=(), seed=0, dtype=torch.float64, **kwargs):
    kind, space = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*leading, *kind.required_logits_shape(space), generator=generator, dtype=dtype)
    if name.startswith("squashed"):
        logits *= 0.5  # torch gives NaN next to the borders
    return kind(logits, space, **kwargs), space, logits


def log_probs_of(kind, space, logits, actions, **kwargs):
    """Log-probability of several actions under one distribution."""
    return kind(logits.expand(len(actions), -1), space, **kwargs).log_prob(actions)


def every_action(space):
    if isinstance(space, spaces.Discrete):
        return torch.arange(space.n) + int(space.start)
    sizes = [2] * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else space.nvec.reshape(-1)
    actions = torch.tensor(list(itertools.product(*[range(size) for size in sizes])))
    return actions.reshape(-1, *space.shape)


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_entropy_equal_those_of_torch(name, leading):
    distribution, space, logits = make(name, leading)
    action = distribution.sample(torch.Generator().manual_seed(1))
    parts, convert = reference(name, space, logits)
    expected = sum(part.log_prob(value) for part, value in zip(parts, convert(action), strict=True))
    torch.testing.assert_close(distribution.log_prob(action), expected)
    tolerance = {"rtol": 0, "atol": 1e-5} if name.startswith("squashed") else {}
    torch.testing.assert_close(distribution.entropy(), sum(part.entropy() for part in parts), **tolerance)
    log_prob, entropy = distribution.log_prob_and_entropy(action)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(entropy, distribution.entropy())
    assert log_prob.shape == entropy.shape == leading


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("name", CASES)
def test_kl_equals_that_of_torch(name, leading):
    first, space, logits = make(name, leading)
    second, _, other_logits = make(name, leading, seed=1)
    parts, _ = reference(name, space, logits)
    others, _ = reference(name, space, other_logits)
    expected = sum(torch.distributions.kl_divergence(*pair) for pair in zip(parts, others, strict=True))
    if name in BOUNDED:
        expected = expected.sum(-1)
    kl = first.kl(second)
    assert kl.shape == leading
    torch.testing.assert_close(kl, expected)
    assert (kl > 1e-4).all()
    assert not torch.allclose(kl, second.kl(first), rtol=1e-3)
    torch.testing.assert_close(first.kl(make(name, leading)[0]), torch.zeros(leading, dtype=torch.float64))


@pytest.mark.parametrize("name", CASES)
def test_kl_is_the_mean_difference_of_log_probs_over_samples(name):
    kind, space = CASES[name]
    temperature = 1.5
    _, _, logits = make(name)
    second = kind(make(name, seed=1)[2], space)
    n = 10_000
    many = kind(logits.expand(n, -1), space, temperature)
    sample = many.sample(torch.Generator().manual_seed(0))
    difference = many.log_prob(sample) - log_probs_of(kind, space, second.logits, sample)
    kl = kind(logits, space, temperature).kl(second)
    assert abs(difference.mean() - kl) < 5 * difference.std() / n**0.5


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_kl_are_right_for_both_distributions(name):
    kind, space = CASES[name]
    both = [make(name, (2,), seed)[2].requires_grad_() for seed in (0, 1)]
    assert torch.autograd.gradcheck(lambda x, y: kind(x, space, 1.5).kl(kind(y, space)), both)


@pytest.mark.parametrize("name", CASES)
def test_kl_needs_a_distribution_of_the_same_kind_over_the_same_space(name):
    first, space, _ = make(name)
    if name.startswith(("squashed", "beta", "gaussian")):
        other = make("categorical")[0]
        bounds = spaces.Box(-3.0, 7.0, space.shape)
        elsewhere = type(first)(first.logits, bounds)
    else:
        other = make("gaussian")[0]
        n_bits = first.logits.shape[-1]
        elsewhere = BernoulliProbabilityDistribution(first.logits, spaces.MultiBinary((n_bits, 1)))
    with pytest.raises(TypeError, match=f"kl of {type(first).__name__} needs a .*, got {type(other).__name__}"):
        first.kl(other)
    with pytest.raises(ValueError, match=r"(?s)kl needs two distributions over the same action space, got .* and "):
        first.kl(elsewhere)


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("name", CASES)
def test_samples_and_modes_lie_in_the_space(name, leading):
    distribution, space, _ = make(name, leading, dtype=torch.float32)
    for action in (distribution.sample(), distribution.deterministic_sample()):
        assert action.shape == leading + space.shape
        for single in action.reshape(-1, *space.shape).numpy():
            assert space.contains(np.asarray(single, dtype=action.numpy().dtype))


@pytest.mark.parametrize("name", DISCRETE)
def test_sampling_frequencies_are_the_probabilities(name):
    distribution, space, logits = make(name)
    n = 40_000
    many = type(distribution)(logits.expand(n, -1), space)
    samples = many.sample(torch.Generator().manual_seed(0)).reshape(n, -1)
    actions = every_action(space)
    frequency = (samples[:, None] == actions.reshape(1, len(actions), -1)).all(-1).double().mean(0)
    probability = log_probs_of(type(distribution), space, logits, actions).exp()
    torch.testing.assert_close(probability.sum(), torch.tensor(1.0, dtype=torch.float64))
    deviation = (probability * (1 - probability) / n).sqrt()
    assert ((frequency - probability).abs() < 5 * deviation + 1e-12).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_the_mode_is_the_most_likely_action(name):
    distribution, space, logits = make(name)
    actions = every_action(space)
    best = actions[log_probs_of(type(distribution), space, logits, actions).argmax()]
    assert torch.equal(distribution.deterministic_sample().long(), best)


@pytest.mark.parametrize("name", CASES)
def test_low_temperature_approaches_the_mode_and_entropy_grows_with_temperature(name):
    kind, space = CASES[name]
    _, _, logits = make(name, (50,))
    cold, warm, hot = (kind(logits, space, temperature=t) for t in (1e-6, 1.0, 3.0))
    torch.testing.assert_close(
        cold.sample(torch.Generator().manual_seed(0)).double(), cold.deterministic_sample().double(), atol=0.1, rtol=0
    )
    if not name.startswith("squashed"):  # much noise ends at the borders
        assert (hot.entropy() > warm.entropy()).all()


@pytest.mark.parametrize("name", DISCRETE)
def test_temperature_makes_probabilities_proportional_to_a_power(name):
    kind, space = CASES[name]
    _, _, logits = make(name)
    actions = every_action(space)
    plain = log_probs_of(kind, space, logits, actions) / 2.5
    expected = plain - plain.logsumexp(0)
    torch.testing.assert_close(log_probs_of(kind, space, logits, actions, temperature=2.5), expected)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_log_prob_and_entropy_are_right(name):
    kind, space = CASES[name]
    distribution, _, logits = make(name, (3,))
    action = distribution.sample()
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: kind(x, space).log_prob_and_entropy(action), (logits,))


@pytest.mark.parametrize("name", CASES)
def test_sampling_depends_on_the_generator_only(name):
    distribution, _, _ = make(name, (20,))
    before = torch.get_rng_state()
    first = distribution.sample(torch.Generator().manual_seed(3))
    second = distribution.sample(torch.Generator().manual_seed(3))
    other = distribution.sample(torch.Generator().manual_seed(4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", CASES)
def test_half_precision_is_computed_in_single(name):
    kind, space = CASES[name]
    _, _, logits = make(name, (4,))
    distribution = kind(logits.bfloat16(), space)
    assert distribution.log_prob(distribution.sample()).dtype == torch.float32


@pytest.mark.parametrize("name", CASES)
def test_wrong_sizes_and_temperatures_are_refused(name):
    kind, space = CASES[name]
    _, _, logits = make(name, (2,))
    with pytest.raises(ValueError, match="logits of shape"):
        kind(torch.cat([logits, logits[:, :1]], -1), space)
    with pytest.raises(ValueError, match=r"temperature=0\.0 must be positive"):
        kind(logits, space, temperature=0.0)
    with pytest.raises(TypeError, match="needs a"):
        kind.required_logits_shape(spaces.Text(3))


@pytest.mark.parametrize("name", [name for name in CASES if "beta" not in name])  # that depends on values of logits
def test_a_cpu_generator_serves_logits_on_another_device(name):
    kind, space = CASES[name]
    _, _, logits = make(name, (20,))
    moved = kind(logits.to("meta"), space).sample(torch.Generator().manual_seed(0))
    assert moved.device.type == "meta"
    assert moved.shape == (20, *space.shape)


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_a_cpu_generator_gives_the_same_actions_on_a_gpu(name):
    kind, space = CASES[name]
    distribution, _, logits = make(name, (20,))
    moved = kind(logits.cuda(), space).sample(torch.Generator().manual_seed(0))
    torch.testing.assert_close(moved.cpu(), distribution.sample(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", [*BOUNDED, "gaussian", "gaussian_2d", "gaussian_scalar", "deterministic"])
def test_log_prob_has_the_type_of_the_logits_for_actions_of_every_type(name):
    if name == "deterministic":
        space = spaces.Box(-2.0, 4.0, (2,))
        exact = DeterministicProbabilityDistribution(torch.tensor([[0.3, -0.2]], dtype=torch.float64), space)
        rounded = DeterministicProbabilityDistribution(exact.logits.float(), space)
        exact.exploration = rounded.exploration = 0.4
    else:
        exact, space, logits = make(name, (3,))
        rounded = type(exact)(logits.float(), space)
    action = exact.sample(torch.Generator().manual_seed(1))
    expected = exact.log_prob(action)
    assert action.dtype == expected.dtype == torch.float64
    for given in (action, action.float()):
        assert exact.log_prob(given).dtype == torch.float64
        log_prob, _ = rounded.log_prob_and_entropy(given)
        assert log_prob.dtype == torch.float32
        torch.testing.assert_close(log_prob.double(), expected, rtol=1e-4, atol=1e-4)
