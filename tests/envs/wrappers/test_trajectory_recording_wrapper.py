from __future__ import annotations

import copy
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from maze_pl.collect import Collector
from maze_pl.core.actor_id import ActorID
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.envs import GifFiles, GymMazeEnv, StateTrajectoryRecord, TrajectoryFiles, TrajectoryWriter
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.cutting_2d import struct_env_factory
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.wrappers import (
    LogStatsWrapper,
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    StepSkipWrapper,
    TimeLimitWrapper,
    TrajectoryRecordingWrapper,
)
from tests.envs.line import LineEvents, LineRenderer, make_drawn_line_env, make_line_env
from tests.envs.relay import make_relay_env
from tests.envs.structured_example import TwoHalvesWrapper, make_heap_env


def make_attributed_env() -> Any:
    return make_relay_env(attributed=True)


class Kept(TrajectoryWriter):
    def __init__(self) -> None:
        self.records: list[StateTrajectoryRecord] = []

    def write(self, record: StateTrajectoryRecord) -> None:
        self.records.append(record)


def walk(env: Any, strides: list[int]) -> list[Any]:
    results = [env.reset(seed=3)]
    for stride in strides:
        results.append(env.step({"stride": stride}))
    return results


def test_every_step_is_recorded_and_nothing_in_it_changes_later() -> None:
    env = TrajectoryRecordingWrapper.wrap(RewardScalingWrapper.wrap(make_line_env(goal=4), scale=0.5))
    walk(env, [0, 0, 1])
    env.reset()
    (record,) = env.trajectories
    assert [step.env_time for step in record.steps] == [0, 1, 2]
    assert [step.maze_state["trail"] for step in record.steps] == [[0], [0, 1], [0, 1, 2]]
    assert record.last_maze_state == {"trail": [0, 1, 2, 4]}
    assert [step.maze_action for step in record.steps] == [1, 1, 2]
    assert [step.reward for step in record.steps] == [0.5, 0.5, 1.0]
    assert [(step.terminated, step.truncated) for step in record.steps] == [(False, False)] * 2 + [(True, False)]
    assert [step.info["trail"] for step in record.steps] == [[0, 1], [0, 1, 2], [0, 1, 2, 4]]
    assert [int(step.serializable_components["length"]) for step in record.steps] == [1, 2, 3]
    assert [event.event.__name__ for event in record.steps[0].events] == ["placed", "moved", "reward"]
    assert [event.event.__name__ for event in record.steps[1].events] == ["moved", "reward"]
    assert record.steps[0].events[1].attributes["trail"] == [0, 1]
    log = record.event_log()
    assert [len(step.events) for step in log.step_event_logs] == [3, 2, 2]
    assert [event.attributes["distance"] for event in log.query_events(LineEvents.moved)] == [1, 1, 2]


def test_the_last_episodes_are_kept_and_each_goes_to_the_writer_once() -> None:
    writer = Kept()
    env = TrajectoryRecordingWrapper.wrap(make_line_env(goal=2), writer=writer, n_episodes=2)
    for _ in range(3):
        walk(env, [0, 0])
    env.reset()
    env.step({"stride": 0})  # given up
    env.reset()  # not begun
    env.close()
    env.close()
    assert [len(record.steps) for record in writer.records] == [2, 2, 2, 1]
    assert list(env.trajectories) == writer.records[-2:]
    assert not writer.records[-1].steps[-1].terminated
    assert len({record.episode_id for record in writer.records}) == 2  # the same seed, the same id


def test_a_limit_further_out_ends_the_record_too() -> None:
    writer = Kept()
    env = LogStatsWrapper.wrap(
        TimeLimitWrapper.wrap(
            TrajectoryRecordingWrapper.wrap(make_line_env(), writer=writer, n_episodes=0), max_episode_steps=2
        )
    )
    walk(env, [0, 0])
    assert [len(record.steps) for record in writer.records] == [2]


def test_recorded_states_become_what_was_seen_and_done() -> None:
    normalized = ObservationNormalizationWrapper.wrap(
        GymMazeEnv("CartPole-v1"), default_strategy_config={"clip_range": [-3, 3], "axis": 0}
    )
    env = LogStatsWrapper.wrap(TrajectoryRecordingWrapper.wrap(normalized, n_episodes=100))
    env.estimate(100, seed=1)
    observation, _ = env.reset(seed=5)
    seen, done = [], []
    terminated = False
    while not terminated:
        seen.append(observation["observation"])
        done.append(len(done) % 2)
        observation, _, terminated, _, _ = env.step({"action": done[-1]})
    assert len(env.trajectories) == 1, "episodes that statistics were estimated from are no trajectories"
    for place, step in enumerate(env.trajectories[0].steps):
        observations, actions = env.get_observation_and_action_dicts(step.maze_state, step.maze_action, place == 0)
        assert observations is not None and actions is not None
        np.testing.assert_array_equal(observations[0]["observation"], seen[place])
        assert actions[0]["action"] == done[place]


def test_sub_steps_of_which_a_wrapper_only_makes_a_note_are_parts_of_one_recorded_step() -> None:
    env = TrajectoryRecordingWrapper.wrap(
        struct_env_factory(max_pieces_in_inventory=50, raw_piece_size=(20, 20), static_demand=(6, 4))
    )
    observation, _ = env.reset(seed=2)
    generator = np.random.default_rng(0)
    acts = []
    for _ in range(40):
        action = {head: int(generator.integers(2)) for head in env.action_space.spaces}
        acts.append((env.actor_id().step_key, observation, action))
        observation, *_ = env.step(action)
    env.close()
    converted = []
    for place, step in enumerate(env.trajectories[0].steps):
        observations, actions = env.get_observation_and_action_dicts(step.maze_state, step.maze_action, place == 0)
        assert observations is not None and actions is not None
        converted += [(key, observations[key], actions[key]) for key in observations]
    assert len(env.trajectories[0].steps) == 20
    np.testing.assert_equal(converted, acts)


def test_a_simulation_with_several_actors_is_recorded_act_by_act() -> None:
    env = TrajectoryRecordingWrapper.wrap(make_heap_env())
    observation, _ = env.reset(seed=4)
    seen = []
    for _ in range(6):
        seen.append((env.actor_id(), observation, env.get_env_time()))
        observation, *_ = env.step({"amount": 1})
    env.close()
    (record,) = env.trajectories
    assert [(step.actor_id, step.env_time) for step in record.steps] == [(actor, time) for actor, _, time in seen]
    assert record.steps[1].actor_id == ActorID("work", 0)
    for step, (actor, observation, _) in zip(record.steps, seen, strict=True):
        again = env.observation_conversion_dict[actor.step_key].maze_to_space(step.maze_state)
        np.testing.assert_equal(again, observation)
        assert step.maze_action == (actor.step_key, 1)
    names = [[event.event.__name__ for event in step.events] for step in record.steps]
    assert names[:3] == [["cleared", "reward"], ["added", "reward"], ["added", "reward"]]
    assert names[4] == ["reward"]
    assert [len(step.events) for step in record.event_log().step_event_logs] == [8, 3]


def test_an_episode_is_a_file_that_is_read_by_those_who_trust_it(tmp_path: Path) -> None:
    env = TrajectoryRecordingWrapper.wrap(make_line_env(goal=2), writer=TrajectoryFiles(str(tmp_path / "episodes")))
    walk(env, [0, 0])
    env.close()
    path = tmp_path / "episodes" / f"{env.get_episode_id()}.states"
    assert os.listdir(tmp_path / "episodes") == [path.name]
    with pytest.raises(ValueError, match="trust=True"):
        StateTrajectoryRecord.load(path)
    record = StateTrajectoryRecord.load(path, trust=True)
    assert record.episode_id == env.get_episode_id()
    assert [step.maze_state for step in record.steps] == [{"trail": [0]}, {"trail": [0, 1]}]
    assert record.steps[0].events[1].event is LineEvents.moved


@pytest.mark.parametrize("kind", [SequentialVectorEnv, SubprocVectorEnv])
def test_environments_of_a_vector_write_their_episodes(kind: Any, tmp_path: Path) -> None:
    def make() -> Any:
        return TrajectoryRecordingWrapper.wrap(make_line_env(goal=2), writer=TrajectoryFiles(str(tmp_path)))

    vector = kind([make, make], seed=7)
    try:
        vector.reset()
        for _ in range(4):
            vector.staging.action[0]["stride"][:] = 0
            vector.step()
    finally:
        vector.close()
    records = [StateTrajectoryRecord.load(path, trust=True) for path in tmp_path.iterdir()]
    assert sorted(len(record.steps) for record in records) == [2, 2, 2, 2]


def test_what_is_played_again_to_resume_is_part_of_the_episode_and_not_one_of_its_own() -> None:
    writer = Kept()
    env = TrajectoryRecordingWrapper.wrap(make_line_env(goal=3), writer=writer)
    env.reset(seed=1)
    env.context.is_logged = False
    env.step({"stride": 0})
    env.reset(seed=1)
    env.step({"stride": 0})
    env.context.is_logged = True
    walked = env.step({"stride": 1})
    assert walked[2]
    assert [len(record.steps) for record in writer.records] == [2]


def frames_of(path: Path) -> list[np.ndarray]:
    """All frames of a short gif, each as often as it is shown for one state."""
    frames = []
    with Image.open(path) as image:
        for index in range(image.n_frames):
            image.seek(index)
            frames += [np.array(image.convert("RGB"))] * round(image.info["duration"] / 500)
    return frames


def test_an_episode_becomes_a_gif_with_a_frame_for_each_state(tmp_path: Path) -> None:
    env = TrajectoryRecordingWrapper.wrap(make_drawn_line_env(), writer=GifFiles(str(tmp_path)))
    walk(env, [0, 1, 0])
    (path,) = tmp_path.iterdir()
    frames = frames_of(path)
    assert len(frames) == 4
    for frame, place in zip(frames, [0, 1, 3, 4], strict=True):
        red = np.flatnonzero((frame[..., 0] > 200) & (frame[..., 1] < 100)) % frame.shape[1]
        assert abs(red.mean() - (12.5 + 77.5 * (place + 1) / 13)) < 2


def test_a_film_shows_each_step_with_its_action_and_events_as_a_record_is_drawn(tmp_path: Path) -> None:
    renderer = LineRenderer()
    env = TrajectoryRecordingWrapper.wrap(
        StepSkipWrapper.wrap(make_line_env(goal=6, renderer=renderer), n_steps=2), writer=GifFiles(str(tmp_path))
    )
    walk(env, [0, 1])
    assert renderer.calls == [([0], 1, 5, {}), ([0, 1, 2], 2, 4, {}), ([0, 1, 2, 4, 6], None, 0, {})]
    (record,) = env.trajectories
    renderer.calls, calls = [], renderer.calls
    for step in range(3):
        record.draw(renderer, step)
    assert renderer.calls == calls


def test_a_gymnasium_environment_that_is_cut_short_leaves_a_valid_gif(tmp_path: Path) -> None:
    env = TrajectoryRecordingWrapper.wrap(
        GymMazeEnv("CartPole-v1", render_mode="rgb_array"), writer=GifFiles(str(tmp_path))
    )
    env.reset(seed=1)
    for _ in range(5):
        env.step({"action": 1})
    env.close()
    (path,) = tmp_path.iterdir()
    frames = frames_of(path)
    assert len(frames) == 6
    assert frames[0].shape == (400, 600, 3)
    assert (frames[0] != frames[-1]).any()


@pytest.mark.parametrize(
    ("picture", "came"),
    [
        ("hello", r"'hello' of type str"),
        (np.zeros((4, 4, 3)), r"an array of shape \(4, 4, 3\) and type float64"),
        (np.zeros((4, 4, 7), np.uint8), r"an array of shape \(4, 4, 7\) and type uint8"),
    ],
)
def test_a_frame_that_is_not_a_picture_is_refused(picture: Any, came: str, tmp_path: Path) -> None:
    inner = GymMazeEnv("CartPole-v1", render_mode="rgb_array")
    inner.core_env.env.unwrapped.render = lambda: picture  # type: ignore[method-assign]
    env = TrajectoryRecordingWrapper.wrap(inner, writer=GifFiles(str(tmp_path)))
    message = rf"render of CartPole-v1 returned {came}; expected an array \[height, width, 3\] of bytes"
    with pytest.raises(EnvContractError, match=message):
        env.reset(seed=1)


def test_what_nothing_draws_is_refused(tmp_path: Path) -> None:
    for env in (GymMazeEnv("CartPole-v1"), make_line_env()):
        with pytest.raises(ValueError, match=r"nothing draws .*rgb_array.*get_renderer"):
            TrajectoryRecordingWrapper.wrap(env, writer=GifFiles(str(tmp_path)))


def test_a_gif_that_cannot_be_written_leaves_the_former_one(tmp_path: Path) -> None:
    env = TrajectoryRecordingWrapper.wrap(make_drawn_line_env(), writer=GifFiles(str(tmp_path)))
    walk(env, [1, 1])
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    env.trajectories[0].frames[1] = b"no picture"
    with pytest.raises(OSError, match="cannot identify"):
        GifFiles(str(tmp_path)).write(env.trajectories[0])
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == before


def places_in(folder: Path) -> dict[str, int]:
    """Number of frames of each gif, by what follows the episode id in its name."""
    return {path.stem[36:]: len(frames_of(path)) for path in folder.iterdir()}


def walk_and_draw(writer: GifFiles, *episodes: list[int]) -> None:
    """Walk episodes, which all have the same seed and thus the same id."""
    env = TrajectoryRecordingWrapper.wrap(make_drawn_line_env(), writer=writer)
    for strides in episodes:
        walk(env, strides)
    env.close()


@pytest.mark.slow
def test_further_episodes_with_the_same_id_have_other_gifs(tmp_path: Path) -> None:
    walk_and_draw(GifFiles(str(tmp_path)), [0, 1], [1, 0, 0])
    assert places_in(tmp_path) == {"": 3, "-2": 4}
    walk_and_draw(GifFiles(str(tmp_path)), [1, 0, 0], [0, 0], [0, 0, 1])  # repeats one, then adds two
    assert places_in(tmp_path) == {"": 3, "-2": 4, "-3": 3, "-4": 4}
    walk_and_draw(GifFiles(str(tmp_path)), [0, 1, 0])  # continues the first
    assert places_in(tmp_path) == {"": 4, "-2": 4, "-3": 3, "-4": 4}


def test_gifs_of_episodes_with_the_same_id_may_replace_each_other(tmp_path: Path) -> None:
    walk_and_draw(GifFiles(str(tmp_path), keep_all=False), [0, 1], [1, 0, 0])
    assert places_in(tmp_path) == {"": 4}


def test_gifs_that_cannot_be_compared_are_kept_if_they_are_pictures(tmp_path: Path) -> None:
    walk_and_draw(GifFiles(str(tmp_path)), [0, 1])
    (path,) = tmp_path.iterdir()
    with Image.open(path) as image:
        image.save(path, "GIF", comment=b"")
    walk_and_draw(GifFiles(str(tmp_path)), [0, 1])
    assert set(places_in(tmp_path)) == {"", "-2"}
    path.write_bytes(b"no picture")
    walk_and_draw(GifFiles(str(tmp_path)), [0, 0])
    assert places_in(tmp_path) == {"": 3, "-2": 3}


def test_ids_become_names_of_gifs_in_the_folder(tmp_path: Path) -> None:
    env = TrajectoryRecordingWrapper.wrap(make_drawn_line_env(), writer=GifFiles(str(tmp_path / "kept")))
    walk(env, [1])
    env.close()
    for keep_all in (True, False):
        record = copy.copy(env.trajectories[0])
        record.episode_id = f"../{keep_all}: a"
        GifFiles(str(tmp_path / "named"), keep_all=keep_all).write(record)
    assert sorted(os.listdir(tmp_path / "named")) == [".._False__a.gif", ".._True__a.gif"]


@pytest.mark.parametrize("frames_per_second", [0.0, -1.0, 60.0, float("nan")])
def test_speeds_that_no_gif_has_are_refused(frames_per_second: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 50"):
        GifFiles(frames_per_second=frames_per_second)


@pytest.mark.parametrize(
    ("n_frames", "given", "seconds"), [(4, None, 2.0), (100, None, 20.0), (100, 50.0, 2.0), (800, None, 40.0)]
)
def test_few_decisions_are_shown_slowly_unless_a_speed_is_given(
    n_frames: int, given: float | None, seconds: float, tmp_path: Path
) -> None:
    env = TrajectoryRecordingWrapper.wrap(make_drawn_line_env(), writer=GifFiles(str(tmp_path / "first")))
    walk(env, [1])
    env.close()
    record = copy.copy(env.trajectories[0])
    small = [io.BytesIO(), io.BytesIO()]
    for place, file in enumerate(small):
        Image.new("L", (2, 2), 200 * place).save(file, "PNG")
    record.frames = [small[number % 2].getvalue() for number in range(n_frames)]
    GifFiles(str(tmp_path / "second"), frames_per_second=given).write(record)
    (path,) = (tmp_path / "second").iterdir()
    with Image.open(path) as film:
        total = 0
        for number in range(film.n_frames):
            film.seek(number)
            total += film.info["duration"]
    assert total == pytest.approx(1000 * seconds)


def test_a_hand_written_loop_draws_online() -> None:
    renderer = LineRenderer()
    env = RewardScalingWrapper.wrap(make_line_env(renderer=renderer), scale=2.0)
    env.reset()
    pictures = [env.render()]
    env.step({"stride": 1})
    pictures.append(env.render())
    assert [picture.shape for picture in pictures] == [(50, 100, 3)] * 2
    assert pictures[0].dtype == np.uint8
    assert renderer.calls == [([0], None, 1, {}), ([0], 2, 3, {})]
    with pytest.raises(NotImplementedError, match="has no renderer; return one from its get_renderer"):
        make_line_env().render()


@pytest.mark.parametrize("make_inner", [lambda: GymMazeEnv("CartPole-v1"), make_attributed_env])
def test_a_resumed_run_records_rewards_as_they_were(make_inner: Any) -> None:
    writers = Kept(), Kept()

    def collector(writer: Kept) -> Collector:
        inner = ReturnNormalizationRewardWrapper.wrap(make_inner(), gamma=0.9)
        vector = SequentialVectorEnv([lambda: TrajectoryRecordingWrapper.wrap(inner, writer=writer)], seed=3)
        return Collector(vector, 7, torch.Generator().manual_seed(1))

    whole, resumed = map(collector, writers)
    policy = RandomPolicy({key: step.action_space for key, step in whole.spec.steps.items()})
    for _ in range(10):
        whole.collect(policy)
    resumed.load_state_dict(whole.state_dict())
    writers[0].records.clear()
    for _ in range(10):
        whole.collect(policy)
        resumed.collect(policy)
    assert len(writers[0].records) > 1

    def rewards(writer: Kept) -> list[Any]:
        return [[(step.reward, step.actor_rewards) for step in record.steps] for record in writer.records]

    assert rewards(writers[0]) == rewards(writers[1])


def test_rewards_of_acts_of_which_a_wrapper_only_makes_a_note_belong_to_the_decision() -> None:
    states = TrajectoryRecordingWrapper.wrap(TwoHalvesWrapper(GymMazeEnv("CartPole-v1")))
    states.reset(seed=1)
    for _ in range(3):
        states.step({"act": 1})
        states.step({"action": 1})
    states.step({"act": 1})
    states.close()
    (record,) = states.trajectories
    assert [step.actor_rewards for step in record.steps] == [[0.5, 0.5]] * 3
    assert (record.last_env_time, record.is_attributed) == (3, True)
