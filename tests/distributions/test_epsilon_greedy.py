"""Epsilon-greedy choices: probabilities by hand and by counting, masks, several choices, and the same in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents.numpy_sampling import NumpySampler, Sampling
from maze_pl.distributions import DistributionMapper, EpsilonGreedyProbabilityDistribution

SPACES = {
    "one": spaces.Discrete(3, start=2),
    "several": spaces.MultiDiscrete([[2, 3], [1, 4]]),
    "bits": spaces.MultiBinary(3),
}


def make(values, space, epsilon, mask=None, temperature=1.0):
    mask = None if mask is None else torch.tensor(mask)
    distribution = EpsilonGreedyProbabilityDistribution(torch.tensor(values), space, temperature, mask)
    distribution.exploration = epsilon
    return distribution


def test_the_best_option_has_what_exploration_leaves() -> None:
    distribution = make([1.0, 3.0, 2.0], SPACES["one"], 0.3)
    probability, log_probs = distribution.probabilities()
    torch.testing.assert_close(probability, torch.tensor([0.1, 0.8, 0.1]))
    torch.testing.assert_close(log_probs, probability.log())
    assert distribution.deterministic_sample() == 3
    assert distribution.log_prob(torch.tensor(2)).item() == pytest.approx(math.log(0.1))
    expected = -0.8 * math.log(0.8) - 0.2 * math.log(0.1)
    assert distribution.entropy().item() == pytest.approx(expected)


def test_kl_of_epsilon_greedy_choices() -> None:
    first, second = make([1.0, 3.0, 2.0], SPACES["one"], 0.3), make([4.0, 3.0, 2.0], SPACES["one"], 0.6)
    expected = 0.1 * math.log(0.1 / 0.6) + 0.8 * math.log(0.8 / 0.2) + 0.1 * math.log(0.1 / 0.2)
    assert first.kl(second).item() == pytest.approx(expected)
    greedy = make([1.0, 3.0, 2.0], SPACES["one"], 0.0)
    assert greedy.kl(first).item() == pytest.approx(-math.log(0.8))
    assert first.kl(greedy).item() == math.inf


def test_without_exploration_only_the_best_option_is_taken() -> None:
    distribution = make([[1.0, 3.0, 2.0]] * 50, SPACES["one"], 0.0)
    assert distribution.sample().tolist() == [3] * 50
    assert distribution.entropy().tolist() == [0.0] * 50
    assert distribution.log_prob(torch.full((50,), 4)).tolist() == [-math.inf] * 50


def test_a_temperature_flattens_the_probabilities() -> None:
    probability, _ = make([1.0, 3.0, 2.0], SPACES["one"], 0.3, temperature=2.0).probabilities()
    weights = torch.tensor([0.1, 0.8, 0.1]).sqrt()
    torch.testing.assert_close(probability, weights / weights.sum())


def test_forbidden_options_are_neither_best_nor_explored() -> None:
    mask = [[1, 0, 1]] * 3000
    distribution = make([[1.0, 3.0, 2.0]] * 3000, SPACES["one"], 0.5, mask)
    torch.testing.assert_close(distribution.probabilities()[0][0], torch.tensor([0.25, 0.0, 0.75]))
    sample = distribution.sample(torch.Generator().manual_seed(0))
    counts = torch.bincount(sample - 2, minlength=3) / 3000
    assert counts[1] == 0 and counts[0].item() == pytest.approx(0.25, abs=0.04)


def test_if_nothing_is_allowed_everything_is() -> None:
    probability, _ = make([1.0, 3.0, 2.0], SPACES["one"], 0.3, [0, 0, 0]).probabilities()
    assert probability.sum() == pytest.approx(1.0) and probability.min() == pytest.approx(0.1)


def test_a_masked_bit_is_never_set() -> None:
    values = [[0.0, 5.0, 0.0, 5.0, 1.0, 0.0]] * 1000
    distribution = make(values, SPACES["bits"], 0.6, [[0, 1, 1]] * 1000)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    assert sample.dtype == torch.int8 and distribution.deterministic_sample()[0].tolist() == [0, 1, 0]
    assert sample[:, 0].sum() == 0
    assert sample[:, 1:].float().mean(0).tolist() == pytest.approx([0.7, 0.3], abs=0.05)


def test_each_choice_explores_by_itself() -> None:
    space = spaces.MultiDiscrete([2, 4])
    distribution = make([[1.0, 0.0, 0.0, 0.0, 0.0, 9.0]] * 20_000, space, 0.4)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    is_best = sample == torch.tensor([0, 3])
    assert is_best.float().mean(0).tolist() == pytest.approx([0.8, 0.7], abs=0.01)
    assert is_best.all(-1).float().mean() == pytest.approx(0.56, abs=0.01)


def test_values_of_options() -> None:
    distribution = make([1.0, 3.0, 5.0, 7.0, 6.0], spaces.MultiDiscrete([2, 3]), 0.1, [1, 0, 1, 0, 1])
    assert distribution.greedy_options().tolist() == [0, 4]
    assert distribution.value_of(torch.tensor([1, 3])) == 10.0
    assert distribution.mean_value() == 1.0 + 5.5
    assert make([1.0, 3.0, 5.0], spaces.Discrete(3), 0.1).mean_value() == 3.0


LOWEST = torch.finfo(torch.float32).min  # what blocks of networks give masked options


def test_options_that_a_block_has_masked_are_not_explored_and_not_averaged() -> None:
    values = [1.0, LOWEST, 5.0, LOWEST, 6.0]
    distribution = make(values, spaces.MultiDiscrete([2, 3]), 0.3)
    assert distribution.mean_value() == 1.0 + 5.5
    torch.testing.assert_close(distribution.probabilities()[0], torch.tensor([1.0, 0.0, 0.15, 0.0, 0.85]))
    masked = make(values, spaces.MultiDiscrete([2, 3]), 0.3, [1, 1, 0, 1, 1])
    assert masked.mean_value() == 1.0 + 6.0
    nothing = make([LOWEST, LOWEST], spaces.Discrete(2), 0.3)
    torch.testing.assert_close(nothing.probabilities()[0], torch.tensor([0.85, 0.15]))


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (2,)), spaces.MultiDiscrete([2, 3], start=[0, 1])])
def test_spaces_without_plain_options_are_refused(space: spaces.Space) -> None:
    with pytest.raises(TypeError, match=r"EpsilonGreedyProbabilityDistribution needs|start"):
        EpsilonGreedyProbabilityDistribution.required_logits_shape(space)


@pytest.mark.parametrize("by_block", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", SPACES)
def test_numpy_draws_what_torch_draws(name: str, masked: bool, by_block: bool) -> None:
    space = SPACES[name]
    kind = EpsilonGreedyProbabilityDistribution
    (size,) = kind.required_logits_shape(space)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, size))
    if by_block:
        values[rng.random(values.shape) < 0.5] = np.finfo(values.dtype).min
    mask = rng.integers(0, 2, (40, spaces.flatdim(space))).astype(bool) if masked else None
    config = [{"action_space": spaces.Space, "distribution": kind}]
    sampler = NumpySampler(DistributionMapper(spaces.Dict({"head": space}), config))
    allowed = {} if mask is None else {"head": mask}
    torch_mask = None if mask is None else torch.from_numpy(mask)
    distribution = kind(torch.from_numpy(values), space, mask=torch_mask)
    distribution.exploration = 0.5
    for deterministic in (True, False):
        sampling = Sampling(deterministic, 1.0, torch.Generator().manual_seed(3), 0.5)
        found = sampler.choose({"head": values}, allowed, sampling)
        assert found is not None
        expected = distribution.sample(torch.Generator().manual_seed(3))
        if deterministic:
            expected = distribution.deterministic_sample()
        assert found["head"].dtype == expected.numpy().dtype
        np.testing.assert_array_equal(found["head"], expected.numpy())
