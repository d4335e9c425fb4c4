from __future__ import annotations

import io
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GymMazeEnv, Wrapper, wrappers_of
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    NoDictSpacesWrapper,
    ObservationNormalizationStrategy,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    TimeLimitWrapper,
    estimate_observation_normalization_statistics,
    load_statistics,
    make_normalized_env_factory,
    obtain_normalization_statistics,
    sample_episodes,
)
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env

RANGE = "maze_pl.envs.wrappers.RangeZeroOneObservationNormalizationStrategy"


class Halving(ObservationNormalizationStrategy):
    """A user's own: divides by twice the largest value."""

    def estimate_stats(self, observations: Any) -> Any:
        return {"largest": self.reduce(np.max, observations)}

    def normalize_value(self, value: Any) -> Any:
        return value / (2 * self.statistics["largest"])


class Mixed(gymnasium.Env[Any, Any]):
    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 2), np.uint8),
                "vector": spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "label": spaces.Discrete(3),
            }
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observe(), {}

    def _observe(self) -> dict[str, Any]:
        image = self.np_random.integers(256, size=(2, 2), dtype=np.uint8)
        return {"image": image, "vector": self.np_random.normal([5, -3], [1, 10]), "label": 2}

    def step(self, action: Any) -> Any:
        return self._observe(), 0.0, self.np_random.random() < 0.1, False, {}


def test_observations_are_normalised_by_statistics_of_the_samples() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Mixed()), default_strategy_config={"axis": 0})
    statistics = obtain_normalization_statistics(env, n_samples=2000, seed=1)
    assert statistics["vector"]["mean"].shape == (2,)
    assert statistics["image"]["std"].shape == (2, 2)
    env.reset(seed=5)
    for name in ("vector", "image"):
        observations = [env.step({"action": 0})[0][name] for _ in range(2000)]
        np.testing.assert_allclose(np.mean(observations, axis=0), 0, atol=0.15)
        np.testing.assert_allclose(np.std(observations, axis=0), 1, atol=0.15)


def test_statistics_by_hand_on_a_known_episode() -> None:
    # episodes of observations (0, 0), (1, 10), (2, 20); five samples are one episode and two of the next
    env = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0, 0.0])), RANGE, {"axis": 0})
    assert env.missing_statistics == ["observation"]
    statistics = obtain_normalization_statistics(env, n_samples=5)
    assert env.missing_statistics == []
    np.testing.assert_array_equal(statistics["observation"]["max"], [2, 20])
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(NOTHING)[0]["observation"], [0.5, 0.5])
    mean = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0, 0.0])), default_strategy_config={"axis": 0})
    statistics = obtain_normalization_statistics(mean, n_samples=5)
    np.testing.assert_allclose(statistics["observation"]["mean"], [0.8, 8.0])


def test_the_same_seed_gives_the_same_statistics_and_the_policy_matters() -> None:
    class Right:
        def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
            assert batch.observation["observation"].shape == (1, 4)
            return PolicyStep({"action": np.ones(len(batch.agent_id), np.int64)})

    class OfSpaces(Right):
        def __init__(self, action_spaces_dict: Any, masks: Any) -> None:
            assert list(action_spaces_dict) == list(masks) == [0]

    def mean(seed: int, policy: Any = None) -> Any:
        env = GymMazeEnv("CartPole-v1")
        if policy is RandomPolicy:
            policy = RandomPolicy(env.action_spaces_dict)
        env = ObservationNormalizationWrapper(env, default_strategy_config={"axis": 0}, sampling_policy=policy)
        return obtain_normalization_statistics(env, 200, seed)["observation"]["mean"].tolist()

    assert mean(1) == mean(1) == mean(1, RandomPolicy) == mean(1, "maze_pl.agents.RandomPolicy") != mean(2)
    assert mean(1, Right()) == mean(1, OfSpaces) != mean(1)


def test_estimation_goes_through_the_whole_stack_and_leaves_no_traces() -> None:
    env = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv(Scripted([1.0] * 100)))
    env = TimeLimitWrapper.wrap(ObservationNormalizationWrapper(env, RANGE), max_episode_steps=3)
    env = LogStatsWrapper.wrap(env)
    statistics = obtain_normalization_statistics(env, n_samples=50)
    assert statistics["observation"]["max"] == 30.0  # nobody got beyond the limit of three steps
    assert env.drain_episode_summaries() == []
    returns = next(w for w in wrappers_of(env) if type(w) is ReturnNormalizationRewardWrapper)
    assert returns.shared_state()["delta"][0] == 0


def test_statistics_of_one_environment_serve_another() -> None:
    config: dict[str, Any] = {"default_strategy_config": {"axis": 0, "clip_range": [None, None]}}
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), **config)
    statistics = obtain_normalization_statistics(env, n_samples=100)
    other = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), **config)
    other.set_normalization_statistics(statistics)
    np.testing.assert_array_equal(other.reset(seed=1)[0]["observation"], env.reset(seed=1)[0]["observation"])


def test_stepping_without_statistics_says_what_to_do() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"))
    with pytest.raises(RuntimeError, match=r"'observation'.*obtain_normalization_statistics"):
        env.reset(seed=0)


def test_given_statistics_need_no_estimation() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0])), RANGE, None, {"min": 0, "max": 100})
    env.reset(seed=0)
    np.testing.assert_allclose(env.step(NOTHING)[0]["observation"], [0.01, 0.1])
    assert env.state_dict() == env.shared_state() == {}
    np.testing.assert_equal(obtain_normalization_statistics(env, 5), {"observation": {"min": 0.0, "max": 100.0}})


def test_each_observation_has_its_own_configuration() -> None:
    env = ObservationNormalizationWrapper(
        GymMazeEnv(Mixed()),
        manual_config={
            "image": {
                "strategy": RANGE,
                "strategy_config": {"clip_range": [0, 1]},
                "statistics": {"min": 0, "max": 255},
            },
            "vector": {"strategy_config": {"axis": [0], "clip_range": [-3, 3]}},
        },
    )
    statistics = obtain_normalization_statistics(env, n_samples=2000)
    np.testing.assert_allclose(statistics["vector"]["mean"], [5, -3], atol=1)
    assert list(env.state_dict()) == ["vector"]
    assert env.configured_statistics == {"image": {"min": 0.0, "max": 255.0}}
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        assert observation["label"] == 2
    assert env.observation_space["image"] == spaces.Box(0, 1, (2, 2), np.float32)
    assert env.observation_space["label"] == spaces.Discrete(3)


def test_a_users_own_strategy_by_class_and_by_path() -> None:
    for strategy in (Halving, f"{Halving.__module__}.Halving"):
        env = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0, 0.0])), strategy)
        obtain_normalization_statistics(env, n_samples=3)
        env.reset(seed=0)
        np.testing.assert_array_equal(env.step(NOTHING)[0]["observation"], np.float32([1 / 40, 10 / 40]))


def test_excluded_observations_and_masks_are_left_alone() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Mixed()), exclude=["vector"])
    assert list(obtain_normalization_statistics(env, 10)) == ["image"]
    assert env.observation_space["vector"] == env.env.observation_space["vector"]
    masked = ObservationNormalizationWrapper(make_heap_env())
    assert list(obtain_normalization_statistics(masked, 30)) == ["heap"]
    masked.reset(seed=0)
    observation, *_ = masked.step({"amount": 1})
    np.testing.assert_array_equal(observation["amount_mask"], [1, 1, 1, 1])


def test_observations_of_the_same_name_share_their_statistics_across_sub_steps() -> None:
    env = ObservationNormalizationWrapper(make_heap_env(), RANGE, None, {"min": 0, "max": 10})
    first, _ = env.reset(seed=0)
    second, *_ = env.step({"amount": 1})
    np.testing.assert_array_equal(first["heap"], second["heap"])


def test_recorded_states_are_normalised_too() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0])), RANGE, None, {"min": 0, "max": 10})
    observations, _ = env.get_observation_and_action_dicts(np.array([1.0, 2.0]), None, True)
    assert observations is not None
    np.testing.assert_allclose(observations[0]["observation"], [0.1, 0.2])


def test_what_the_environment_returned_is_not_changed() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), RANGE, None, {"min": 0, "max": 10})
    raw, _ = env.env.reset(seed=0)
    before = {name: value.copy() for name, value in raw.items()}
    env.observation(raw)
    np.testing.assert_equal(raw, before)


def test_the_dump_holds_what_was_estimated(tmp_path: Path) -> None:
    path = tmp_path / "run" / "statistics.json"
    config: dict[str, Any] = {"default_strategy_config": {"axis": 0}}
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), statistics_dump=str(path), **config)
    assert not path.exists()
    statistics = obtain_normalization_statistics(env, n_samples=20)
    other = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), **config)
    other.set_normalization_statistics(load_statistics(path))
    np.testing.assert_equal(other.get_normalization_statistics(), statistics)
    assert list(path.parent.iterdir()) == [path]


def test_state_goes_through_arrays_exactly() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0})
    env.estimate(100, seed=3)
    other = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0})
    other.load_state_dict(pickle.loads(pickle.dumps(env.state_dict())))
    np.testing.assert_equal(other.state_dict(), env.state_dict())
    estimated = env.state_dict()
    env.estimate(100, seed=4)
    np.testing.assert_equal(env.state_dict(), estimated)


def test_observations_that_never_occur_are_named() -> None:
    class Forgetful(Mixed):
        def _observe(self) -> dict[str, Any]:
            return super()._observe() | {"vector": np.zeros(2)}

    class Dropping(ObservationNormalizationWrapper):
        def observation(self, observation: Any) -> Any:
            return super().observation({k: v for k, v in observation.items() if k != "vector"})

    env = Dropping(GymMazeEnv(Forgetful()))
    with pytest.raises(ValueError, match=r"\['vector'\] did not occur in 10 acts"):
        env.estimate(10, seed=0)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"exclude": ["nothing"]}, ValueError, r"no observations \['nothing'\]"),
        ({"manual_config": {"nothing": {}}}, ValueError, r"no observations \['nothing'\]"),
        ({"manual_config": {"vector": {"stategy": RANGE}}}, ValueError, "stategy"),
        ({"manual_config": {"vector": {}}, "exclude": ["vector"]}, ValueError, "excluded"),
        ({"manual_config": {"label": {}}}, TypeError, r"'label': only Box observations .* not Discrete\(3\)"),
        (
            {"default_strategy": "collections.OrderedDict"},
            ValueError,
            "is not a subclass of ObservationNormali",
        ),
        ({"default_strategy": "collections.Nothing"}, ValueError, "collections has nothing named Nothing"),
        ({"default_strategy": "MeanZeroStdOne"}, ValueError, "not a dotted path"),
        ({"default_statistics": {"mean": 0}}, ValueError, "'image': Mean.*needs the statistics"),
        ({"default_strategy_config": {"clip": 3}}, TypeError, "'image': .*unexpected keyword argument 'clip'"),
        (
            {"manual_config": {"vector": {"statistics": {"mean": [1, 2, 3], "std": 1}}}},
            ValueError,
            r"'vector': .*\(3,\)",
        ),
    ],
)
def test_contradictory_configurations_are_refused(config: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ObservationNormalizationWrapper(GymMazeEnv(Mixed()), **config)


def test_masks_cannot_be_normalised() -> None:
    with pytest.raises(ValueError, match="serve as action masks"):
        ObservationNormalizationWrapper(make_heap_env(), manual_config={"amount_mask": {}})


def test_statistics_of_unknown_observations_are_refused() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"))
    with pytest.raises(ValueError, match=r"\['other'\] are not normalised; \['observation'\] are"):
        env.set_normalization_statistics({"other": {"mean": 0, "std": 1}})


@pytest.mark.parametrize("load", ["set_normalization_statistics", "load_state_dict", "load_shared_state"])
def test_statistics_of_another_space_are_refused_by_name(load: str) -> None:
    other = ObservationNormalizationWrapper(GymMazeEnv("Acrobot-v1"), default_strategy_config={"axis": 0})
    statistics = obtain_normalization_statistics(other, 10)
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0})
    message = r"ObservationNormalizationWrapper: observation 'observation': .* \(6,\), .* observations \(4,\)"
    with pytest.raises(ValueError, match=message):
        getattr(env, load)(statistics)
    assert env.missing_statistics == ["observation"]


def test_learned_statistics_that_lack_an_observation_are_refused() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Mixed()))
    with pytest.raises(ValueError, match=r"\['vector'\] are not among the statistics that were estimated"):
        env.load_shared_state({"image": {"mean": 0, "std": 1}})


def test_a_factory_gives_its_environments_the_statistics() -> None:
    def make() -> ObservationNormalizationWrapper:
        inner = ObservationNormalizationWrapper(GymMazeEnv(Mixed()), exclude=["image"])
        return ObservationNormalizationWrapper(inner, RANGE, exclude=["vector"])

    env = make()
    statistics = obtain_normalization_statistics(env, 50)
    assert sorted(statistics) == ["image", "vector"]
    other = make_normalized_env_factory(make, statistics)()
    np.testing.assert_equal(other.reset(seed=3)[0], env.reset(seed=3)[0])
    with pytest.raises(ValueError, match=r"\['other'\] are not normalised"):
        make_normalized_env_factory(make, {"other": {}})()


def test_wrappers_that_normalise_one_after_the_other_are_estimated_one_after_the_other() -> None:
    inner = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0, 0.0])), RANGE, {"axis": 0})
    env = ObservationNormalizationWrapper(LogStatsWrapper(inner), RANGE, {"axis": 0})
    estimate_observation_normalization_statistics(env, n_samples=6)  # twice (0, 0), (1, 10), (2, 20)
    np.testing.assert_array_equal(inner.get_normalization_statistics()["observation"]["max"], [2, 20])
    np.testing.assert_array_equal(env.get_normalization_statistics()["observation"]["max"], [1, 1])
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(NOTHING)[0]["observation"], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"\['observation'\] are normalised twice"):
        obtain_normalization_statistics(env, 5)


def test_observations_of_one_name_must_have_one_shape() -> None:
    class Uneven(Wrapper):
        @property
        def observation_spaces_dict(self) -> Any:
            inner = self.env.observation_spaces_dict
            return {**inner, "plan": spaces.Dict({"heap": spaces.Box(0, 50, (2,), np.float32)})}

    with pytest.raises(ValueError, match=r"'heap' is Box.*\(1,\).* in sub-step 'work', Box.*\(2,\)"):
        ObservationNormalizationWrapper(Uneven(make_heap_env()))


def test_faults_of_a_users_own_strategy_stay_what_they_are() -> None:
    class Faulty(Halving):
        def estimate_stats(self, observations: Any) -> Any:
            return {"largest": observations + None}

    with pytest.raises(TypeError, match=r"^unsupported operand"):
        ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), Faulty).estimate(10, seed=0)


def test_two_wrappers_may_not_write_to_the_same_file() -> None:
    env = ObservationNormalizationWrapper(GymMazeEnv(Mixed()), exclude=["image"], statistics_dump="statistics.json")
    with pytest.raises(ValueError, match=r"already writes to statistics_dump='statistics\.json'"):
        ObservationNormalizationWrapper(env, exclude=["vector"], statistics_dump="statistics.json")
    ObservationNormalizationWrapper(env, exclude=["vector"], statistics_dump="others.json")


def test_a_relative_dump_lies_in_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path / "run"))
    env = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), statistics_dump="a/statistics.json")
    env.estimate(10, seed=0)
    assert load_statistics(tmp_path / "run" / "a" / "statistics.json").keys() == {"observation"}


@pytest.mark.parametrize("strategy", [RANGE, "maze_pl.envs.wrappers.MeanZeroStdOneObservationNormalizationStrategy"])
def test_bytes_infinite_bounds_and_constants_become_finite_floats(strategy: str) -> None:
    class Edges(Mixed):
        def _observe(self) -> dict[str, Any]:
            return super()._observe() | {"vector": np.array([7.5, self.np_random.normal()])}

    env = ObservationNormalizationWrapper(GymMazeEnv(Edges()), strategy, {"axis": 0})
    env.estimate(300, seed=0)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        assert observation["vector"][0] == 0.0
        assert observation["image"].dtype == np.float32
        assert np.abs(observation["image"]).max() < 3
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_samples_that_are_not_finite_are_refused(value: float) -> None:
    class Leaving(Mixed):
        def _observe(self) -> dict[str, Any]:
            vector = [value if self.np_random.random() < 0.2 else 1.0, 2.0]
            return super()._observe() | {"vector": np.array(vector)}

    env = ObservationNormalizationWrapper(GymMazeEnv(Leaving()))
    with pytest.raises(ValueError, match=r"'vector': \d+ of 100 samples have values that are not finite"):
        env.estimate(100, seed=0)
    env = ObservationNormalizationWrapper(GymMazeEnv(Leaving()), exclude=["vector"])
    env.estimate(100, seed=0)
    assert env.missing_statistics == []


def test_a_sample_of_another_shape_is_named() -> None:
    class Growing(Mixed):
        def step(self, action: Any) -> Any:
            observation, *others = super().step(action)
            return observation | {"vector": np.zeros(3)}, *others

    env = ObservationNormalizationWrapper(GymMazeEnv(Growing()))
    message = r"an observation 'vector' of Growing has shape \(3,\); its space has \(2,\)"
    with pytest.raises(EnvContractError, match=message):
        env.estimate(20, seed=0)


def test_observations_without_any_value_are_left_alone() -> None:
    class Empty(Mixed):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space.spaces["vector"] = spaces.Box(-1, 1, (0,), np.float32)

        def _observe(self) -> dict[str, Any]:
            return super()._observe() | {"vector": np.zeros(0, np.float32)}

    env = ObservationNormalizationWrapper(GymMazeEnv(Empty()))
    assert list(obtain_normalization_statistics(env, 10)) == ["image"]


def test_a_policy_that_wants_the_simulations_state_samples_too() -> None:
    seen: list[Any] = []

    class Asking:
        def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
            seen.extend(batch.maze_state or [])
            return PolicyStep({"action": np.zeros((1, 1), np.float32)})

    env = ObservationNormalizationWrapper(GymMazeEnv(Scripted([0.0] * 9)), RANGE, sampling_policy=Asking())
    env.estimate(4, seed=0)
    np.testing.assert_array_equal(seen, [[0, 0], [1, 10], [2, 20]])


def test_statistics_are_obtained_through_wrappers_that_hide_names() -> None:
    env = NoDictSpacesWrapper(ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1")))
    assert list(obtain_normalization_statistics(env, 20)) == ["observation"]
    assert env.observation_space.contains(env.reset(seed=0)[0])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_where_it_takes_long_and_somebody_is_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Scripted):
        def step(self, action: Any) -> Any:
            time.sleep(0.02)  # tqdm looks every 0.1 s
            return super().step(action)

    def shown(stream: io.StringIO, after: float) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sample_episodes, "PROGRESS_AFTER", after)
        ObservationNormalizationWrapper(GymMazeEnv(Slow([0.0] * 9)), RANGE).estimate(9, seed=0)
        return stream.getvalue()

    assert "normalisation statistics" in shown(Terminal(), 1e-9)
    assert shown(Terminal(), 1000.0).strip() == ""
    assert shown(io.StringIO(), 1e-9) == ""


def test_statistics_can_only_be_obtained_where_something_is_normalised() -> None:
    with pytest.raises(ValueError, match="no ObservationNormalizationWrapper"):
        obtain_normalization_statistics(GymMazeEnv("CartPole-v1"), 10)
    with pytest.raises(ValueError, match="n_samples=0"):
        obtain_normalization_statistics(ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1")), 0)
