"""Values that fitted Q evaluation finds, and their limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.actor_id import ActorID
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.estimation import estimate
from maze_pl.estimation.fitted_q import FittedQ, FittedQOptions, value_limits
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.records.record_files import SpacesTrajectoryRecord

PLACE = spaces.Dict(place=spaces.Box(-1e6, 1e6, (1,), np.float32))
STEP = StepSpec(PLACE, spaces.Dict(choice=spaces.Discrete(2)))


def record_of(number: int, acts: list[tuple[Any, int, float, float]], last: float | None) -> SpacesTrajectoryRecord:
    """An episode of acts (step key, time, place, reward); `last` is the place in which it is truncated, if it is."""
    spec = Spec({0: STEP, 1: STEP})
    recorded = [
        (key, 0, time, reward, False, {"place": [place]}, {"choice": time % 2}) for key, time, place, reward in acts
    ]
    return SpacesTrajectoryRecord.of_acts(
        f"episode {number}",
        spec,
        recorded,
        terminated=last is None,
        truncated=last is not None,
        last_env_time=acts[-1][1] + 1,
        last_actor=None if last is None else ActorID(0, 0),
        last_observation={} if last is None else {"place": np.array([last], np.float32)},
    )


def policy_of(spec: Spec) -> RandomPolicy:
    policy = RandomPolicy({key: step.action_space for key, step in spec.steps.items()})
    policy.spec = spec
    return policy


def rising(last: float | None) -> list[SpacesTrajectoryRecord]:
    """Episodes of one environment step, in which the reward is the place, between 0 and 1."""
    records = []
    for number, place in enumerate(np.linspace(0, 1, 12).tolist()):
        records.append(record_of(number, [(0, 0, place, 0.0), (1, 0, place, place)], last))
    return records


def test_the_limits_are_those_of_acts_that_all_have_the_extreme_reward_of_their_sub_step() -> None:
    generator = np.random.default_rng(1)
    records = []
    for number in range(5):
        acts = []
        for time in range(4):
            for _ in range(int(generator.integers(1, 4))):
                key = int(generator.integers(2))
                acts.append((key, 2 * time, 0.0, float(generator.normal())))
        records.append(record_of(number, acts, None))
    gamma = 0.8
    lowest = highest = 0.0
    for key in (0, 1):
        most = largest = smallest = 0.0
        for record in records:
            of_key = record.key_index == key
            most = max([most, *Counter(record.env_time[of_key].tolist()).values()])
            largest = max([largest, *record.reward[of_key].tolist()])
            smallest = min([smallest, *record.reward[of_key].tolist()])
        for power in range(400):  # the geometric series
            highest += gamma**power * most * largest
            lowest += gamma**power * most * smallest
    acts_of_all = read_acts(records, records[0].spec)
    assert value_limits(acts_of_all, gamma) == pytest.approx((lowest, highest))
    assert value_limits(acts_of_all, 1.0) == (-np.inf, np.inf)


def test_rewards_above_0_only_allow_no_value_below_0() -> None:
    acts = read_acts(rising(None), rising(None)[0].spec)
    assert value_limits(acts, 0.5) == (0.0, 2.0)


class Exaggerating(FittedQ):
    """Begins with networks whose values are far too large or too small."""

    first_value = 0.0

    def _networks(self, generator: torch.Generator) -> nn.ModuleDict:
        networks = super()._networks(generator)
        for network in networks.values():
            nn.init.constant_(network[-1].bias, self.first_value)  # type: ignore[index, arg-type]
        return networks


@pytest.mark.parametrize("first_value", [1e4, -1e4])
def test_values_are_within_the_limits_where_networks_exaggerate(
    first_value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exaggerating, "first_value", first_value)
    records = rising(0.5)
    acts = read_acts(records, records[0].spec)
    gamma = 0.5
    lowest, highest = value_limits(acts, gamma)
    options = FittedQOptions(n_updates=1, batch_size=8, hidden_units=4)
    values = Exaggerating(acts, policy_of(acts.spec), gamma, 0, options=options).fit(np.ones(len(records)), 0)
    reached = highest if first_value > 0.0 else lowest
    for found in (values.of_acts, values.before, values.tail / gamma):
        np.testing.assert_allclose(found, reached, rtol=1e-5)


def test_truncated_episodes_are_warned_of_where_a_model_values_what_would_follow() -> None:
    records = rising(0.5)
    policy = policy_of(records[0].spec)
    options: Any = {"n_fits": 2, "fitted_q": FittedQOptions(n_updates=5, batch_size=8, hidden_units=4)}
    truncated = "some episodes were truncated: the model values what would follow, the weights do not"

    def warnings(estimator: str, gamma: float, of: list[SpacesTrajectoryRecord] = records) -> list[str]:
        return estimate(policy, of, policy, estimators=[estimator], gamma=gamma, **options).warnings

    assert warnings("per_decision", 0.9) == warnings("per_decision", 1.0) == []
    for estimator in ("fitted_q", "doubly_robust"):
        assert warnings(estimator, 0.9) == [truncated]
        first, second = warnings(estimator, 1.0)
        assert first == truncated
        assert second.startswith("nothing limits the values") and "gamma is 1" in second
    assert warnings("fitted_q", 1.0, rising(None)) == []


def value_of(records: list[SpacesTrajectoryRecord], gamma: float) -> float:
    """Value of the policy that recorded the episodes."""
    acts = read_acts(records, records[0].spec)
    options = FittedQOptions(n_updates=500, batch_size=256, hidden_units=16, lr=2e-3)
    values = FittedQ(acts, policy_of(acts.spec), gamma, 0, options=options).fit(np.ones(len(records)), 0)
    return float(values.before[:, 0].mean())


def mean_return(records: list[SpacesTrajectoryRecord], gamma: float) -> float:
    """Mean discounted return of the episodes, one act at a time."""
    total = 0.0
    for record in records:
        for reward, time in zip(record.reward.tolist(), record.env_time.tolist(), strict=True):
            total += gamma**time * reward
    return total / len(records)


@pytest.mark.parametrize(("prize", "n_steps", "gamma"), [(100.0, 1, 0.99), (-0.02, 3, 0.9)])
def test_rare_rewards_count_by_their_probability(prize: float, n_steps: int, gamma: float) -> None:
    records = []
    for number in range(60):
        acts = []
        for time in range(n_steps):
            is_won = (number + 7 * time) % 20 == 0  # by one of 20 acts at each time
            acts.append((0, time, float(time), prize if is_won else 0.0))
        records.append(record_of(number, acts, None))
    expected = mean_return(records, gamma)
    assert expected == pytest.approx(prize / 20 * sum(gamma**time for time in range(n_steps)))
    assert value_of(records, gamma) == pytest.approx(expected, rel=0.2)


def test_returns_that_differ_by_rounding_are_learned_like_others() -> None:
    records = []
    for number in range(20):
        reward = 0.3 if number % 2 else 0.1 + 0.2
        records.append(record_of(number, [(0, time, float(time), reward) for time in range(2)], None))
    assert value_of(records, 1.0) == pytest.approx(mean_return(records, 1.0), rel=0.05)


def values_of_continuous_acts(unit: float) -> np.ndarray[Any, Any]:
    """Values of random actions between 0 and a unit, of which the recorded one in the middle is best."""
    heads = spaces.Dict(power=spaces.Box(0, unit, (2,), np.float32), mode=spaces.Discrete(2))
    spec = Spec({0: StepSpec(PLACE, heads)})
    generator = np.random.default_rng(0)
    records = []
    for number in range(40):
        power = generator.random(2).astype(np.float32)
        reward = float(-np.square(power - 0.5).sum())
        act = (0, 0, 0, reward, False, {"place": [number]}, {"power": unit * power, "mode": number % 2})
        records.append(SpacesTrajectoryRecord.of_acts(f"episode {number}", spec, [act], True, False, 1, None, {}))
    acts = read_acts(records, spec)
    options = FittedQOptions(n_updates=50, batch_size=32, hidden_units=16)
    return FittedQ(acts, policy_of(spec), 0.9, 0, options=options).fit(np.ones(len(records)), 0).of_acts


def test_values_do_not_depend_on_the_unit_of_actions() -> None:
    np.testing.assert_allclose(values_of_continuous_acts(4096.0), values_of_continuous_acts(1.0), atol=1e-6)


@pytest.mark.slow
def test_the_interval_covers_that_other_starts_could_have_been_recorded() -> None:
    """The reward of the only act is the start, normally distributed: the mean of 64 starts has a deviation of 1/8."""
    starts = np.random.default_rng(0).normal(size=64).tolist()
    records = []
    for number, start in enumerate(starts):
        records.append(record_of(number, [(0, number % 2, start, start)], None))  # by the time, both choices occur
    policy = policy_of(records[0].spec)
    options = FittedQOptions(n_updates=150, batch_size=64, hidden_units=16, lr=1e-2)
    found = estimate(policy, records, estimators=["fitted_q"], gamma=1.0, n_fits=8, fitted_q=options)["fitted_q"]
    assert found.interval is not None
    low, high = found.interval
    assert found.value == pytest.approx(np.mean(starts), abs=0.05)
    assert found.value == pytest.approx(0.5 * (low + high))
    deviation = 0.5 * (high - low) / 2.365  # the 97.5% quantile of Student's t with 7 degrees of freedom
    assert 0.6 / 8 < deviation < 1.7 / 8
