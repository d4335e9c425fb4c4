"""Actions from uniform numbers, against cumulative distributions that are written out slowly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl import distributions
from maze_pl.bundle.errors import ExportError
from maze_pl.bundle.head_outputs import head_outputs, magnitude_of
from maze_pl.distributions.probability_distribution import ProbabilityDistribution

BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
DISCRETE = {
    "categorical": (distributions.CategoricalProbabilityDistribution, spaces.Discrete(5, start=3)),
    "multi_categorical": (distributions.MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([3, 1, 4])),
    "equal_choices": (distributions.MultiCategoricalProbabilityDistribution, spaces.MultiDiscrete([[3, 3], [3, 3]])),
    "bernoulli": (distributions.BernoulliProbabilityDistribution, spaces.MultiBinary((2, 2))),
    "greedy_option": (distributions.EpsilonGreedyProbabilityDistribution, spaces.Discrete(4)),
    "greedy_choices": (distributions.EpsilonGreedyProbabilityDistribution, spaces.MultiDiscrete([2, 3])),
    "greedy_bits": (distributions.EpsilonGreedyProbabilityDistribution, spaces.MultiBinary(3)),
}
NORMAL = (
    distributions.DiagonalGaussianProbabilityDistribution,
    distributions.SquashedGaussianProbabilityDistribution,
)


def made(kind: Any, space: Any, n: int, mask: torch.Tensor | None = None) -> ProbabilityDistribution:
    shape = kind.required_logits_shape(space)
    logits = 2.0 * torch.randn((n, *shape), generator=torch.Generator().manual_seed(0))
    part: ProbabilityDistribution = kind(logits, space, 1.0, mask)
    part.exploration = 0.3
    return part


def slow_choice(probabilities: list[float], uniform: float) -> int:
    total = 0.0
    for option, probability in enumerate(probabilities):
        total += probability
        if uniform < total:
            return option
    return len(probabilities) - 1


def test_options_that_a_network_or_a_mask_rules_out_are_impossible() -> None:
    lowest = torch.finfo(torch.float32).min
    kind, space = DISCRETE["categorical"]
    logits = torch.tensor([[0.0, lowest, lowest, 0.0, 1.0]]).expand(2, -1)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 0, 0]])  # the second allows only what the network masks
    found = head_outputs("head", kind, space).parameters(kind(logits, space, 1.0, mask))
    half = -math.log(2)
    expected = [[half, lowest, lowest, half, lowest], [lowest, half, half, lowest, lowest]]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("name", DISCRETE)
def test_options_are_chosen_by_the_inverse_of_the_cumulative_distribution(name: str) -> None:
    kind, space = DISCRETE[name]
    part = made(kind, space, 50)
    outputs = head_outputs("head", kind, space)
    uniforms = torch.rand((50, outputs.n_uniforms), dtype=torch.float64)
    found = outputs.sample(part, uniforms)
    parameters = outputs.parameters(part)
    assert parameters.shape == (50, outputs.size)
    assert found.dtype == part.deterministic_sample().dtype and found.shape == part.deterministic_sample().shape
    first = np.cumsum((0, *outputs.choices))
    for row in range(50):
        wanted = []
        for number, size in enumerate(outputs.choices):
            options = parameters[row, first[number] : first[number] + size].double().exp().tolist()
            wanted.append(slow_choice(options, float(uniforms[row, number])))
        start = 3 if name == "categorical" else 0
        assert found[row].flatten().tolist() == [option + start for option in wanted]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0 - 2**-53])
def test_a_masked_option_is_never_chosen(uniform: float) -> None:
    kind, space = DISCRETE["categorical"]
    for allowed in range(5):
        mask = torch.zeros((20, 5))
        mask[:, allowed] = 1.0
        part = made(kind, space, 20, mask)
        found = head_outputs("head", kind, space).sample(part, torch.full((20, 1), uniform, dtype=torch.float64))
        assert found.tolist() == [allowed + 3] * 20


@pytest.mark.parametrize("kind", NORMAL)
def test_a_uniform_number_is_the_cumulative_probability_of_the_normal_number(kind: Any) -> None:
    part = made(kind, BOX, 30)
    uniforms = torch.rand((30, 2), dtype=torch.float64)
    action = head_outputs("head", kind, BOX).sample(part, uniforms)
    x = action.double()
    if kind is distributions.SquashedGaussianProbabilityDistribution:
        low = torch.from_numpy(BOX.low)
        x = torch.atanh(2.0 * (action - low).double() / torch.from_numpy(BOX.high - BOX.low) - 1.0)
    mean, log_std = part.logits.double().chunk(2, dim=-1)
    probability = 0.5 * (1.0 + torch.erf((x - mean) / log_std.exp() / math.sqrt(2.0)))
    inside = (x.abs() < 3.0).numpy()  # where tanh has not rounded x away
    np.testing.assert_allclose(probability.numpy()[inside], uniforms.numpy()[inside], atol=1e-4)


def test_half_of_a_beta_distribution_is_below_the_action_of_one_half() -> None:
    kind = distributions.BetaProbabilityDistribution
    part = made(kind, BOX, 3)
    action = head_outputs("head", kind, BOX).sample(part, torch.full((3, 2), 0.5, dtype=torch.float64))
    drawn = torch.stack([part.sample(torch.Generator().manual_seed(seed)) for seed in range(2000)])
    assert ((drawn < action).double().mean(dim=0) - 0.5).abs().max() < 0.05


def test_the_noise_of_a_deterministic_policy_has_its_scale() -> None:
    kind = distributions.DeterministicProbabilityDistribution
    part = made(kind, BOX, 4)
    outputs = head_outputs("head", kind, BOX)
    middle = outputs.sample(part, torch.full((4, 2), 0.5, dtype=torch.float64))
    torch.testing.assert_close(middle, part.deterministic_sample())
    part.exploration = 0.01
    above = outputs.sample(part, torch.full((4, 2), 0.8413447460685429, dtype=torch.float64))  # one standard deviation
    expected = torch.minimum(middle + 0.01 * torch.from_numpy((BOX.high - BOX.low) / 2), torch.from_numpy(BOX.high))
    torch.testing.assert_close(above, expected)


@pytest.mark.parametrize(
    "kind", [distributions.BetaProbabilityDistribution, distributions.DeterministicProbabilityDistribution, *NORMAL]
)
def test_a_box_without_dimensions_has_the_outputs_of_a_box_with_one_component(kind: Any) -> None:
    scalar = spaces.Box(0.0, 5.0, (), np.float32)
    vector = spaces.Box(0.0, 5.0, (1,), np.float32)
    found = head_outputs("head", kind, scalar)
    expected = head_outputs("head", kind, vector)
    assert (found.size, found.n_uniforms) == (expected.size, expected.n_uniforms)
    part, other = made(kind, scalar, 4), made(kind, vector, 4)
    uniforms = torch.rand((4, found.n_uniforms), dtype=torch.float64)
    assert found.sample(part, uniforms).shape == (4,)
    assert torch.equal(found.parameters(part), expected.parameters(other))
    assert torch.equal(found.sample(part, uniforms), expected.sample(other, uniforms).squeeze(-1))


def test_sizes_of_actions_are_those_of_their_larger_bounds() -> None:
    found = magnitude_of([0.0, -3.0, -np.inf, 0.1], [1e6, 2.0, 7.0, 0.2])
    assert found.tolist() == [1e6, 3.0, 7.0, 1.0]
    assert magnitude_of(-np.inf, np.inf).tolist() == 1.0


def test_a_custom_distribution_is_refused_by_name() -> None:
    class Own(distributions.CategoricalProbabilityDistribution):
        pass

    with pytest.raises(ExportError, match=r"action head 'colour': no bundle can sample from .*Own"):
        head_outputs("colour", Own, spaces.Discrete(2))
