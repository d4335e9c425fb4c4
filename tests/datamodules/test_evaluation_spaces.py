"""Evaluators have the spaces, the agents and the wrapper statistics of training, or are refused."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.datamodules import (
    RolloutDataModule,
    RolloutEvaluator,
)
from maze_pl.envs import Wrapper
from maze_pl.envs.job_shop import job_shop_factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RewardClippingWrapper,
)
from tests.datamodules.drift import Drift
from tests.datamodules.held_out import CARTPOLE, Shifted, both, lengths
from tests.datamodules.probe import NORMALIZED, SCALE, Probe, equal, fit, make_data, validate

NORMALIZATION = f"{ObservationNormalizationWrapper.__module__}.ObservationNormalizationWrapper"


class Observing(gymnasium.Env[Any, Any]):
    """An environment with spaces of any kind."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, True, False, {}


BOX = spaces.Box(-1, 1, (2,), np.float32)
WIDE = spaces.Box(-2, 2, (2,), np.float32)
LONG = spaces.Box(-1, 1, (3,), np.float32)


def observing(observation: spaces.Space[Any], action: spaces.Space[Any], **options: Any) -> RolloutDataModule:
    """Data whose evaluator has the given spaces; training has a Box and two actions."""
    env = partial(Observing, observation, action)
    action_there = spaces.Box(-1, 1, (1,), np.float32) if isinstance(action, spaces.Box) else spaces.Discrete(2)
    return RolloutDataModule(partial(Observing, BOX, action_there), n_envs=1, evaluators=both(env=env), **options)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (
            LONG,
            spaces.Discrete(2),
            r"observation 'observation' of sub-step 0 is Box\(-1.0, 1.0, \(3,\), float32\) in evaluators\['held_out'\]"
            r", but Box\(-1.0, 1.0, \(2,\), float32\) in training: give the evaluator an env and wrappers with those",
        ),
        (
            BOX,
            spaces.Discrete(3),
            r"action 'action' of sub-step 0 is Discrete\(3\) in .*, but Discrete\(2\) in training",
        ),
        (BOX, spaces.Discrete(2, start=1), r"action 'action' of sub-step 0 is Discrete\(2, start=1\) in"),
        (
            BOX,
            spaces.Box(-2, 2, (1,), np.float32),
            r"action 'action' of sub-step 0 is Box\(-2.0, 2.0, \(1,\), float32\)",
        ),
        (spaces.Dict({"other": BOX}), spaces.Discrete(2), r"observation 'observation' .* is missing in evaluators"),
    ],
)
def test_other_spaces_are_refused_before_training(observation: Any, action: Any, message: str) -> None:
    data = observing(observation, action)
    for stage in ("fit", "validate", "test"):
        with pytest.raises(ValueError, match=message):
            data.setup(stage)
    with pytest.raises(ValueError, match=message):
        lengths(data)


def test_observations_may_have_other_bounds_and_actions_other_types_as_networks_do_not_depend_on_them() -> None:
    assert lengths(observing(WIDE, spaces.Discrete(2))) == [1] * 3
    assert lengths(observing(BOX, spaces.Box(-1, 1, (1,), np.float64))) == [1] * 3


@pytest.mark.parametrize(
    ("training", "held_out", "is_played"),
    [
        (spaces.Box(0, 255, (4,), np.uint8), spaces.Box(0, 1, (4,), np.float32), False),
        (spaces.Box(0, 255, (4,), np.uint8), spaces.Box(0, 255, (4,), np.int32), False),
        (spaces.Box(0, 1, (4,), np.bool_), spaces.Box(0, 1, (4,), np.int64), False),
        (spaces.Box(0, 9, (4,), np.int64), spaces.Box(0, 10, (4,), np.int64), False),
        (spaces.Box(0, 9, (4,), np.int64), spaces.Box(-1, 9, (4,), np.int64), False),
        (spaces.Box(0, 9, (4,), np.int64), spaces.Box(1, 9, (4,), np.int32), True),
        (spaces.Box(0, 9, (4,), np.float64), spaces.Box(0, 10, (4,), np.float32), True),
    ],
)
def test_observations_are_of_the_kind_of_training_and_integers_within_its_bounds(
    training: Any, held_out: Any, is_played: bool
) -> None:
    env, other = (partial(Observing, space, spaces.Discrete(2)) for space in (training, held_out))
    data = RolloutDataModule(env, n_envs=1, evaluators=both(env=other))
    if is_played:
        assert lengths(data) == [1] * 3
        return
    with pytest.raises(ValueError, match=r"observation 'observation' of sub-step 0 is Box\(.* in training"):
        data.setup("fit")


def test_wrappers_alone_may_not_change_the_bounds_of_observations() -> None:
    given = {"min": [0.0, 0.0], "max": [4.0, 4.0]}
    strategy = "maze_pl.envs.wrappers.RangeZeroOneObservationNormalizationStrategy"
    fixed = partial(ObservationNormalizationWrapper, default_strategy=strategy, default_statistics=given)
    env = partial(Observing, BOX, spaces.Discrete(2))
    data = RolloutDataModule(env, [fixed], n_envs=1, evaluators=both(wrappers=[]))
    with pytest.raises(
        ValueError, match=r"observation 'observation' of sub-step 0 is Box\(-1.0, 1.0, \(2,\), float32\) in"
    ):
        data.setup("fit")


def test_sub_steps_and_agents_must_be_those_of_training() -> None:
    data = RolloutDataModule(CARTPOLE, evaluators=both(env=partial(job_shop_factory, ["random(3x3)"])))
    message = r"the number of agents|observation 'observation' of sub-step 0 is missing"
    with pytest.raises(ValueError, match=message):
        data.setup("fit")


def test_masks_must_be_those_of_training_and_the_option_holds_for_evaluators_too() -> None:
    masked = spaces.Dict({"observation": BOX, "mask": spaces.Box(0, 1, (2,), np.float32)})
    env = partial(Observing, masked, spaces.Discrete(2))
    options: dict[str, Any] = {"action_masks": {"action": "mask"}, "n_envs": 1}
    data = RolloutDataModule(env, evaluators=both(env=lambda: env()), **options)
    data.setup("fit")
    unmasked = partial(Observing, spaces.Dict({"observation": BOX}), spaces.Discrete(2))
    data = RolloutDataModule(env, evaluators=both(env=unmasked), **options)
    with pytest.raises(ValueError, match=r"^evaluators\['held_out'\]: .*mask"):
        data.setup("fit")


def test_instances_of_other_sizes_are_played_if_the_largest_number_of_items_is_the_same() -> None:
    training = partial(job_shop_factory, ["random(3x3)"], max_jobs=5)
    larger = partial(job_shop_factory, ["random(5x4)"])
    data = RolloutDataModule(training, n_envs=1, seed=3, evaluators=both(env=larger))
    assert lengths(data, "eval") == [9] * 3
    assert lengths(data) == [20] * 3
    data = RolloutDataModule(training, evaluators=both(env=partial(larger, max_jobs=6)))
    with pytest.raises(ValueError, match=r"the same largest number of items in both"):
        data.setup("fit")


def test_errors_of_environments_keep_their_kind_and_name_the_evaluator() -> None:
    data = make_data(evaluators=both(env=lambda: 3))
    with pytest.raises(TypeError, match=r"^evaluators\['held_out'\]: the environment factory returned '3'"):
        data.setup("fit")
    with pytest.raises(TypeError, match=r"env=3 and wrappers=None of an evaluator must be callables"):
        RolloutEvaluator(env=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"wrappers=\[3\] of an evaluator must be callables"):
        RolloutEvaluator(wrappers=[3])  # type: ignore[list-item]


def test_wrappers_get_the_statistics_of_training_and_leave_out_those_that_they_do_not_need() -> None:
    wrappers = [NORMALIZED, SCALE]
    options: dict[str, Any] = {"wrappers": wrappers, "n_normalization_samples": 30}
    whole = fit(make_data(evaluators=both(env=Drift), **options), max_epochs=2)
    less = fit(make_data(evaluators=both(env=Drift, wrappers=[NORMALIZED]), **options), max_epochs=2)
    more = [NORMALIZED, partial(RewardClippingWrapper, min_val=-1.0, max_val=1.0), SCALE]
    further = fit(make_data(evaluators=both(env=Drift, wrappers=more), **options), max_epochs=2)
    assert whole.returns("held_out") == less.returns("held_out") == further.returns("held_out")
    assert equal(whole.rollouts, less.rollouts)


def seen_by(data: RolloutDataModule, name: str) -> np.ndarray:
    """The observations of the policy in an evaluation."""
    module = Probe()
    data.evaluate(name, module.policy)
    data.teardown("validate")
    return np.concatenate(module.policy.seen)


def test_observations_of_other_environments_are_normalised_by_the_statistics_of_training() -> None:
    data = make_data(wrappers=[NORMALIZED], evaluators=both(env=Shifted), n_normalization_samples=50)
    statistics = data.wrapper_statistics()[NORMALIZATION]["observation"]
    (start, _), (deviation, _) = statistics["mean"], statistics["std"]
    seen = seen_by(data, "held_out")[:, 0] * deviation + start
    assert seen.min() > 10
    assert seen_by(data, "eval")[:, 0].max() < 5


def test_statistics_of_another_checkpoint_are_used_in_other_wrappers_too() -> None:
    data = make_data(wrappers=[SCALE, NORMALIZED], evaluators=both(env=Drift, wrappers=[NORMALIZED]))
    other = copy.deepcopy(data.wrapper_statistics())
    other[NORMALIZATION]["observation"]["mean"] = np.array([100.0, 0.0])
    module = Probe()
    data.evaluate("held_out", module.policy, other)
    data.teardown("validate")
    assert np.concatenate(module.policy.seen)[:, 0].max() < -50


@pytest.mark.parametrize(
    ("training", "held_out", "message"),
    [
        (
            [],
            [NORMALIZED],
            r"has the wrappers \['.*ObservationNormalizationWrapper'\], whose statistics training does not",
        ),
        ([NORMALIZED], [NORMALIZED, SCALE], r"has the wrappers \['.*ReturnNormalizationRewardWrapper'\], whose"),
        (
            [SCALE],
            [SCALE, SCALE],
            r"has the wrappers \['.*\(2 of 2\)', '.*\(1 of 2\)'\], whose .*: leave them out, or use",
        ),
        ([SCALE, SCALE], [SCALE], r"has the wrappers \['.*ReturnNormalizationRewardWrapper'\], whose"),
        (
            [NORMALIZED],
            [],
            r"has no wrapper .*ObservationNormalizationWrapper, with which the policy is trained: add it",
        ),
    ],
)
def test_statistics_that_training_does_not_have_are_refused_before_training(
    training: list[Any], held_out: list[Any], message: str
) -> None:
    data = make_data(wrappers=training, evaluators=both(wrappers=held_out))
    with pytest.raises(ValueError, match=rf"evaluators\['held_out'\] {message}"):
        data.setup("fit")


class MeanWrapper(Wrapper):
    """Estimates something, and has nothing to share before."""

    def estimate_within(self, env: Wrapper, n_samples: int, seed: int) -> None:
        self.mean = 1.0

    def shared_state(self) -> dict[str, Any]:
        return {"mean": self.mean}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        self.mean = state["mean"]


def test_wrappers_that_estimate_other_things_are_recognised_too() -> None:
    training = [MeanWrapper.wrap]
    validate(make_data(wrappers=training, evaluators=both(env=Drift)))
    validate(make_data(wrappers=training, evaluators=both(env=Drift, wrappers=[])))
    with pytest.raises(
        ValueError, match=r"has the wrappers \['.*MeanWrapper'\], whose statistics training does not have"
    ):
        make_data(evaluators=both(wrappers=training)).setup("fit")


GIVEN = partial(ObservationNormalizationWrapper, default_statistics={"mean": [0.0, 0.0], "std": [1.0, 2.0]})
OTHERS = partial(ObservationNormalizationWrapper, default_statistics={"mean": [0.0, 0.0], "std": [1.0, 3.0]})


@pytest.mark.parametrize(
    ("training", "held_out", "message"),
    [
        ([GIVEN], [], r"has no wrapper .*ObservationNormalizationWrapper, with which the policy is trained: add it"),
        ([GIVEN], [OTHERS], r"has other configured statistics of .*Wrapper than training \(.*3\.0.* instead of .*2\.0"),
        ([NORMALIZED], [GIVEN], r"has other configured statistics of .* instead of missing\): configure the same ones"),
        ([GIVEN], [NORMALIZED], r"has the wrappers \['.*ObservationNormalizationWrapper'\], whose statistics training"),
        ([], [GIVEN], r"has other configured statistics of .* instead of missing\)"),
    ],
)
@pytest.mark.parametrize("env", [None, Drift])
def test_configured_statistics_must_be_those_of_training(
    training: list[Any], held_out: list[Any], message: str, env: Any
) -> None:
    data = make_data(wrappers=training, evaluators=both(wrappers=held_out, env=env))
    with pytest.raises(ValueError, match=rf"evaluators\['held_out'\] {message}"):
        data.setup("fit")


def test_equal_configured_statistics_are_used() -> None:
    data = make_data(wrappers=[GIVEN], evaluators=both(wrappers=[partial(GIVEN)]))
    same = make_data(wrappers=[GIVEN], evaluators=both())
    assert validate(data).returns("held_out") == validate(same).returns("held_out")


def test_statistics_that_do_not_fit_are_refused_before_training() -> None:
    with_both = partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0})
    without_any = partial(with_both, exclude=["observation"])
    data = make_data(wrappers=[without_any], evaluators=both(wrappers=[with_both]))
    with pytest.raises(ValueError, match=r"has the wrappers \['.*ObservationNormalizationWrapper'\], whose statistics"):
        data.setup("fit")
    data = make_data(wrappers=[with_both], evaluators=both(wrappers=[without_any]))
    with pytest.raises(ValueError, match=r"^evaluators\['held_out'\]: .*observation.* are not normalised"):
        fit(data)
