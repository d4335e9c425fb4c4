"""Processes of gymnasium's vector environments: signals to the group of this process, and their unexpected end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

from maze_pl.envs import GymVectorArrayEnv

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


@pytest.fixture
def env() -> Iterator[GymVectorArrayEnv]:
    env = GymVectorArrayEnv("CartPole-v1", vectorization_mode="async")
    env.allocate(2)
    env.reset(np.arange(2), seeds=np.arange(2))
    yield env
    env.close()


def processes(env: GymVectorArrayEnv) -> list[Any]:
    vector = env._vector.unwrapped
    assert isinstance(vector, AsyncVectorEnv)
    return vector.processes


def test_forked_processes_get_no_signals_to_the_group_of_this_process(env: GymVectorArrayEnv) -> None:
    groups = {os.getpgid(process.pid) for process in processes(env)}
    assert len(groups) == 2 and os.getpgrp() not in groups
    assert {os.getsid(process.pid) for process in processes(env)} == {os.getsid(0)}


@pytest.mark.parametrize("is_stepped", [False, True])
@pytest.mark.filterwarnings("error")
def test_closing_after_a_process_has_ended_is_silent_and_ends_the_others(
    env: GymVectorArrayEnv, is_stepped: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    started = processes(env)
    started[0].kill()
    started[0].join()
    if is_stepped:
        with pytest.raises((EOFError, OSError)):
            env.step({0: {"action": np.zeros(2, np.int64)}}, np.arange(2))
    env.close()
    env.close()
    assert not any(process.is_alive() for process in started)
    env._vector.__del__()
    assert capfd.readouterr().err == ""
