from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.envs import GymMazeEnv, ObservationWrapper, SequentialVectorEnv, SubprocVectorEnv, Wrapper, wrappers_of
from maze_pl.envs.wrappers import (
    DiscretizeActionsWrapper,
    LogStatsWrapper,
    MazeEnvMonitoringWrapper,
    ObservationVisualizationWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
)
from maze_pl.events import EpochStatistics, Histogram, display
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import TwoHalvesWrapper, make_heap_env

OBSERVATION, ACTION, REWARD = "observation_logging", "action_logging", "reward_logging"


def monitored(env: Any, *kinds: str) -> MazeEnvMonitoringWrapper:
    flags = {kind: kind in (kinds or (OBSERVATION, ACTION, REWARD)) for kind in (OBSERVATION, ACTION, REWARD)}
    return MazeEnvMonitoringWrapper.wrap(env, **flags)


def play(env: Any, n_acts: int, seed: int = 0) -> Mapping[tuple[str, ...], Any]:
    """What is shown of an episode of at most so many acts, by event, name and groups."""
    env.reset(seed=seed)
    for _ in range(n_acts):
        result = env.step(env.action_space.sample())
        if result[2] or result[3]:
            break
    return {(event, name, *groups): value for (_, event, name, groups), value in env.end_episode().items()}


class Doubled(ObservationWrapper):
    def observation(self, observation: Any) -> Any:
        return {name: 2 * value for name, value in observation.items()}


class Twice(Wrapper):
    """Takes each action two times."""

    def step(self, action: Any) -> Any:
        _, first, *_ = self.env.step(action)
        observation, second, *rest = self.env.step(action)
        return observation, first + second, *rest


def test_what_is_shown_is_what_came_from_within_and_what_passes_through() -> None:
    env = monitored(RewardScalingWrapper.wrap(Doubled(GymMazeEnv(Scripted([1.0, 2.0, 3.0]))), scale=0.5))
    shown = play(env, 3)
    times = np.array([[0, 0], [1, 10], [2, 20]], np.float32)  # of the observations that were acted on
    np.testing.assert_array_equal(shown["observation_original", None, "substep_0", "observation"], times)
    np.testing.assert_array_equal(shown["observation_processed", None, "substep_0", "observation"], 2 * times)
    assert shown["continuous_action", None, "substep_0", "action"].shape == (3, 1)
    assert shown["reward_original", "steps"].tolist() == [1.0, 2.0, 3.0]
    assert shown["reward_processed", "steps"].tolist() == [0.5, 1.0, 1.5]
    assert (shown["reward_original", None], shown["reward_processed", None]) == (6.0, 3.0)
    assert play(env, 2)["reward_original", None] == 3.0


def test_rewards_of_steps_that_a_wrapper_takes_by_itself_count_as_original() -> None:
    shown = play(monitored(Twice(GymMazeEnv(Scripted([1.0, 2.0, 3.0, 4.0]))), REWARD), 2)
    assert shown["reward_original", "steps"].tolist() == shown["reward_processed", "steps"].tolist() == [3.0, 7.0]


def test_each_sub_step_is_shown_by_itself_and_rewards_by_environment_step() -> None:
    shown = play(monitored(make_heap_env()), 100)
    lengths = {key: value.shape for key, value in shown.items() if isinstance(value, np.ndarray)}
    assert lengths == {
        ("discrete_action", None, "substep_plan", "amount", "0_to_3"): (4,),
        ("discrete_action", None, "substep_work", "amount", "0_to_3"): (10,),
        **{(f"observation_{kind}", None, "substep_plan", "heap"): (4, 1) for kind in ("original", "processed")},
        **{(f"observation_{kind}", None, "substep_work", "heap"): (10, 1) for kind in ("original", "processed")},
        **{(f"observation_{kind}", None, "substep_work", "target"): (10, 1) for kind in ("original", "processed")},
        **{(f"observation_{kind}", None, "substep_work", "amount_mask"): (10, 4) for kind in ("original", "processed")},
        ("reward_original", "steps"): (4,),
        ("reward_processed", "steps"): (4,),
    }
    assert shown["reward_original", None] == shown["reward_original", "steps"].sum() < 0


def test_sub_steps_that_a_wrapper_makes_share_the_original_observation() -> None:
    shown = play(monitored(TwoHalvesWrapper(GymMazeEnv("CartPole-v1")), OBSERVATION), 6)
    assert {key[0:1] + key[2:]: len(value) for key, value in shown.items()} == {
        ("observation_original", "substep_0", "observation"): 6,
        ("observation_processed", "substep_whether", "observation"): 3,
        ("observation_processed", "substep_what", "observation"): 3,
    }


class EveryKind(gymnasium.Env[Any, Any]):
    """Actions of every kind; observations are a picture."""

    observation_space = spaces.Box(0, 255, (20, 20), np.uint8)
    action_space = spaces.Dict(
        {
            "gear": spaces.Discrete(4, start=3),
            "levers": spaces.MultiDiscrete([2, 5]),
            "lamps": spaces.MultiBinary(3),
            "wheel": spaces.Box(-1, 1, (2, 2)),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.full((20, 20), 7, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full((20, 20), 7, np.uint8), 0.0, False, False, {}


def test_actions_of_every_kind_are_shown() -> None:
    env = LogStatsWrapper.wrap(monitored(GymMazeEnv(EveryKind())))
    env.reset(seed=1)
    for _ in range(60):
        env.step(env.action_space.sample())
    env.close_episode()
    (summary,) = env.drain_episode_summaries()
    shown = {(event, *groups): value for (_, event, _, groups), value in summary.samples.items()}
    assert set(np.unique(shown["discrete_action", "substep_0", "gear", "3_to_6"])) == {3, 4, 5, 6}
    assert set(np.unique(shown["discrete_action", "substep_0", "levers_0", "0_to_1"])) == {0, 1}
    assert set(np.unique(shown["discrete_action", "substep_0", "levers_1", "0_to_4"])) == {0, 1, 2, 3, 4}
    assert shown["binary_action", "substep_0", "lamps"].shape == (50, 3)
    assert shown["continuous_action", "substep_0", "wheel"].shape == (50, 2, 2)
    epoch = EpochStatistics()
    epoch.add(summary)
    figures = epoch.compute_plots()
    assert set(figures) == {
        "ActionEvents/discrete_action/substep_0/gear/3_to_6",
        "ActionEvents/discrete_action/substep_0/levers_0/0_to_1",
        "ActionEvents/discrete_action/substep_0/levers_1/0_to_4",
        "ActionEvents/binary_action/substep_0/lamps",
        "ActionEvents/continuous_action/substep_0/wheel",
    }
    result = epoch.compute()
    sevens = 50 * 64  # of 400 numbers in each picture
    assert result["ObservationEvents/observation_original/substep_0/observation"] == Histogram.of([7] * sevens)


def test_memory_has_a_bound_however_long_an_episode_is() -> None:
    env = monitored(GymMazeEnv(Scripted([0.0] * 3000)))
    for n_acts, kept in ((30, 30), (2999, 50)):
        shown = play(env, n_acts)
        assert {len(value) for value in shown.values() if isinstance(value, np.ndarray)} == {kept}
    assert all(value.nbytes <= 50 * 64 * 8 for value in shown.values() if isinstance(value, np.ndarray))


def test_every_moment_of_an_episode_is_as_likely_to_be_shown() -> None:
    env = monitored(GymMazeEnv(Scripted([0.0] * 200)), OBSERVATION)
    picked: Counter[int] = Counter()
    for seed in range(160):
        env.reset(seed=seed)
        for _ in range(200):
            env.step(NOTHING)
        (values,) = {value[:, 0].astype(int).tobytes() for value in env.end_episode().values()}  # type: ignore[index]
        picked.update(np.frombuffer(values, int).tolist())
    counts = np.array([picked[time] for time in range(200)])  # binomial: 40 +- 5.5
    assert counts.sum() == 160 * 50
    assert counts.min() > 15 and counts.max() < 65
    assert abs(counts[:100].sum() - counts[100:].sum()) < 500


def test_the_same_seed_shows_the_same_moments() -> None:
    def sample(seed: int, warm_up: int) -> np.ndarray:
        env = monitored(GymMazeEnv(Scripted([0.0] * 200)), OBSERVATION)
        env.reset(seed=99)
        for _ in range(warm_up):
            env.step(NOTHING)
        return play(env, 200, seed)["observation_original", None, "substep_0", "observation"]

    np.testing.assert_array_equal(sample(1, warm_up=0), sample(1, warm_up=120))
    assert (sample(1, warm_up=0) != sample(2, warm_up=0)).any()


def test_kinds_of_logging_that_are_off_compute_and_keep_nothing() -> None:
    env = MazeEnvMonitoringWrapper.wrap(
        GymMazeEnv("CartPole-v1"), observation_logging=False, action_logging=False, reward_logging=False
    )
    assert play(env, 20) == {}
    assert env.pubsub.subscribers == ()
    assert {key[0] for key in play(monitored(GymMazeEnv("CartPole-v1"), ACTION), 20)} == {"discrete_action"}
    kinds = {key[0] for key in play(monitored(GymMazeEnv("CartPole-v1"), REWARD), 20)}
    assert kinds == {"reward_original", "reward_processed"}


def test_where_nothing_is_watched_vectors_step_the_simulation_directly() -> None:
    def unwatched() -> Any:
        return MazeEnvMonitoringWrapper(GymMazeEnv("CartPole-v1"), False, False, False)

    env, other = unwatched(), unwatched()
    env.reset(seed=2)
    other.reset(seed=3)
    other.clone_from(env)
    sent = cloudpickle.loads(cloudpickle.dumps(env))
    result = env.step({"action": 1})
    for copied in (other, sent):
        assert copied.env is not env.env
        np.testing.assert_equal(copied.step({"action": 1}), result)
    vectors = [SequentialVectorEnv([make] * 2, seed=4) for make in (unwatched, lambda: GymMazeEnv("CartPole-v1"))]
    for vector in vectors:
        vector.reset()
        for place in range(100):
            vector.staging.action[0]["action"][:] = place % 2
            vector.step()
    assert vectors[0]._plain is not None, "it is stepped as if it were not wrapped"
    np.testing.assert_equal(*(vector.staging.observation[0] for vector in vectors))
    one, other = (vector.drain_summaries() for vector in vectors)
    assert one
    np.testing.assert_equal(*([summary.statistics for summary in summaries] for summaries in (one, other)))


def test_wrappers_inside_of_a_monitor_can_be_taken_out_later() -> None:
    for kinds in ((), (OBSERVATION, ACTION, REWARD)):
        flags = {kind: kind in kinds for kind in (OBSERVATION, ACTION, REWARD)}
        simulation = GymMazeEnv("Pendulum-v1")
        split = DiscretizeActionsWrapper(simulation, {"action": {"num_bins": 5}})
        env = MazeEnvMonitoringWrapper(Doubled(split), **flags)
        env.env = simulation  # as for bundles, which contain the two others
        other = GymMazeEnv("Pendulum-v1")
        np.testing.assert_equal(env.reset(seed=1), other.reset(seed=1))
        action = {"action": np.array([0.3], np.float32)}
        np.testing.assert_equal(env.step(action), other.step(action))
        parts = env.step_in_parts(action)
        assert next(parts) == action
        shown = {key[1] for key in env.end_episode() if key[0] == "ActionEvents"}
        assert shown == ({"continuous_action"} if kinds else set())


def test_watching_leaves_what_happens_as_it_is() -> None:
    logs = []
    for wrap in (monitored, lambda env: env):
        env = wrap(Doubled(GymMazeEnv("CartPole-v1")))
        observation, _ = env.reset(seed=3)
        log = [observation["observation"].tolist()]
        for place in range(60):
            observation, reward, terminated, *_ = env.step({"action": place % 2})
            log.append([observation["observation"].tolist(), reward, terminated])
            if terminated:
                env.reset()
        logs.append(log)
    assert logs[0] == logs[1]


def test_steps_that_a_reset_skips_count_in_the_first_reward_and_attempts_that_end_do_not() -> None:
    env = LogStatsWrapper(monitored(RandomResetWrapper(GymMazeEnv("CartPole-v1"), 20, 20), REWARD))
    for seed in range(3):
        env.reset(seed=seed)
        while not any(env.step({"action": 0})[2:4]):
            continue
        (summary,) = env.drain_episode_summaries()
        shown = {key[1]: value for key, value in summary.statistics.items() if key[0] == "RewardEvents"}
        assert shown == {"reward_original": summary.reward, "reward_processed": summary.reward - 20}
        assert summary.samples["RewardEvents", "reward_original", "steps", ()][0] == 21


def test_rewards_are_as_before_where_an_episode_is_played_again_with_other_statistics() -> None:
    def make() -> MazeEnvMonitoringWrapper:
        return monitored(ReturnNormalizationRewardWrapper(GymMazeEnv("Pendulum-v1")), REWARD)

    def go_on(env: MazeEnvMonitoringWrapper, n_steps: int) -> None:
        for _ in range(n_steps):
            env.step({"action": np.ones(1, np.float32)})

    whole, resumed = make(), make()
    whole.reset(seed=1)
    go_on(whole, 20)
    for env in (whole, resumed):  # the second one does so to get where the first one was
        env.reset(seed=2)
        go_on(env, 60)
    assert whole.state_dict() != resumed.state_dict()
    for to, of in zip(wrappers_of(resumed), wrappers_of(whole), strict=True):
        to.load_state_dict(of.state_dict())
    for env in (whole, resumed):
        go_on(env, 60)
    assert resumed.state_dict() == whole.state_dict()
    np.testing.assert_equal(resumed.end_episode(), whole.end_episode())


def test_environments_in_processes_of_their_own_show_the_same() -> None:
    def make() -> Any:
        return ObservationVisualizationWrapper.wrap(
            monitored(GymMazeEnv("CartPole-v1")), plot_function="maze_pl.events.display.create_violin_plot"
        )

    found = []
    for kind in (SequentialVectorEnv, SubprocVectorEnv):
        vector = kind([make, make], seed=5)
        try:
            vector.reset()
            for place in range(60):
                vector.staging.action[0]["action"][:] = place // 2 % 2
                vector.step()
            found.append(vector.drain_summaries())
        finally:
            vector.close()
    assert len(found[0]) >= 2
    for one, other in zip(*found, strict=True):
        assert len(one.samples) == 6
        np.testing.assert_equal(one.samples, other.samples)
        assert one.statistics.keys() == other.statistics.keys()


def test_pictures_of_actions_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'action_logging=True needs matplotlib: pip install "maze-pl\[rendering\]"'):
        monitored(GymMazeEnv("CartPole-v1"), ACTION)
    assert play(monitored(GymMazeEnv("CartPole-v1"), OBSERVATION), 5)
