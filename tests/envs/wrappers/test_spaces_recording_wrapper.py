from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect import Collector
from maze_pl.core.actor_id import ActorID
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GifFiles, GymMazeEnv, TrajectoryFiles, TrajectoryWriter, check_env, read_trajectories
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    SpacesRecordingWrapper,
    TimeLimitWrapper,
)
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.collect.scripted import Act, Episode, Script, make_env
from tests.envs.scripted import Scripted
from tests.envs.structured_example import HeapCoreEnv, TwoHalvesWrapper, make_heap_env


class Kept(TrajectoryWriter):
    def __init__(self) -> None:
        self.records: list[Any] = []

    def write(self, record: Any) -> None:
        self.records.append(record)


def play(env: Any, n_acts: int, seed: int = 3) -> list[tuple[Any, ...]]:
    """Random acts; of each what an onlooker knows."""
    generator = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed)
    acts = []
    for _ in range(n_acts):
        key, agent = env.actor_id()
        for space in env.action_space.spaces.values():
            space.seed(int(generator.integers(1000)))
        action, env_time = env.action_space.sample(), env.get_env_time()
        seen, observation = observation, None
        observation, reward, terminated, truncated, _ = env.step(action)
        acts.append((key, agent, env_time, reward, env.is_actor_done(), seen, action))
        if terminated or truncated:
            break
    return [*acts, (observation, terminated, truncated)]


def assert_shows(record: SpacesTrajectoryRecord, played: list[tuple[Any, ...]]) -> None:
    acts, (last, terminated, truncated) = played[:-1], played[-1]
    keys = record.spec.step_keys
    assert [keys[index] for index in record.key_index] == [act[0] for act in acts]
    assert record.agent_id.tolist() == [act[1] for act in acts]
    assert record.env_time.tolist() == [act[2] for act in acts]
    assert record.reward.tolist() == [act[3] for act in acts]
    assert record.actor_done.tolist() == [act[4] for act in acts]
    for key, step in record.spec.steps.items():
        for place, tree, space in (
            (5, record.observation, step.observation_space),
            (6, record.action, step.action_space),
        ):
            assert list(tree[key]) == list(space.spaces)
            for name, part in space.spaces.items():
                column = [act[place][name] for act in acts if act[0] == key]
                assert (tree[key][name].shape, tree[key][name].dtype) == ((len(column), *part.shape), part.dtype)
                np.testing.assert_array_equal(tree[key][name], np.reshape(column, tree[key][name].shape))
    assert (record.terminated, record.truncated) == (terminated, truncated)
    np.testing.assert_equal(record.last_observation, {} if terminated else last)


def test_a_flat_episode_is_recorded_as_the_agent_lived_through_it() -> None:
    inner = TimeLimitWrapper.wrap(GymMazeEnv("CartPole-v1"), max_episode_steps=12)
    env = SpacesRecordingWrapper.wrap(RewardScalingWrapper.wrap(inner, scale=0.5))
    for seed in range(20):
        played = play(env, 12, seed)
        (record,) = env.trajectories
        assert_shows(record, played)
        assert record.last_env_time == len(record) == len(played) - 1
        assert record.last_actor == (None if record.terminated else ActorID(0, 0))
        assert record.actor_reward is None
    assert {len(play(env, 12, seed)) for seed in range(20)} > {13}, "some are cut off by the limit and some terminate"


def test_arrays_that_change_later_do_not_change_the_record() -> None:
    env = SpacesRecordingWrapper.wrap(GymMazeEnv(Scripted([1.0, 2.0, 3.0], truncate_at=2)))
    observation, _ = env.reset(seed=1)
    action = np.zeros(1, np.float32)
    for _ in range(2):
        after, *_ = env.step({"action": action})
        observation["observation"][:] = np.nan
        observation = after
        action += 1
    observation["observation"][:] = np.nan
    (record,) = env.trajectories
    np.testing.assert_array_equal(record.observation[0]["observation"], [[0, 0], [1, 10]])
    np.testing.assert_array_equal(record.action[0]["action"], [[0], [1]])
    np.testing.assert_array_equal(record.last_observation["observation"], [2, 20])


def test_several_actors_are_recorded_with_the_rewards_that_are_attributed_to_them() -> None:
    env = SpacesRecordingWrapper.wrap(make_heap_env())
    played = play(env, 100)
    (record,) = env.trajectories
    assert_shows(record, played)
    assert record.terminated
    assert len(record) == 2 * 4 + 2 * 3
    assert record.last_env_time == 4
    assert record.actor_reward is not None
    np.testing.assert_array_equal(record.actor_reward, record.reward)  # in this environment


def test_sub_steps_that_a_wrapper_makes_are_recorded() -> None:
    inner = TwoHalvesWrapper(TimeLimitWrapper.wrap(GymMazeEnv("CartPole-v1"), max_episode_steps=5))
    env = SpacesRecordingWrapper.wrap(inner)
    played = play(env, 100)
    (record,) = env.trajectories
    assert_shows(record, played)
    assert record.truncated
    assert record.last_actor == ActorID("whether", 0)
    assert record.actor_reward is not None
    assert record.actor_reward.tolist() == [0.5] * 10


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda rewards, time: rewards[:-1], r"returned shape \(3,\) for 4 acts; return one reward for each act"),
        (lambda rewards, time: np.append(rewards, 1.0), r"returned shape \(5,\) for 4 acts"),
        (lambda rewards, time: rewards[:, np.newaxis], r"returned shape \(4, 1\) for 4 acts"),
        (lambda rewards, time: None if time == 2 else rewards, "returned None after the opposite before; attribute"),
        (lambda rewards, time: rewards if time == 2 else None, "returned an array after the opposite before"),
    ],
)
def test_rewards_that_cannot_be_attributed_are_refused(returned: Any, message: str) -> None:
    class Odd(HeapCoreEnv):
        def get_actor_rewards(self) -> np.ndarray | None:
            rewards: np.ndarray | None = returned(np.array(self.rewards), self.context.env_time)
            return rewards

    env: Any = make_heap_env()
    env.core_env.__class__ = Odd
    with pytest.raises(EnvContractError, match=rf"get_actor_rewards\(\) of Odd {message}"):
        play(SpacesRecordingWrapper.wrap(env), 8)
    report = check_env(env, n_steps=50)
    (line,) = (line for line in report.lines if line.verdict == "error")
    assert line.name == "steps" and re.search(message, line.explanation)


def crowd(attributed: bool = True) -> Any:
    acts = (Act(0, 0, 1.0, 0.25, 0), Act(0, 1, 2.0, 0.5, 1), Act(0, 2, 4.0, 1.0, 0, True), Act(0, 7, 8.0, 2.0, 3))
    return make_env(Script((-1,), attributed, ((Episode(acts, True, (0, 7)),),)), 0)


@pytest.mark.parametrize("attributed", [False, True])
def test_agents_that_come_and_go_are_recorded(attributed: bool) -> None:
    env = SpacesRecordingWrapper.wrap(crowd(attributed), max_agents={0: 3})
    played = play(env, 4)
    (record,) = env.trajectories
    assert_shows(record, played)
    assert record.agent_id.tolist() == [0, 1, 2, 7]
    assert record.env_time.tolist() == [0, 0, 1, 1]
    assert record.last_env_time == 4
    assert record.last_actor == ActorID(0, 7)
    assert record.spec == Spec.of(crowd(), max_agents={0: 3})
    assert (None if record.actor_reward is None else record.actor_reward.tolist()) == (
        [0.25, 0.5, 1.0, 2.0] if attributed else None
    )


def test_agents_that_come_and_go_need_a_limit() -> None:
    env = SpacesRecordingWrapper.wrap(crowd())
    message = r"SpacesRecordingWrapper cannot record: .*sub-step 0 changes .*; give it max_agents=\{0: \.\.\.\}, as"
    for _ in range(2):  # also after it was said
        with pytest.raises(ValueError, match=message):
            env.reset()


@pytest.mark.parametrize("how", ["reset", "close", "end_episode"])
def test_an_episode_that_is_given_up_is_recorded_as_far_as_it_went(how: str) -> None:
    writer = Kept()
    env = SpacesRecordingWrapper.wrap(make_heap_env(), writer=writer, n_episodes=3)
    played = play(env, 6)
    getattr(env, how)()
    getattr(env, how)()  # there is nothing more
    (record,) = writer.records
    assert_shows(record, [*played[:-1], (played[-1][0], False, True)])
    assert list(env.trajectories) == [record]
    assert record.last_actor == ActorID("work", 1)
    assert record.actor_reward[:4].tolist() == record.reward[:4].tolist()
    assert np.isnan(record.actor_reward[4:]).all(), "nobody knows what the acts of an unfinished step brought"


def test_a_limit_further_out_truncates_the_record() -> None:
    recording = SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"))
    env = LogStatsWrapper.wrap(TimeLimitWrapper.wrap(recording, max_episode_steps=3))
    play(env, 3)
    assert [(len(one), one.terminated, one.truncated) for one in env.trajectories] == [(3, False, True)]


def test_episodes_that_statistics_are_estimated_from_are_left_out() -> None:
    config = {"clip_range": [-3, 3], "axis": 0}
    normalized = ObservationNormalizationWrapper.wrap(GymMazeEnv("CartPole-v1"), default_strategy_config=config)
    env = LogStatsWrapper.wrap(SpacesRecordingWrapper.wrap(normalized, n_episodes=100))
    env.estimate(100, seed=1)
    env.reset(seed=2)
    assert len(env.trajectories) == 0
    played = play(env, 500)
    (record,) = env.trajectories
    assert_shows(record, played)
    assert np.abs(record.observation[0]["observation"]).max() <= 3


def test_a_resumed_run_records_the_episode_as_a_whole() -> None:
    writer = Kept()

    def make() -> Any:
        return SpacesRecordingWrapper.wrap(make_heap_env(), writer=writer)

    vector = SequentialVectorEnv([make], seed=5)
    actions = {"plan": {"amount": np.array([3])}, "work": {"amount": np.array([1])}}
    history = {"episode": 2, "keys": np.array([0, 1]), "actions": actions}
    vector.replay([history], [{}])
    assert writer.records == []
    for _ in range(12):
        for heads in vector.staging.action.values():
            heads["amount"][0] = 2
        vector.step()
    (record,) = writer.records
    assert len(record) == 14
    assert record.action["plan"]["amount"].tolist() == [3, 2, 2, 2]
    assert record.action["work"]["amount"].tolist() == [1] + [2] * 9


def test_a_resumed_run_records_rewards_as_they_were() -> None:
    writers = Kept(), Kept()

    def collector(writer: Kept) -> Collector:
        inner = ReturnNormalizationRewardWrapper.wrap(GymMazeEnv("CartPole-v1"), gamma=0.9)
        vector = SequentialVectorEnv([lambda: SpacesRecordingWrapper.wrap(inner, writer=writer)], seed=3)
        return Collector(vector, 7, torch.Generator().manual_seed(1))

    whole, resumed = map(collector, writers)
    policy = RandomPolicy({0: whole.spec.steps[0].action_space})
    for _ in range(10):
        whole.collect(policy)
    resumed.load_state_dict(whole.state_dict())
    writers[0].records.clear()
    for _ in range(10):
        whole.collect(policy)
        resumed.collect(policy)
    assert len(writers[0].records) > 1
    for one, other in zip(writers[0].records, writers[1].records, strict=True):
        assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("kind", [SequentialVectorEnv, SubprocVectorEnv])
@pytest.mark.parametrize("name", [None, "all"])
def test_environments_of_a_vector_write_their_episodes(kind: Any, name: str | None, tmp_path: Path) -> None:
    def make() -> Any:
        env = GymMazeEnv(Scripted([1.0, 2.0, 3.0]))
        return SpacesRecordingWrapper.wrap(env, writer=TrajectoryFiles(str(tmp_path), name))

    vector = kind([make, make], seed=7)
    try:
        vector.reset()
        for _ in range(6):
            vector.step()
    finally:
        vector.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == (["all.spaces"] if name else [f"{path.stem}.spaces" for path in files])
    records = [record for path in files for record in read_trajectories(path)]
    assert [record.reward.tolist() for record in records] == [[1.0, 2.0, 3.0]] * 4
    assert len({record.episode_id for record in records}) == 4
    assert len(files) == (1 if name else 4)


def test_a_writer_of_gifs_is_refused_with_the_wrapper_to_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"GifFiles draws episodes, which needs TrajectoryRecordingWrapper"):
        SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"), writer=GifFiles(str(tmp_path)))
