"""Explained variance: numbers computed by hand, a slow reference, and several ranks as one batch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.modules import A2C, IMPALA, PPO, PolicySamples, learning_batch
from maze_pl.modules.on_policy import diagnostics
from maze_pl.modules.on_policy.diagnostics import explained_variances
from tests.modules.hand_computed import minibatch
from tests.modules.kit import train_table
from tests.modules.recurrent_plays import PLAYS

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def samples(return_: list[float], value: list[float], weight: list[float] | None = None) -> PolicySamples:
    n = len(return_)
    acts = minibatch([0] * n, [0.0] * n, return_, value, [0.0] * n)[0]
    weights = torch.tensor(weight or [1.0] * n)
    return replace(acts, value_weight=weights, weight=weights)


def numbers_of(part: PolicySamples) -> tuple[float, float]:
    """Explained and total sums of squares of the acts of one step key."""
    explained, total = explained_variances({0: part})[0]
    return float(explained), float(total)


def test_many_acts_and_few_have_the_same_explained_variance() -> None:
    generator = np.random.default_rng(0)
    returns, values = generator.normal(5.0, 2.0, 6000), generator.normal(4.0, 1.0, 6000)
    whole = numbers_of(samples(returns.tolist(), values.tolist()))
    deviations = [((x - x.mean()) ** 2).sum() for x in (returns, returns - values)]
    assert whole == pytest.approx((deviations[0] - deviations[1], deviations[0]), rel=1e-5)
    few = numbers_of(samples(returns[:60].tolist(), values[:60].tolist()))
    assert few == pytest.approx(numbers_of(padded(samples(returns[:60].tolist(), values[:60].tolist()), 5000)))


def padded(part: PolicySamples, n: int) -> PolicySamples:
    """The same acts, followed by others that do not count."""
    zeros = torch.zeros(n)
    longer = {name: torch.cat([getattr(part, name), zeros]) for name in ("value_weight", "return_", "old_value")}
    return replace(part, **longer)


def test_explained_variance_by_hand() -> None:
    # returns 1, 3, 5: mean 3, squares 4 + 0 + 4 = 8; errors 1, 0, -1: squares 2; 1 - 2 / 8
    assert numbers_of(samples([1.0, 3.0, 5.0], [0.0, 3.0, 6.0])) == pytest.approx((6.0, 8.0))


def test_a_constant_error_does_not_count() -> None:
    explained, total = numbers_of(samples([1.0, 3.0, 5.0], [11.0, 13.0, 15.0]))
    assert explained / total == pytest.approx(1.0)


def test_padding_and_open_acts_have_no_effect() -> None:
    part = samples([1.0, 3.0, 5.0, 1e6], [0.0, 3.0, 6.0, -1e6], [1.0, 1.0, 1.0, 0.0])
    assert numbers_of(part) == pytest.approx((6.0, 8.0))


def test_constant_returns_explain_nothing_and_do_not_count() -> None:
    third = 1.0 / 3.0
    found = explained_variances(
        {0: samples([third] * 7, [0.0] * 7), 1: samples([2.0], [0.0]), 2: samples([4.0], [0.0], [0.0])}
    )
    assert [tuple(map(float, variance)) for variance in found.values()] == [(0.0, 0.0)] * 3


def test_returns_that_are_constant_up_to_the_rounding_of_values_do_not_count() -> None:
    # standard deviation 8e-10, values 0.4
    assert numbers_of(samples([0.0, 1e-9, -1e-9], [0.5, 0.25, 0.5])) == (0.0, 0.0)
    assert numbers_of(samples([0.0, 1e-9, -1e-9, 0.0], [0.5, 0.25, 0.5, 1e9], [1.0, 1.0, 1.0, 0.0])) == (0.0, 0.0)
    # returns 0, 2e-6, -2e-6: squares 8e-12; errors -0.5, -0.5 + 2e-6, -0.5 - 2e-6: the same
    assert numbers_of(samples([0.0, 2e-6, -2e-6], [0.5, 0.5, 0.5])) == pytest.approx((0.0, 8e-12))
    # values as small as the returns: errors are 0
    assert numbers_of(samples([1e-9, -1e-9], [1e-9, -1e-9])) == pytest.approx((2e-18, 2e-18))


def test_large_returns_keep_their_variance() -> None:
    part = samples([1e6 + 1, 1e6 + 3, 1e6 + 5], [0.0, 3.0, 6.0])
    assert numbers_of(part) == pytest.approx((6.0, 8.0), rel=1e-6)


class Ranks:
    """Two threads that stand for ranks, and sum tensors with each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.barrier = threading.Barrier(2, timeout=20)
        self.tensors: list[torch.Tensor] = []
        monkeypatch.setattr(diagnostics, "world_size", lambda: 2)
        monkeypatch.setattr(diagnostics, "sum_over_ranks", self.sum)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        self.tensors.append(tensor)
        self.barrier.wait()
        total = self.tensors[-1] + self.tensors[-2]
        self.barrier.wait()
        return total

    def explained(self, parts: list[PolicySamples]) -> list[tuple[float, float]]:
        """Explained and total sums of squares of each rank."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(numbers_of, parts))


def test_ranks_are_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    returns, values = generator.normal(5.0, 2.0, 30), generator.normal(4.0, 1.0, 30)
    parts = [samples(returns[own].tolist(), values[own].tolist()) for own in (slice(0, 10), slice(10, 30))]
    found = Ranks(monkeypatch).explained(parts)
    together = sum(explained for explained, _ in found) / sum(total for _, total in found)
    assert together == pytest.approx(1.0 - np.var(returns - values) / np.var(returns), rel=1e-5)


def test_a_rank_with_constant_returns_is_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # returns 2, 2 and 1, 3: mean 2, squares 2; errors 1, -1 and 0, 0: squares 2
    parts = [samples([2.0, 2.0], [1.0, 3.0]), samples([1.0, 3.0], [1.0, 3.0])]
    assert Ranks(monkeypatch).explained(parts) == [(-2.0, 0.0), (2.0, 2.0)]
    constant = [samples([2.0, 2.0], [1.0, 3.0]), samples([2.0], [0.0])]
    assert Ranks(monkeypatch).explained(constant) == [(0.0, 0.0)] * 2
    rounded = [samples([1e-9, -1e-9], [0.0, 0.0]), samples([0.0], [0.5])]  # the values of the other rank are large
    assert Ranks(monkeypatch).explained(rounded) == [(0.0, 0.0)] * 2


def slow_explained_variance(rollouts: list[Any]) -> float:
    """By NumPy, over the learning batches of several rollouts, weighted by the variances of their returns."""
    errors = total = 0.0
    for acts in rollouts:
        counts = acts.value_weight.numpy() > 0
        returns, values = acts.return_.double().numpy()[counts], acts.old_value.double().numpy()[counts]
        errors += np.var(returns - values) * len(returns)
        total += np.var(returns) * len(returns)
    return 1.0 - errors / total


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA])
@pytest.mark.parametrize("kind", ["shared", "step"])
def test_explained_variance_of_an_epoch_is_that_of_a_slow_reference(
    kit: SimpleNamespace, algorithm: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"batch_size": 6} if algorithm is PPO else {}
    module = algorithm(actor_critic=kit.make_actor_critic(kit.team_spec, kind), lr=1e-2, capture="off", **options)
    made: list[Any] = []
    original = module.make_learning_batch

    def keep(*arguments: Any, **named: Any) -> Any:
        made.append(original(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(module, "make_learning_batch", keep)
    kit.fit(module, make=kit.make_team_rollout, length=2)
    for key in ("lead", "crew"):
        name = f"{module.topic}/explained_variance/substep_{key}"
        if kind == "shared" and key == "crew":  # the lead acts first in each row, which has one value
            assert name not in train_table(module)
            continue
        expected = slow_explained_variance([batch.acts[key] for batch in made])
        assert train_table(module)[name] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["several step keys and agents", "one critic for all sub-steps"])
def test_padding_of_sequences_does_not_count(name: str) -> None:
    play = PLAYS[name]
    rollout = next(play.rollouts(12))
    found = []
    for length in (2, 1000):
        batch = learning_batch(
            play.actor_critic,
            rollout,
            0.9,
            0.8,
            normalize_advantage=False,
            with_log_prob=False,
            sequence_length=length,
        )
        found.append(explained_variances(batch.acts))
    assert found[0].keys() == found[1].keys() != set()
    for key, variance in found[0].items():
        assert tuple(variance) == pytest.approx(tuple(found[1][key]), rel=1e-9)
