"""Vector environments give the same numbers however their environments are spread, and say what went wrong."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.policy import RandomPolicy
from maze_pl.core.rollout import Rollout
from maze_pl.envs import GymMazeEnv, make_gym_maze_env
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from tests.structured import hierarchy, team


def rollouts_of(vector: VectorEnv, n: int = 3, n_rollout_steps: int = 40) -> list[Rollout]:
    try:
        policy = RandomPolicy({key: step.action_space for key, step in vector.spec.steps.items()})
        collector = Collector(vector, n_rollout_steps, torch.Generator().manual_seed(3))
        return [collector.collect(policy).clone() for _ in range(n)]
    finally:
        vector.close()


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            if name != "seconds":
                assert_equal(getattr(one, name), getattr(other, name))
    elif isinstance(one, list):
        assert len(one) == len(other)
        for x, y in zip(one, other, strict=True):
            assert_equal(x, y)
    else:
        assert one == other


@pytest.mark.parametrize("make_env", [partial(make_gym_maze_env, "CartPole-v1"), team.make_env, hierarchy.make_env])
def test_subprocess_and_sequential_environments_give_identical_rollouts(make_env: Any) -> None:
    sequential = rollouts_of(SequentialVectorEnv([make_env] * 3, seed=5))
    subprocess = rollouts_of(SubprocVectorEnv([make_env] * 3, seed=5, n_workers=2))
    assert sum(len(rollout.summaries) for rollout in sequential) > 0
    assert_equal(sequential, subprocess)


def test_environments_and_episodes_have_streams_of_their_own() -> None:
    rollout = rollouts_of(SequentialVectorEnv([partial(make_gym_maze_env, "CartPole-v1")] * 2, seed=1), n=1)[0]
    observation = rollout.segments[0].observation["observation"]
    starts = observation[rollout.segments[0].is_first]
    assert len(starts) > 2
    assert len({tuple(start.tolist()) for start in starts}) == len(starts)


def test_an_action_outside_its_box_is_clipped_before_the_environment_sees_it() -> None:
    vector = SequentialVectorEnv([partial(make_gym_maze_env, "Pendulum-v1")] * 2)
    vector.reset()
    vector.staging.action[0]["action"][...] = [[50.0], [-50.0]]
    vector.step()
    np.testing.assert_array_equal([env.unwrapped.core_env.env.unwrapped.last_u for env in vector.envs], [2.0, -2.0])


class Failing(GymMazeEnv):
    """Fails in its third step."""

    def __init__(self) -> None:
        super().__init__("CartPole-v1")
        self.n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.n_steps == 3:
            raise ArithmeticError("the simulation broke")
        return super().step(action)


def test_an_exception_in_a_worker_is_told_with_its_environments_and_leaves_no_process() -> None:
    vector = SubprocVectorEnv([partial(make_gym_maze_env, "CartPole-v1"), Failing], n_workers=2)
    with pytest.raises(RuntimeError, match=r"(?s)environments 1 to 1 failed: .*the simulation broke"):
        rollouts_of(vector)
    assert not multiprocessing.active_children()


def test_a_killed_worker_is_noticed() -> None:
    vector = SubprocVectorEnv([partial(make_gym_maze_env, "CartPole-v1")] * 2, n_workers=2)
    vector.reset()
    process = vector._workers[1].process
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(RuntimeError, match="environments 1 to 1 failed: its process died"):
        vector.step()
    assert not multiprocessing.active_children()


def test_lambdas_reach_workers() -> None:
    rollout = rollouts_of(SubprocVectorEnv([lambda: make_gym_maze_env("CartPole-v1")], n_workers=1), n=1)[0]
    assert rollout.env_steps == 40


def test_a_factory_that_makes_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match="no gymnasium environment"):
        SequentialVectorEnv([lambda: "CartPole-v1"])


def test_a_script_without_a_main_guard_is_told_what_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from maze_pl.envs import GymMazeEnv\n"
        "from maze_pl.envs.vector import SubprocVectorEnv\n"
        "SubprocVectorEnv([lambda: GymMazeEnv('CartPole-v1')], n_workers=1)\n",
        encoding="utf-8",
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("RuntimeError: environments 0 to 0 failed: its process died with exit code 1 before")
    assert 'below `if __name__ == "__main__":`' in message
