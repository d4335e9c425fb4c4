"""Records of the acts of a policy, compared with those of the wrapper that records each environment."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.act_recorder import ActRecorder
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.ride_hailing import ride_hailing_factory
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.envs.wrappers.spaces_recording_wrapper import SpacesRecordingWrapper
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.envs.structured_example import make_heap_env

ENVS: dict[str, tuple[Any, dict[Any, int] | None]] = {
    "flat": (partial(make_gym_maze_env, "CartPole-v1"), None),
    "boxes": (partial(make_gym_maze_env, "Pendulum-v1"), None),
    "sub-steps": (partial(masked_struct_env_factory, 10, (4, 3), [(1, 2), (2, 2), (1, 1)]), None),
    "attributed rewards": (make_heap_env, None),
    "agents that come and go": (ride_hailing_factory, {"vehicle": 16}),
}


class Exaggerated(RandomPolicy):
    """Samples boxes far beyond their bounds."""

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        action = super().act(batch, **options).action
        return PolicyStep({head: value * 3 if value.dtype.kind == "f" else value for head, value in action.items()})


def recorded_env(make: Any, max_agents: Any) -> SpacesRecordingWrapper:
    return SpacesRecordingWrapper(TimeLimitWrapper(make(), max_episode_steps=15), None, 1, max_agents)


def last_record(env: Any) -> SpacesTrajectoryRecord:
    record: SpacesTrajectoryRecord = env.trajectories[-1]
    return record


@pytest.mark.parametrize("name", ENVS)
def test_records_equal_those_of_the_recording_wrapper(name: str) -> None:
    make, max_agents = ENVS[name]
    n_envs = 4
    factories = [partial(recorded_env, make, max_agents)] * n_envs
    spec = Spec.of(make(), max_agents)
    vector = SequentialVectorEnv(factories, seed=5, autoreset=False, spec=spec)
    steps = vector.spec.steps.items()
    policy = Exaggerated({key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps})
    recorder = ActRecorder(vector, policy)
    recorder.play(2, torch.Generator().manual_seed(1))
    expected = vector.of_each(last_record, list(range(n_envs)))
    lengths = set()
    for env, reference in enumerate(expected):
        record = recorder.record_of(env, "a run", env)
        for field in ("key_index", "agent_id", "env_time", "reward", "actor_done", "actor_reward"):
            np.testing.assert_equal(getattr(record, field), getattr(reference, field), field)
        for field in ("observation", "action", "last_observation"):
            np.testing.assert_equal(getattr(record, field), getattr(reference, field), field)
        for field in ("terminated", "truncated", "last_env_time", "last_actor"):
            assert getattr(record, field) == getattr(reference, field), field
        assert SpacesTrajectoryRecord.from_bytes(bytearray(record.to_bytes())).episode_id == record.episode_id
        lengths.add(len(record))
    assert min(lengths) > 2
    assert len({recorder.record_of(env, "a run", env).episode_id for env in range(n_envs)}) == n_envs
    if name == "flat":
        assert len(lengths) > 1  # episodes end at different times
