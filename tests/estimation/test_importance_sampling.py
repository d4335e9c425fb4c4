"""Estimators against hand-computed cases and slow references."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from maze_pl.estimation import WeightedEpisodes
from maze_pl.estimation.importance_sampling import (
    DOUBLY_ROBUST,
    WEIGHTING,
    doubly_robust,
    effective_sample_size,
    importance_sampling,
    per_decision,
    weighted_doubly_robust,
    weighted_importance_sampling,
    weighted_per_decision,
)
from maze_pl.estimation.weighted_episodes import ModelValues

ONCE = np.ones((1, 2))
# two episodes of two acts and of one act, gamma 0.5
HAND = WeightedEpisodes(
    reward=np.array([[1.0, 2.0], [3.0, 0.0]]),
    discount=np.array([[1.0, 0.5], [1.0, 0.0]]),
    log_ratio=np.log(np.array([[2.0, 0.5], [0.5, 1.0]])),
    values=ModelValues(
        of_acts=np.array([[2.0, 1.0], [4.0, 0.0]]),
        before=np.array([[3.0, 2.0], [5.0, 0.0]]),
        tail=np.array([0.0, 0.25]),
    ),
)


def test_hand_computed_estimates() -> None:
    # weights: 2, 1 and 0.5, 0.5; returns 1 + 0.5 * 2 = 2 and 3
    assert importance_sampling(HAND, ONCE) == pytest.approx([(1 * 2 + 0.5 * 3) / 2])
    assert weighted_importance_sampling(HAND, ONCE) == pytest.approx([(1 * 2 + 0.5 * 3) / 1.5])
    assert per_decision(HAND, ONCE) == pytest.approx([((2 * 1 + 1 * 0.5 * 2) + 0.5 * 3) / 2])
    assert weighted_per_decision(HAND, ONCE) == pytest.approx([(2 * 1 + 0.5 * 3) / 2.5 + (1 * 0.5 * 2) / 1.5])
    first = (2 * (1 - 2) + 3) + 0.5 * (1 * (2 - 1) + 2 * 2)
    second = (0.5 * (3 - 4) + 5) + 0.5 * 0.25
    assert doubly_robust(HAND, ONCE) == pytest.approx([(first + second) / 2])
    corrections = (2 * (1 - 2) + 0.5 * (3 - 4)) / 2.5 + (1 * 0.5 * (2 - 1)) / 1.5
    expected = (3 + 5) / 2 + (2 * 0.5 * 2) / 2.5
    assert weighted_doubly_robust(HAND, ONCE) == pytest.approx([corrections + expected + 0.5 * 0.25 / 1.5])
    assert effective_sample_size(HAND) == pytest.approx(1.5**2 / (1 + 0.25))


def _random(seed: int) -> WeightedEpisodes:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 6, 7)
    exists = np.arange(5) < lengths[:, np.newaxis]

    def table(values: np.ndarray) -> np.ndarray:
        return np.where(exists, values, 0.0)

    log_ratio = table(generator.normal(size=(7, 5)))
    log_ratio[generator.integers(7), 0] = -np.inf
    return WeightedEpisodes(
        reward=table(generator.normal(size=(7, 5))),
        discount=table(np.broadcast_to(0.9 ** np.arange(5), (7, 5))),
        log_ratio=log_ratio,
        values=ModelValues(
            table(generator.normal(size=(7, 5))), table(generator.normal(size=(7, 5))), generator.normal(size=7)
        ),
    )


def _slow(name: str, episodes: WeightedEpisodes, sample: list[int]) -> float:
    """The estimate from a list of episodes, by loops over acts."""
    assert episodes.values is not None
    n_acts = episodes.reward.shape[1]
    after = {}
    for e in sample:
        weight = 1.0
        for i in range(n_acts):
            weight *= math.exp(episodes.log_ratio[e, i])
            after[e, i] = weight
    before = {(e, i): after[e, i - 1] if i else 1.0 for e in sample for i in range(n_acts)}
    last = n_acts - 1

    def share(weights: dict[tuple[int, int], float], e: int, i: int) -> float:
        if not name.startswith("weighted"):
            return weights[e, i] / len(sample)
        return weights[e, i] / sum(weights[other, i] for other in sample)

    total = 0.0
    for e in sample:
        discounted = [float(episodes.discount[e, i] * episodes.reward[e, i]) for i in range(n_acts)]
        if name.endswith("importance_sampling"):
            total += share(after, e, last) * sum(discounted)
        elif name.endswith("per_decision"):
            total += sum(share(after, e, i) * discounted[i] for i in range(n_acts))
        else:
            for i in range(n_acts):
                rest = episodes.reward[e, i] - episodes.values.of_acts[e, i]
                total += episodes.discount[e, i] * share(after, e, i) * rest
                total += episodes.discount[e, i] * share(before, e, i) * episodes.values.before[e, i]
            total += share(after, e, last) * episodes.values.tail[e]
    return total


@pytest.mark.parametrize("name", [*WEIGHTING, *DOUBLY_ROBUST])
@pytest.mark.parametrize("seed", range(5))
def test_estimates_equal_those_of_loops_for_every_sample(name: str, seed: int) -> None:
    episodes = _random(seed)
    counts = np.random.default_rng(seed).multinomial(7, np.full(7, 1 / 7), 3).astype(float)
    found = {**WEIGHTING, **DOUBLY_ROBUST}[name](episodes, counts)
    samples = [np.repeat(np.arange(7), row.astype(int)).tolist() for row in counts]
    expected = [_slow_of_copies(name, episodes, sample) for sample in samples]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def _slow_of_copies(name: str, episodes: WeightedEpisodes, sample: list[int]) -> float:
    """The slow estimate for a sample in which episodes occur several times: each one is another episode."""
    assert episodes.values is not None
    copies = WeightedEpisodes(
        episodes.reward[sample],
        episodes.discount[sample],
        episodes.log_ratio[sample],
        ModelValues(episodes.values.of_acts[sample], episodes.values.before[sample], episodes.values.tail[sample]),
    )
    return _slow(name, copies, list(range(len(sample))))


def test_huge_weights_leave_normalised_estimates_finite() -> None:
    episodes = WeightedEpisodes(np.array([[1.0], [2.0]]), np.ones((2, 1)), np.array([[2000.0], [1990.0]]))
    assert np.isinf(importance_sampling(episodes, ONCE)).all()
    expected = (1 + 2 * math.exp(-10)) / (1 + math.exp(-10))
    assert weighted_importance_sampling(episodes, ONCE) == pytest.approx([expected])
    assert weighted_per_decision(episodes, ONCE) == pytest.approx([expected])
    assert effective_sample_size(episodes) == pytest.approx((1 + math.exp(-10)) ** 2 / (1 + math.exp(-20)))


def _weighted_mean(log_weights: np.ndarray, values: np.ndarray, counts: np.ndarray) -> float:
    """Slow: in numbers of any exponent."""
    weights = [int(n) * Decimal(float(log_weight)).exp() for n, log_weight in zip(counts, log_weights, strict=True)]
    total = sum(weight * Decimal(float(value)) for weight, value in zip(weights, values, strict=True))
    return float(total / sum(weights))


def _weighted_by_decimals(name: str, episodes: WeightedEpisodes, counts: np.ndarray) -> float:
    assert episodes.values is not None
    log_weights = np.cumsum(episodes.log_ratio, 1)
    last = log_weights[:, -1]
    discounted = episodes.discount * episodes.reward
    if name == "weighted_importance_sampling":
        return _weighted_mean(last, discounted.sum(1), counts)
    columns = range(log_weights.shape[1])
    if name == "weighted_per_decision":
        return sum(_weighted_mean(log_weights[:, i], discounted[:, i], counts) for i in columns)
    before = np.concatenate([np.zeros((len(last), 1)), log_weights[:, :-1]], 1)
    rest = episodes.discount * (episodes.reward - episodes.values.of_acts)
    expected = episodes.discount * episodes.values.before
    total = _weighted_mean(last, episodes.values.tail, counts)
    for i in columns:
        total += _weighted_mean(log_weights[:, i], rest[:, i], counts)
        total += _weighted_mean(before[:, i], expected[:, i], counts)
    return total


@pytest.mark.parametrize("name", ["weighted_importance_sampling", "weighted_per_decision", "weighted_doubly_robust"])
@pytest.mark.parametrize("mean", [-20.0, 20.0])
@pytest.mark.parametrize("spread", [0.1, 30.0])
def test_weights_of_any_size_have_estimates_in_every_sample(name: str, mean: float, spread: float) -> None:
    generator = np.random.default_rng(3)
    shape = (6, 80)
    episodes = WeightedEpisodes(
        reward=generator.normal(1.0, 3.0, shape),
        discount=np.broadcast_to(0.99 ** np.arange(80), shape),
        log_ratio=generator.normal(mean, spread, shape) + spread * np.arange(6)[:, np.newaxis],
        values=ModelValues(generator.normal(size=shape), generator.normal(size=shape), generator.normal(size=6)),
    )
    # The last episode has the largest weight; samples without it have others.
    counts = np.array([[1, 1, 1, 1, 1, 1], [2, 2, 2, 0, 0, 0], [0, 3, 0, 2, 1, 0], [6, 0, 0, 0, 0, 0.0]])
    found = {**WEIGHTING, **DOUBLY_ROBUST}[name](episodes, counts)
    expected = [_weighted_by_decimals(name, episodes, row) for row in counts]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_sample_whose_episodes_have_no_weight_has_no_estimate_and_others_have_theirs() -> None:
    log_ratio = np.array([[0.0], [-np.inf], [-2000.0]])
    episodes = WeightedEpisodes(np.array([[1.0], [2.0], [3.0]]), np.ones((3, 1)), log_ratio)
    counts = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    for estimator in (weighted_importance_sampling, weighted_per_decision):
        assert estimator(episodes, counts) == pytest.approx([1.0, np.nan, 3.0, 1.0], nan_ok=True)


def test_without_any_weight_there_is_no_weighted_estimate() -> None:
    episodes = WeightedEpisodes(np.ones((2, 1)), np.ones((2, 1)), np.full((2, 1), -np.inf))
    assert importance_sampling(episodes, ONCE).tolist() == [0.0]
    assert np.isnan(weighted_importance_sampling(episodes, ONCE)).all()
    assert np.isnan(weighted_per_decision(episodes, ONCE)).all()
    assert effective_sample_size(episodes) == 0.0


def test_doubly_robust_estimators_need_a_model() -> None:
    episodes = WeightedEpisodes(np.ones((2, 1)), np.ones((2, 1)), np.zeros((2, 1)))
    for estimator in DOUBLY_ROBUST.values():
        with pytest.raises(ValueError, match="need the values of a model"):
            estimator(episodes, ONCE)
