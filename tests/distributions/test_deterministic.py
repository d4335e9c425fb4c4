"""Deterministic actions within bounds, their noise, and the same in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents.numpy_sampling import NumpySampler, Sampling
from maze_pl.distributions import DeterministicProbabilityDistribution, DistributionMapper

BOX = spaces.Box(-2.0, 4.0, (2,))


def make(logits: torch.Tensor, scale: float, space: spaces.Box = BOX, temperature: float = 1.0):
    distribution = DeterministicProbabilityDistribution(logits, space, temperature)
    distribution.exploration = scale
    return distribution


def test_the_action_is_a_tanh_between_the_bounds() -> None:
    logits = torch.tensor([0.0, 1.0], requires_grad=True)
    action = make(logits, 0.5).deterministic_sample()
    torch.testing.assert_close(action, torch.tensor([1.0, 1.0 + 3.0 * math.tanh(1.0)]))
    (gradient,) = torch.autograd.grad(action.sum(), logits)
    torch.testing.assert_close(gradient, torch.tensor([3.0, 3.0 * (1.0 - math.tanh(1.0) ** 2)]))
    assert torch.equal(make(logits, 0.0).sample(), action)


def test_noise_has_the_scale_of_half_a_box_and_ends_at_the_bounds() -> None:
    distribution = make(torch.zeros(20_000, 2), 0.1)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    assert sample.mean() == pytest.approx(1.0, abs=0.01) and sample.std() == pytest.approx(0.3, rel=0.02)
    normal = torch.distributions.Normal(1.0, 0.3)
    torch.testing.assert_close(distribution.log_prob(sample), normal.log_prob(sample).sum(-1))
    torch.testing.assert_close(distribution.entropy()[0], 2 * normal.entropy())
    warm = make(torch.zeros(20_000, 2), 0.1, temperature=4.0).sample(torch.Generator().manual_seed(0))
    assert warm.std() == pytest.approx(0.6, rel=0.02)
    at_border = make(torch.full((1000, 2), 20.0), 0.1).sample()
    assert at_border.max() == 4.0 and at_border.min() < 4.0


def test_tensors_of_a_box_stay_where_they_are_as_graphs_of_a_device_read_them() -> None:
    def address() -> int:
        return make(torch.zeros(2), 0.1)._box.low.data_ptr()

    first = address()
    for high in range(5, 105):
        make(torch.zeros(2), 0.1, spaces.Box(-2.0, high, (2,)))
    assert address() == first


def test_the_divergence_is_that_of_the_noise() -> None:
    logits = torch.randn(2, 5, 2, dtype=torch.float64)
    first, second = make(logits[0], 0.1), make(logits[1], 0.4)
    own, other = (torch.distributions.Normal(x.deterministic_sample(), 3.0 * x.exploration) for x in (first, second))
    torch.testing.assert_close(first.kl(second), torch.distributions.kl_divergence(own, other).sum(-1))


def test_noise_can_be_limited() -> None:
    action = make(torch.zeros(1000, 2), 0.0).perturbed(0.4, 0.3, torch.Generator().manual_seed(0))
    noise = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(action, 1.0 + 3.0 * (0.4 * noise).clamp(-0.3, 0.3))
    assert (action - 1.0).abs().max() == pytest.approx(0.9)


@pytest.mark.parametrize("space", [spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(2), spaces.Box(0, 5, (2,), int)])
def test_other_spaces_are_refused(space: spaces.Space) -> None:
    with pytest.raises(TypeError, match="needs a Box of floats with finite bounds"):
        DeterministicProbabilityDistribution.required_logits_shape(space)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_numpy_acts_as_torch_does_within_the_space(shape: tuple[int, ...]) -> None:
    space = spaces.Box(-0.3, 1.7, shape)
    kind = DeterministicProbabilityDistribution
    logits = np.random.default_rng(0).standard_normal((50, *kind.required_logits_shape(space))) * 3
    config = [{"action_space": spaces.Box, "distribution": kind}]
    sampler = NumpySampler(DistributionMapper(spaces.Dict({"head": space}), config))
    for dtype in (np.float32, np.float64):
        array = logits.astype(dtype)
        distribution = make(torch.from_numpy(array), 0.3, space)
        for deterministic in (True, False):
            sampling = Sampling(deterministic, 1.0, torch.Generator().manual_seed(3), 0.3)
            found = sampler.choose({"head": array}, {}, sampling)
            assert found is not None and found["head"].dtype == dtype
            expected = distribution.sample(torch.Generator().manual_seed(3))
            if deterministic:
                expected = distribution.deterministic_sample()
            np.testing.assert_allclose(found["head"], expected.numpy(), rtol=1e-5, atol=1e-6)
            assert all(space.contains(np.asarray(action, np.float32)) for action in found["head"])
