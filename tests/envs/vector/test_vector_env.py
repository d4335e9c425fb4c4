"""Vector environments give the same numbers however their environments are spread, and say what went wrong."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.engines import InProcessEngine
from maze_pl.core.batches import Rollout
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, make_gym_maze_env
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.system import time_limit
from maze_pl.system.lost_process import LostProcessError
from tests.datamodules.drift import Drift
from tests.datamodules.slow import SlowToMake
from tests.envs.vector.globally_random import make_globally_random
from tests.equality import assert_equal
from tests.structured import hierarchy, team


def rollouts_of(vector: VectorEnv, n: int = 3, n_rollout_steps: int = 40) -> list[Rollout]:
    try:
        policy = RandomPolicy({key: step.action_space for key, step in vector.spec.steps.items()})
        collector = Collector(vector, n_rollout_steps, torch.Generator().manual_seed(3))
        return [collector.collect(policy).clone() for _ in range(n)]
    finally:
        vector.close()


@pytest.mark.parametrize("make_env", [partial(make_gym_maze_env, "CartPole-v1"), team.make_env, hierarchy.make_env])
def test_subprocess_and_sequential_environments_give_identical_rollouts(make_env: Any) -> None:
    sequential = rollouts_of(SequentialVectorEnv([make_env] * 3, seed=5))
    subprocess = rollouts_of(SubprocVectorEnv([make_env] * 3, seed=5, n_workers=2))
    assert sum(len(rollout.summaries) for rollout in sequential) > 0
    assert_equal(sequential, subprocess)
    limited = rollouts_of(SubprocVectorEnv([make_env] * 3, seed=5, n_workers=1, step_timeout=60))
    assert_equal(sequential, limited)


def test_global_generators_of_processes_follow_the_seeds_and_differ() -> None:
    def observed(torch_seed: int, seed: int) -> np.ndarray[Any, Any]:
        torch.manual_seed(torch_seed)
        vector = SubprocVectorEnv([make_globally_random] * 2, seed=seed, n_workers=2)
        rollout = rollouts_of(vector, n=1, n_rollout_steps=3)[0]
        return rollout.segments[0].observation["observation"].numpy()  # [3, 2, 2]

    first, again = observed(7, seed=1), observed(7, seed=1)
    assert np.array_equal(first, again)
    others = [observed(8, seed=1), observed(7, seed=2)]
    for generator in range(2):
        drawn = np.concatenate([part[..., generator].ravel() for part in (first, *others)])
        assert len(np.unique(drawn)) == len(drawn) == 18


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


@pytest.mark.slow
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


class Hanging(GymMazeEnv):
    """Does not return from a step or reset, and keeps Python's lock for itself if asked to."""

    def __init__(self, hangs_in: str, locked: bool) -> None:
        super().__init__("CartPole-v1")
        self.hangs_in, self.locked, self.n_steps, self.n_resets = hangs_in, locked, 0, 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.hangs_in == "step" and self.n_steps == 3:
            self.hang()
        return super().step(action)

    def reset(self, **options: Any) -> Any:
        self.n_resets += 1
        if self.hangs_in == "reset" and self.n_resets == 2:
            self.hang()
        return super().reset(**options)

    def hang(self) -> None:
        if self.locked:
            ctypes.PyDLL(None).sleep(1000)
        time.sleep(1000)


@pytest.mark.parametrize(
    ("hangs_in", "locked", "message"),
    [
        (
            "step",
            False,
            r"a step within step_timeout=0.3 s in episode 0 with seed {}, after action {{'action': 1}} of s",
        ),
        pytest.param(
            "step",
            True,
            r"a step within step_timeout=0.3 s in episode 0 with seed {}, after action {{'action': 1}} of s",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "reset",
            False,
            r"a reset within step_timeout=0.3 s in episode 4 with seed {}; its process was ended",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_environment_that_hangs_is_ended_and_named(hangs_in: str, locked: bool, message: str) -> None:
    factories = [partial(make_gym_maze_env, "CartPole-v1"), partial(Hanging, hangs_in, locked)]
    vector = SubprocVectorEnv(factories, n_workers=1, step_timeout=0.3, seed=7, first_env_index=10)
    vector.reset()
    vector.staging.action[0]["action"][...] = [0, 1]
    seed = derive_seed(7, "env", 11, 4 if hangs_in == "reset" else 0)
    expected = rf"environment 11 \(CartPole-v1\) did not finish {message.format(seed)}"
    with pytest.raises(LostProcessError, match=expected):
        for _ in range(3):
            vector.step()
        vector.reset([1], [4])
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_an_environment_that_hangs_while_it_is_made_is_ended_named_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time_limit, "LEAST_SECONDS_TO_MAKE", 5.0)  # includes imports on a busy machine
    factories = [Drift, partial(SlowToMake, str(tmp_path / "made"))]
    options: dict[str, Any] = {"spec": Spec.of(make_wrapped(Drift)), "step_timeout": 0.3, "first_env_index": 10}
    engine = InProcessEngine()
    engine.start(lambda *_: SubprocVectorEnv(factories, n_workers=1, **options), None)
    engine.submit(0, "episodes")
    done = engine.get()
    engine.close()
    assert (done.result, done.restarts) == ([0, 0], 1)
    assert "environment 11 was not made within 5 s; its process was ended; player 0" in caplog.text


def make_and_hang() -> GymMazeEnv:
    time.sleep(1000)
    return make_gym_maze_env("CartPole-v1")


def test_an_environment_that_hangs_while_its_spaces_are_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "LEAST_SECONDS_TO_MAKE", 0.1)
    with pytest.raises(
        LostProcessError, match=r"making the environment has not returned within 0.1 s; .* in make_and_h"
    ):
        SubprocVectorEnv([make_and_hang], step_timeout=0.05)


class Sleeping(GymMazeEnv):
    """Has a step of a tenth of a second."""

    def step(self, action: Any) -> Any:
        time.sleep(0.1)
        return super().step(action)


@pytest.mark.slow
def test_the_time_limit_holds_for_each_step_and_not_for_all_of_a_process() -> None:
    vector = SubprocVectorEnv([partial(Sleeping, "CartPole-v1")] * 8, n_workers=1, step_timeout=0.6)
    vector.reset()
    vector.step()
    vector.close()


@pytest.mark.parametrize(
    ("value", "kind"), [(0, ValueError), (-1.0, ValueError), (np.inf, ValueError), ("5", TypeError)]
)
def test_a_time_limit_that_makes_no_sense_is_refused(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"step_timeout={value!r} of SubprocVectorEnv must be"):
        SubprocVectorEnv([partial(make_gym_maze_env, "CartPole-v1")], step_timeout=value)


def test_lambdas_reach_workers() -> None:
    rollout = rollouts_of(SubprocVectorEnv([lambda: make_gym_maze_env("CartPole-v1")], n_workers=1), n=1)[0]
    assert rollout.env_steps == 40


def test_a_factory_that_makes_no_environment_is_refused() -> None:
    with pytest.raises(TypeError, match="not a gymnasium environment"):
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
