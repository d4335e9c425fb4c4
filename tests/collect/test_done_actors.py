"""Ends of actors that are told when the environment step ends equal ends that are told in their acts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.act_recorder import ActRecorder
from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_episodes
from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv
from maze_pl.envs.wrappers import SpacesRecordingWrapper, TrajectoryRecordingWrapper
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.collect.collectors import DynamicCoreEnv, random_policy
from tests.collect.random_scripts import episodes
from tests.collect.scripted import Act, Choose, Episode, Observe, Script, make_env
from tests.envs.late_ends import LateEnds
from tests.equality import assert_equal

FIXED = (2, 3)
DONE_IN_A_STEP = (
    Act(0, 0, 1.0, 1.0, 0),
    Act(1, 0, 2.0, 2.0, 0, actor_done=True),
    Act(1, 2, 3.0, 3.0, 0),
    Act(0, 0, 4.0, 4.0, 0, actor_done=True),  # its second act in the step
    Act(0, 1, 5.0, 5.0, 1),
    Act(1, 2, 6.0, 6.0, 0, actor_done=True),
    Act(0, 1, 7.0, 7.0, 1),
    Act(1, 1, 8.0, 8.0, 0),
    Act(0, 1, 9.0, 9.0, 1),
)
SCRIPT = Script(FIXED, True, tuple((Episode(DONE_IN_A_STEP, n == 1, (1, 1)),) for n in range(2)))


def late(script: Script, index: int) -> LateEnds:
    return LateEnds(make_env(script, index))


def factories(make: Any, script: Script) -> list[Any]:
    return [partial(make, script, index) for index in range(len(script.episodes))]


def require_equal_rollouts(script: Script, vector: Any, n_rollouts: int = 3, n_rollout_steps: int = 3) -> None:
    collectors = []
    for envs in (SequentialVectorEnv(factories(make_env, script)), vector):
        collectors.append(Collector(envs, n_rollout_steps, torch.Generator().manual_seed(0)))
    for _ in range(n_rollouts):
        expected, found = (collector.collect(random_policy(collector)) for collector in collectors)
        assert_equal(expected.rows, found.rows)
        assert_equal(expected.segments, found.segments)
        assert_equal(expected.finals, found.finals)


@pytest.mark.parametrize("kind", [SequentialVectorEnv, SubprocVectorEnv])
def test_the_latest_act_of_an_actor_in_the_step_is_its_last(kind: Any) -> None:
    vector = kind(factories(late, SCRIPT))
    require_equal_rollouts(SCRIPT, vector)
    vector.close()
    collector = Collector(SequentialVectorEnv(factories(late, SCRIPT)), 4, torch.Generator())
    segments = collector.collect(random_policy(collector)).segments
    ends = {(key, int(agent)) for key in (0, 1) for agent in segments[key].agent_id[segments[key].actor_done]}
    assert ends == {(0, 0), (1, 0), (1, 2)}


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plays=st.lists(episodes(FIXED, FIXED), min_size=2, max_size=3), n=st.integers(1, 4))
def test_rollouts_do_not_depend_on_how_ends_are_told(plays: list[Episode], n: int) -> None:
    script = Script(FIXED, False, tuple((play,) for play in plays))
    if all(sum(act.advance for act in play.acts) for play in plays):  # others are refused
        require_equal_rollouts(script, SequentialVectorEnv(factories(late, script)), 2, n)


def make_dynamic(acts: list[Act]) -> LateEnds:
    script = Script((1,), False, ((Episode(tuple(acts), False, (0, 0)),),))
    return LateEnds(MazeEnv(DynamicCoreEnv(script, 0), {0: Choose()}, {0: Observe()}))


COMING = [Act(0, agent, 1.0, 0.0, int(agent % 2 == 1), actor_done=True) for agent in range(8)]


def test_the_slots_of_actors_that_are_done_with_the_step_are_free_in_the_next_one() -> None:
    vector = SequentialVectorEnv([partial(make_dynamic, COMING)], spec=Spec.of(make_dynamic(COMING), {0: 2}))
    collector = Collector(vector, 4, torch.Generator())
    for _ in range(2):
        segment = collector.collect(random_policy(collector)).segments[0]
        assert segment.agent_id.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert segment.actor_done.all() and segment.is_first.all()


def test_evaluations_release_actors_that_are_done_with_the_step() -> None:
    spec = Spec.of(make_dynamic(COMING), {0: 2})
    vector = SequentialVectorEnv([partial(make_dynamic, COMING)] * 2, spec=spec, autoreset=False)
    summaries = play_episodes(vector, random_policy(vector), [0, 1], deterministic=True)
    assert [summary.reward for summary in summaries] == [8.0, 8.0]
    again = [*COMING[:2], Act(0, 0, 1.0, 0.0, 1)]
    vector = SequentialVectorEnv([partial(make_dynamic, again)], spec=spec, autoreset=False)
    with pytest.raises(ValueError, match="agent 0 of sub-step 0 acts after it was done"):
        play_episodes(vector, random_policy(vector), [0], deterministic=True)


class Wrong(LateEnds):
    """Names an actor that has not acted in the step."""

    def get_done_actors(self) -> list[ActorID]:
        return [ActorID(1, 1)]


def test_an_actor_that_has_not_acted_in_the_step_is_refused() -> None:
    collector = Collector(SequentialVectorEnv([lambda: Wrong(make_env(SCRIPT, 0))]), 2, torch.Generator())
    message = r"environment 0: get_done_actors\(\) names agent 1 of sub-step 1, which has not acted in the environment"
    with pytest.raises(ValueError, match=message):
        collector.collect(random_policy(collector))


@pytest.mark.parametrize("actor", [ActorID(1, 7), ActorID(0, -1), ActorID("other", 0)])
def test_evaluations_refuse_an_actor_that_does_not_exist(actor: ActorID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "get_done_actors", lambda _: [actor])
    vector = SequentialVectorEnv([lambda: Wrong(make_env(SCRIPT, 0))], autoreset=False)
    message = rf"names agent {actor.agent_id} of sub-step {actor.step_key!r}, which agent_counts_dict does not declare"
    with pytest.raises(ValueError, match=message):
        play_episodes(vector, random_policy(vector), [0], deterministic=True)


def recorded(make: Any, index: int) -> Any:
    return SpacesRecordingWrapper.wrap(TrajectoryRecordingWrapper.wrap(make(SCRIPT, index)))


def records(env: Any) -> tuple[SpacesTrajectoryRecord, list[bool]]:
    return env.trajectories[-1], [step.actor_done for step in env.env.env.trajectories[-1].steps]


def test_records_hold_the_ends() -> None:
    vectors = [
        SequentialVectorEnv([partial(recorded, make, index) for index in range(2)], autoreset=False)
        for make in (make_env, late)
    ]
    recorders = [ActRecorder(vector, random_policy(vector)) for vector in vectors]
    for recorder in recorders:
        recorder.play(0, torch.Generator().manual_seed(1))
    expected = [act.actor_done for act in DONE_IN_A_STEP]
    for env in range(2):
        for recorder, vector in zip(recorders, vectors, strict=True):
            assert recorder.record_of(env, "a run", env).actor_done.tolist() == expected
            spaces_record, states = vector.of_each(records, [env])[0]
            assert spaces_record.actor_done.tolist() == states == expected
            np.testing.assert_equal(spaces_record.reward, [act.reward for act in DONE_IN_A_STEP])
