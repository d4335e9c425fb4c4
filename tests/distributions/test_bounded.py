"""Beta and squashed Gaussian distributions: against textbooks, at the borders of their boxes, and in training."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import maze_pl
from maze_pl.__main__ import main
from maze_pl.core.spaces import environment_action
from maze_pl.distributions import (
    BetaProbabilityDistribution,
    DeterministicProbabilityDistribution,
    DictProbabilityDistribution,
    DistributionMapper,
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.modules.optimization.capture import GradientTracer, run_trace
from tests.operations import operations_of

BETA, SQUASHED = BetaProbabilityDistribution, SquashedGaussianProbabilityDistribution
KINDS = [BETA, SQUASHED]
BOXES = {
    "symmetric": (-1.0, 1.0),
    "from_zero": (0.0, 1.0),
    "to_zero": (-4.0, 0.0),
    "far_away": (9.0, 10.0),
    "uneven": (-0.1, 0.3),
    "tiny": (-1e-6, 1e-6),
    "huge": (-1e6, 3e6),
    "lopsided": (-1e-3, 1e3),
    "largest": (-1e38, 1e38),
}
LOGITS = list(itertools.product([-2.0, 0.0, 1.5], [-1.5, 0.3, 2.0]))


def box(name: str, shape: tuple[int, ...] = (1,), dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(*BOXES[name], shape, dtype)


def unit_log_density(kind: type, first: float, second: float) -> Any:
    """Log-density of the fraction of the width, from its two logarithms log(a) and log(1 - a)."""
    if kind is BETA:
        alpha, other = (1 + math.log1p(math.exp(logit)) for logit in (first, second))
        normaliser = float(mpmath.log(mpmath.beta(alpha, other)))
        return lambda low, high: (alpha - 1) * low + (other - 1) * high - normaliser
    normaliser = second + math.log(2 * math.pi) / 2 + math.log(2)
    return lambda low, high: -((((low - high) / 2 - first) / math.exp(second)) ** 2) / 2 - normaliser - low - high


def log_fractions(action: np.ndarray, space: spaces.Box) -> tuple[Any, Any]:
    """Logarithms of the distances from both borders, relative to the width, in double precision."""
    low, high = (np.float64(np.float32(bound)) for bound in (space.low[0], space.high[0]))
    exact = action.astype(np.float64)
    return np.log((exact - low) / (high - low)), np.log((high - exact) / (high - low))


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_is_exact_inside_and_next_to_the_borders_in_single_precision(kind: Any, name: str) -> None:
    space = box(name)
    low, high = space.low[0], space.high[0]
    next_to = [np.nextafter(low, high), np.nextafter(high, low)]
    next_to += [np.nextafter(next_to[0], high), np.nextafter(next_to[1], low)]
    if 0 in (low, high):  # fractions of numbers without full precision may be 0
        next_to[0 if low == 0 else 1] = (low + high) * np.finfo(np.float32).tiny
        next_to[2 if low == 0 else 3] = (low + high) * np.float32(1e-30)
    inside = low + (high - low) * np.float32([1e-6, 1e-3, 0.2, 0.5, 0.77, 0.999])
    action = np.array([*next_to, *inside], np.float32)
    assert ((low < action) & (action < high)).all()
    for first, second in LOGITS:
        expected = unit_log_density(kind, first, second)(*log_fractions(action, space))
        expected = expected - np.log(np.float64(high) - np.float64(low))
        logits = torch.tensor([first, second]).expand(len(action), 2)
        found = kind(logits, space).log_prob(torch.from_numpy(action)[:, None])
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("kind", KINDS)
def test_log_prob_on_a_border_is_that_half_a_rounding_step_inside(kind: Any, name: str, dtype: torch.dtype) -> None:
    space = box(name)
    border = torch.tensor([[space.low[0]], [space.high[0]]], dtype=dtype)
    inner = torch.nextafter(border, border.flip(0)).double() - border.double()  # next to it
    width = float(space.high[0]) - float(space.low[0])
    step = np.maximum(inner.abs().numpy()[:, 0] / width, torch.finfo(dtype).eps / 4) / 2
    logits = torch.tensor([[0.5, -0.4]], dtype=dtype).requires_grad_()
    log_prob = kind(logits.expand(2, 2), space).log_prob(border)
    density = unit_log_density(kind, 0.5, -0.4)
    expected = [density(math.log(step[0]), math.log1p(-step[0])), density(math.log1p(-step[1]), math.log(step[1]))]
    np.testing.assert_allclose(log_prob.detach().numpy(), np.array(expected) - math.log(width), rtol=1e-5)
    (gradient,) = torch.autograd.grad(log_prob.sum(), logits)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("mean", "log_std"), list(itertools.product([-8.0, -2.2, 0.0, 0.7, 3.1], [-6.0, -1.0, 0.4, 3.0]))
)
def test_entropy_of_a_squashed_gaussian_is_that_of_numeric_integration(mean: float, log_std: float) -> None:
    noise = np.linspace(-12, 12, 400_001)
    x = mean + math.exp(log_std) * noise
    slope = 2 * math.log(2) - 2 * np.logaddexp(x, -x)
    mean_slope = np.trapezoid(slope * np.exp(-0.5 * noise**2), noise) / math.sqrt(2 * math.pi)
    expected = log_std + math.log(2 * math.pi * math.e) / 2 + mean_slope + math.log(3.0)
    for dtype, tolerance in ((torch.float64, 5e-6), (torch.float32, 5e-5)):
        logits = torch.tensor([mean, log_std], dtype=dtype)
        found = SQUASHED(logits, spaces.Box(-2.0, 4.0, (1,))).entropy().item()
        assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("first", "second"), [*LOGITS, (6.0, 5.0), (-30.0, -30.0), (200.0, 300.0)])
def test_entropy_of_a_beta_distribution_is_that_of_numeric_integration(first: float, second: float) -> None:
    alpha, other = (1 + float(np.logaddexp(0, logit)) for logit in (first, second))
    log_normaliser = mpmath.log(mpmath.beta(alpha, other))

    def integrand(a: Any) -> Any:
        log_density = (alpha - 1) * mpmath.log(a) + (other - 1) * mpmath.log1p(-a) - log_normaliser
        return -mpmath.exp(log_density) * log_density

    mode = (alpha - 1) / (alpha + other - 2)
    expected = float(mpmath.quad(integrand, [0, mode / 2, mode, (1 + mode) / 2, 1])) + math.log(6.0)
    found = BETA(torch.tensor([first, second]), spaces.Box(-2.0, 4.0, (1,))).entropy().item()
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("pair", [((-2.0, -1.5), (1.5, 0.3)), ((0.0, 2.0), (1.5, 2.0)), ((1.5, -1.5), (0.0, 0.3))])
@pytest.mark.parametrize("kind", KINDS)
def test_kl_is_that_of_numeric_integration(kind: Any, pair: Any) -> None:
    first, second = (unit_log_density(kind, *logits) for logits in pair)

    def integrand(x: Any) -> Any:  # x is the logarithm of the odds a / (1 - a), and da = a (1 - a) dx
        low, high = -mpmath.log1p(mpmath.exp(-x)), -mpmath.log1p(mpmath.exp(x))
        log_density = first(low, high)
        return mpmath.exp(log_density + low + high) * (log_density - second(low, high))

    expected = float(mpmath.quad(integrand, [-60, -20, -5, -2, 0, 2, 5, 20, 60]))
    found = [kind(torch.tensor(logits), box("lopsided")) for logits in pair]
    assert found[0].kl(found[1]).item() == pytest.approx(expected, rel=1e-4)


def test_entropy_of_a_squashed_gaussian_copies_no_numbers_from_the_host() -> None:
    logits = torch.zeros(3, 2)
    for _ in range(2):
        operations = operations_of(SQUASHED(logits, box("uneven")).entropy)
    assert not any("lift" in name or "copy" in name for name in operations)


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_is_a_mean_over_samples(kind: Any) -> None:
    space, n = box("uneven", (2,)), 200_000
    logits = torch.tensor([0.4, -0.3, 0.2, -1.0])
    one, many = kind(logits, space), kind(logits.expand(n, 4), space)
    sample = many.sample(torch.Generator().manual_seed(0))
    assert -many.log_prob(sample).mean().item() == pytest.approx(one.entropy().item(), abs=0.01)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 4.0])
@pytest.mark.parametrize("name", ["symmetric", "from_zero", "far_away"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_distributed_as_they_should_be(kind: Any, name: str, temperature: float) -> None:
    space, n = box(name), 5_000
    low, width = float(space.low[0]), float(space.high[0]) - float(space.low[0])
    logits = torch.tensor([0.7, -0.4])
    sample = kind(logits.expand(n, 2), space, temperature).sample(torch.Generator().manual_seed(7))
    fraction = (sample[:, 0].double().numpy() - low) / width
    if kind is BETA:
        alpha, other = (1 + math.log1p(math.exp(logit)) / temperature for logit in (0.7, -0.4))
        total = alpha + other
        mean, deviation = alpha / total, math.sqrt(alpha * other / (total + 1)) / total
        assert fraction.mean() == pytest.approx(mean, abs=4 * deviation / math.sqrt(n))
        assert fraction.std() == pytest.approx(deviation, rel=0.05)
        share = partial(mpmath.betainc, alpha, other, 0, regularized=True)
    else:
        share = partial(mpmath.ncdf, mu=0.7, sigma=math.exp(-0.4) * math.sqrt(temperature))
        fraction = np.arctanh(2 * fraction - 1)
    ranks = np.arange(25, n, 50)
    expected = [float(share(value)) for value in np.sort(fraction)[ranks]]
    assert np.abs(ranks / n - expected).max() < 1.63 / math.sqrt(n)  # Kolmogorov and Smirnov's, at 1 percent


def test_the_density_of_a_beta_at_a_temperature_is_a_power_of_that_without() -> None:
    space = spaces.Box(0.0, 1.0, (1,))
    action = torch.linspace(0.01, 0.99, 9)[:, None]
    logits = torch.tensor([1.0, -0.5]).expand(9, 2)
    plain, warm = (BETA(logits, space, temperature=t).log_prob(action) for t in (1.0, 2.5))
    difference = plain / 2.5 - warm
    torch.testing.assert_close(difference, difference[:1].expand(9))


def test_deterministic_actions_are_the_mode_of_a_beta_and_the_median_of_a_squashed_gaussian() -> None:
    space = spaces.Box(-2.0, 4.0, (3,))
    first, second = torch.tensor([0.7, -90.0, 3.0]), torch.tensor([-0.4, -90.0, -90.0])
    alpha, other = (1 + np.logaddexp(0, logit) for logit in (0.7, -0.4))
    mode = BETA(torch.cat([first, second]), space).deterministic_sample()
    torch.testing.assert_close(mode, torch.tensor([-2 + 6 * (alpha - 1) / (alpha + other - 2), 1.0, 4.0]).float())
    median = SQUASHED(torch.cat([first, second]), space).deterministic_sample()
    torch.testing.assert_close(median, 1.0 + 3.0 * torch.tanh(first))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", ["symmetric", "from_zero", "to_zero", "far_away", "uneven", "lopsided"])
@pytest.mark.parametrize("kind", KINDS)
def test_actions_never_leave_the_box_and_have_finite_log_probs_and_gradients(kind: Any, name: str, dtype: Any) -> None:
    space, n = box(name, (3,), dtype), 2_000
    scale = torch.tensor([0.1, 3.0, 30.0, 1e4])[:, None, None]
    random = torch.randn(4, n, 6, generator=torch.Generator().manual_seed(0))
    if kind is SQUASHED:
        random[..., 3:] /= scale  # deviations of a reasonable size, anywhere
    logits = (scale * random).requires_grad_()
    distribution = kind(logits, space)
    for action in (distribution.sample(torch.Generator().manual_seed(1)), distribution.deterministic_sample()):
        stored = action.detach().numpy()
        assert stored.dtype == np.float32
        assert (stored.astype(np.float64) >= space.low).all()
        assert (stored.astype(np.float64) <= space.high).all()
        assert np.array_equal(environment_action(space, stored), stored.astype(space.dtype))
        assert space.contains(environment_action(space, stored[0, 0]).astype(dtype))
        for given in (action, action.detach().clone()):
            log_prob, entropy = distribution.log_prob_and_entropy(given)
            (gradient,) = torch.autograd.grad((log_prob + entropy).sum(), logits, retain_graph=True)
            assert torch.isfinite(log_prob).all()
            assert torch.isfinite(entropy).all()
            assert torch.isfinite(gradient).all()


def test_the_log_prob_of_what_was_just_sampled_has_the_gradient_of_its_definition_even_on_the_border() -> None:
    mean = torch.tensor([0.3, 12.0, -20.0], requires_grad=True)
    log_std = torch.tensor([-0.5, -2.0, 0.2], requires_grad=True)
    distribution = SQUASHED(torch.cat([mean, log_std]), spaces.Box(-1.0, 1.0, (3,)))
    action = distribution.sample(torch.Generator().manual_seed(0))
    assert action[1].item() == 1.0
    noise = torch.randn(3, generator=torch.Generator().manual_seed(0))
    x = mean.detach().double() + log_std.detach().double().exp() * noise
    # log_prob = -noise^2 / 2 - log_std - log(2 pi) / 2 - 2 log sech(x), whose last term is all that depends on the mean
    expected = (
        -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) + 2 * (x.abs() + torch.log1p(torch.exp(-2 * x.abs())))
    )
    expected = (expected - 2 * math.log(2)).sum()
    found = distribution.log_prob(action)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    by_mean, by_log_std = torch.autograd.grad(found, (mean, log_std))
    torch.testing.assert_close(by_mean, 2 * torch.tanh(x).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_log_std, (2 * torch.tanh(x) * (x - mean.detach()) - 1).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_of_acting_are_those_of_learning(kind: Any) -> None:
    space = box("symmetric", (2,))
    logits = torch.tensor([[9.0, -7.0, 0.5, 0.0]]).expand(500, 4)
    with torch.inference_mode():
        acting = kind(logits, space)
        action = acting.sample(torch.Generator().manual_seed(0))
        recorded = acting.log_prob(action).clone()
    learning = kind(logits.clone().requires_grad_(), space).log_prob(action.clone())
    assert torch.equal(recorded.clone(), learning.detach())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_samples_and_of_everything_are_those_of_differences(kind: Any) -> None:
    space = spaces.Box(np.float32([-1, 5]), np.float32([2, 5.5]), dtype=np.float32)
    logits = torch.tensor([[0.3, -1.0, -0.5, 0.4]], dtype=torch.float64, requires_grad=True)

    def everything(given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = kind(given, space)
        action = torch.tensor([[0.1, 5.2]], dtype=torch.float64)
        return *made.log_prob_and_entropy(action), made.deterministic_sample()

    assert torch.autograd.gradcheck(everything, (logits,))
    if kind is SQUASHED:
        draw = lambda given: kind(given, space).sample(torch.Generator().manual_seed(0))  # noqa: E731
        assert torch.autograd.gradcheck(draw, (logits,))
    else:  # rejected proposals change from one side to the other, so the mean of many is compared with its derivative
        many = logits.detach().expand(100_000, 4).requires_grad_()
        sample = kind(many, space).sample(torch.Generator().manual_seed(0))
        (gradient,) = torch.autograd.grad(sample.sum(), many)
        mean = lambda given: _beta_mean(given, space)  # noqa: E731
        expected = torch.autograd.functional.jacobian(mean, logits.detach()[0]).sum(0)
        torch.testing.assert_close(gradient.mean(0), expected, rtol=0.02, atol=2e-3)


def _beta_mean(logits: torch.Tensor, space: spaces.Box) -> torch.Tensor:
    alpha, other = (1 + nn.functional.softplus(logits)).chunk(2)
    low, high = torch.from_numpy(space.low).double(), torch.from_numpy(space.high).double()
    return low + (high - low) * alpha / (alpha + other)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_with_bounded_distributions_can_be_replayed(kind: Any) -> None:
    torch.manual_seed(0)
    space, net = box("uneven", (2, 2)), nn.Linear(3, 8)
    parameters = list(net.parameters())

    def loss(inputs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        found = kind(net(inputs[0]), space)
        log_prob, entropy = found.log_prob_and_entropy(inputs[1])
        kl = kind(inputs[2], space).kl(found).mean()
        return (log_prob * inputs[0][:, 0]).mean() + entropy.mean() + kl, [log_prob.mean(), entropy.mean(), kl]

    def minibatch() -> list[torch.Tensor]:
        return [torch.randn(6, 3), -0.1 + 0.4 * torch.rand(6, 2, 2), torch.randn(6, 8)]

    tracer, target = GradientTracer(net), torch.empty(sum(item.numel() for item in parameters))
    for inputs in (minibatch(), minibatch()):
        record = tracer.trace("key", loss, parameters, inputs, target, check=False)
        assert record is not None, tracer.refused
        found, _ = run_trace(record, [*(item.detach() for item in parameters), *inputs, target])
        expected = torch.autograd.grad(loss(inputs)[0], parameters)
        torch.testing.assert_close(found, torch.cat([item.flatten() for item in expected]))


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_close_to_double(kind: Any) -> None:
    space = box("uneven", (3,))
    generator = torch.Generator().manual_seed(0)
    logits = 0.4 * torch.randn(200, 6, generator=generator)
    action = kind(logits, space).sample(generator)
    for single, double in zip(
        kind(logits, space).log_prob_and_entropy(action),
        kind(logits.double(), space).log_prob_and_entropy(action.double()),
        strict=True,
    ):
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


EQUAL = "these are equal in single precision, so rescale"
TWO_BOUNDS = "give each component two finite bounds$"


@pytest.mark.parametrize("kind", [*KINDS, DeterministicProbabilityDistribution])
@pytest.mark.parametrize(
    ("space", "remedy"),
    [
        (spaces.Box(0.0, np.inf, (2,)), rf": component \[0\] has the bounds \[0.0, inf\]; {TWO_BOUNDS}"),
        (spaces.Box(np.float32([-1, -np.inf]), np.float32([1, 1])), rf"\[1\] has .* \[-inf, 1.0\]; {TWO_BOUNDS}"),
        (spaces.Box(-3e38, 3e38, ()), r": it has the bounds .*; these are too far apart in single precision, so resc"),
        (spaces.Box(1.0, 1.0, (1,)), r": component \[0\] has the bounds \[1.0, 1.0\]; remove it from the action"),
        (spaces.Box(np.float32([0, 7]), np.float32([1, 7])), r": component \[1\] has the bounds \[7.0, 7.0\]; remove"),
        (spaces.Box(1.0, 1.0 + 1e-9, (1, 1), np.float64), rf": component \[0, 0\] has .* 1.000000001\]; {EQUAL}"),
        (spaces.Box(0, 5, (2,), np.int64), r"Box\(0, 5, \(2,\), int64\)$"),
        (spaces.Discrete(2), r"Discrete\(2\)$"),
    ],
)
def test_boxes_that_actions_cannot_fill_are_refused_with_a_remedy(
    kind: Any, space: spaces.Space[Any], remedy: str
) -> None:
    fault = rf"{kind.__name__} needs a Box of floats with finite bounds, got .*{remedy}"
    with pytest.raises(TypeError, match=f"^{fault}"):
        kind(torch.zeros(4), space)
    config = [{"action_head": "steer", "distribution": f"{kind.__module__}.{kind.__name__}"}]
    with pytest.raises(TypeError, match=f"action head 'steer'.*{fault}"):
        DistributionMapper(spaces.Dict({"steer": space}), config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_without_bounds_is_referred_to_a_gaussian(kind: Any) -> None:
    space = spaces.Box(-np.inf, np.inf, (2,))
    needed = r"needs a Box of floats with finite bounds, got Box\(-inf, inf, \(2,\), float32\)"
    with pytest.raises(TypeError, match=f"{needed}; for one without bounds there is DiagonalGaussian"):
        kind(torch.zeros(4), space)
    with pytest.raises(TypeError, match=f"^DeterministicProbabilityDistribution {needed}$"):
        DeterministicProbabilityDistribution.required_logits_shape(space)


def test_bounded_heads_join_others_in_one_distribution() -> None:
    heads = spaces.Dict({"throttle": box("from_zero"), "steer": box("symmetric", (2,)), "gear": spaces.Discrete(3)})
    mapper = DistributionMapper(
        heads,
        [
            {"action_space": "gymnasium.spaces.Box", "distribution": BETA},
            {"action_head": "steer", "distribution": SQUASHED},
        ],
    )
    assert mapper.logits_shapes == {"throttle": (2,), "steer": (4,), "gear": (3,)}
    logits = {head: torch.zeros(5, *shape) for head, shape in mapper.logits_shapes.items()}
    joint = mapper.logits_dict_to_distribution(logits)
    assert isinstance(joint, DictProbabilityDistribution)
    action = joint.sample(torch.Generator().manual_seed(0))
    assert heads.contains({head: value[0].numpy() for head, value in action.items()})
    parts = [part.log_prob_and_entropy(action[head]) for head, part in joint.distributions.items()]
    torch.testing.assert_close(joint.log_prob(action), sum(log_prob for log_prob, _ in parts))
    torch.testing.assert_close(joint.entropy(), sum(entropy for _, entropy in parts))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ppo_learns_with_bounded_actions(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    heads = str([{"action_space": "gymnasium.spaces.Box", "distribution": f"{kind.__module__}.{kind.__name__}"}])
    small = ["--data.n_rollout_steps", "100", "--data.epoch_length", "3", "--trainer.max_epochs", "1"]
    small += ["--model.n_optimization_epochs", "3"]
    small += ["--data.evaluators", '{"eval": {"n_episodes": 1, "deterministic": true}}']
    mapped = ["--model.networks.init_args.distribution_mapper_config", heads]
    assert main(["fit", "--config", "ppo_pendulum", *small, *mapped, "--run_dir", "run"]) == 0
    agent = maze_pl.load("run")
    generator = torch.Generator().manual_seed(0)
    for observation in np.random.default_rng(0).uniform(-8, 8, (20, 3)).astype(np.float32):
        action = agent.act({"observation": observation}, deterministic=False, generator=generator)
        assert -2.0 <= action["action"].item() <= 2.0


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_a_box_stay_where_they_are_as_graphs_of_a_device_read_them(kind: Any) -> None:
    def address() -> int:
        return int(kind(torch.zeros(2), box("uneven"))._bound.data_ptr())

    first = address()
    for high in range(5, 105):
        kind(torch.zeros(2), spaces.Box(-2.0, high, (1,)))
    assert address() == first
