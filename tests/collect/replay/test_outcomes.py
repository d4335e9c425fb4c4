"""Transitions of all environments at once equal those computed act by act: the same numbers in the same order."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maze_pl.collect.collector import Collector
from maze_pl.collect.replay.buffer import ReplayBuffer
from maze_pl.collect.replay.storage import ReplayStorage
from maze_pl.collect.replay.transitions import Transitions
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.spaces import leaves
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv, GymVectorArrayEnv, SequentialVectorEnv, make_pettingzoo_env
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment, masked_struct_env_factory
from maze_pl.envs.ride_hailing import RideHailingArrayEnvironment
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.records.columns import Columns
from tests.collect.collectors import dynamic_envs, random_policy
from tests.collect.random_scripts import script_collector, scripts
from tests.collect.replay.act_by_act import TransitionsActByAct, state_of_earlier_versions
from tests.collect.scripted import Script
from tests.envs.arrays.fuse_vectors import fuses
from tests.envs.relay import make_relay_env
from tests.envs.ride_hailing.small import SHORT

GAMMA = 0.93


def assert_same(found: dict[StepKey, Columns], expected: dict[StepKey, Columns]) -> None:
    """Same step keys, and the same fields of the same types, equal to the last bit."""
    assert found.keys() == expected.keys()
    for key, columns in expected.items():
        assert found[key].keys() == columns.keys()
        parts = {name: found[key][name] for name in columns}
        for array, other in zip(leaves(parts), leaves(columns), strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)


def reloaded(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def check_script(script: Script, n_rollout_steps: int, gamma: float, lost_in: int) -> None:
    """Six rollouts; in one of them, every second environment has lost its episode."""
    collector = script_collector(script, n_rollout_steps)
    policy = random_policy(collector)
    layout = (collector.n_envs, gamma, script.n_slots)
    transitions, expected = Transitions(*layout), TransitionsActByAct(*layout)
    for number in range(6):
        rollout = collector.collect(policy)
        if number == lost_in:
            rollout.starting = torch.arange(collector.n_envs) % 2 == 0
        rollout.flat = False  # flat environments, too
        assert_same(transitions.of(rollout), expected.of(rollout))
        state, transitions = transitions.state_dict(), Transitions(*layout)
        is_old = number % 2 == 0
        transitions.load_state_dict(reloaded(state_of_earlier_versions(expected) if is_old else state))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), n_rollout_steps=st.integers(1, 5), gamma=st.floats(0.5, 1.0), lost_in=st.integers(-1, 3))
def test_scripts_of_any_actors_give_the_transitions_of_the_slow_form(
    script: Script, n_rollout_steps: int, gamma: float, lost_in: int
) -> None:
    check_script(script, n_rollout_steps, gamma, lost_in)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=scripts(), n_rollout_steps=st.integers(1, 5), gamma=st.floats(0.5, 1.0), lost_in=st.integers(-1, 3))
def test_many_scripts_of_any_actors_give_the_transitions_of_the_slow_form(
    script: Script, n_rollout_steps: int, gamma: float, lost_in: int
) -> None:
    check_script(script, n_rollout_steps, gamma, lost_in)


DEMAND = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]


def cutting_2d(n_envs: int) -> ArrayVectorEnv:
    env = partial(StructuredCutting2DArrayEnvironment, 8, (4, 3), DEMAND)
    limit = partial(TimeLimitWrapper, max_episode_steps=11)
    return ArrayVectorEnv(partial(make_wrapped_arrays, env, [limit]), n_envs, seed=3)


def short_cutting_2d() -> Any:
    return TimeLimitWrapper.wrap(masked_struct_env_factory(8, (4, 3), DEMAND), max_episode_steps=11)


def cartpole(n_envs: int) -> ArrayVectorEnv:
    """Episodes follow each other by steps that are not transitions."""
    return ArrayVectorEnv(partial(GymVectorArrayEnv, "CartPole-v1", "vector_entry_point"), n_envs, seed=3)


def ride_hailing(n_envs: int) -> ArrayVectorEnv:
    """The number of vehicles changes, and each begins and ends its shift at another time."""
    make = partial(RideHailingArrayEnvironment, **SHORT)
    return ArrayVectorEnv(make, n_envs, seed=3, spec=Spec.of(make(), {"vehicle": 5}))


def coming_and_going(n_envs: int) -> SequentialVectorEnv:
    factories = dynamic_envs(n_envs)
    return SequentialVectorEnv(factories, spec=Spec.of(factories[0](), max_agents={0: 3}))


VECTORS: dict[str, Callable[[int], Any]] = {
    "cutting_2d": cutting_2d,
    "cutting_2d_one_by_one": lambda n: SequentialVectorEnv([short_cutting_2d] * n),
    "cartpole": cartpole,
    "fuses": lambda n: ArrayVectorEnv(fuses(AutoresetMode.NEXT_STEP), 4, seed=5),
    "team": lambda n: SequentialVectorEnv([partial(make_relay_env, retires=True)] * n),
    "attributed": lambda n: SequentialVectorEnv([partial(make_relay_env, attributed=True)] * n),
    "rock_paper_scissors": lambda n: SequentialVectorEnv([partial(make_pettingzoo_env, "classic/rps-v2")] * n),
    "ride_hailing": ride_hailing,
    "coming_and_going": coming_and_going,
}


@pytest.mark.filterwarnings("ignore")  # of PettingZoo's environments
@pytest.mark.parametrize("n_rollout_steps", [1, 4])
@pytest.mark.parametrize("name", VECTORS)
def test_environments_give_the_transitions_of_the_slow_form(name: str, n_rollout_steps: int) -> None:
    collector = Collector(VECTORS[name](6), n_rollout_steps, torch.Generator().manual_seed(0))
    policy = random_policy(collector)
    n_slots = {key: step.n_slots for key, step in collector.spec.steps.items()}
    layout = (collector.n_envs, GAMMA, n_slots)
    transitions, expected = Transitions(*layout), TransitionsActByAct(*layout)
    n_transitions = n_ends = 0
    for _ in range(60 // n_rollout_steps):
        rollout = collector.collect(policy)
        assert not rollout.flat
        n_ends += int((rollout.rows.terminated | rollout.rows.truncated).sum())
        found = transitions.of(rollout)
        assert_same(found, expected.of(rollout))
        n_transitions += sum(len(columns["reward"]) for columns in found.values())
    assert n_ends > 5 and n_transitions > 150


def n_calls(function: Callable[[Rollout], None], rollout: Rollout) -> int:
    """Number of calls in Python and from Python."""
    counts = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counts
        counts += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(rollout)
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("name", ["cutting_2d", "cartpole"])
@pytest.mark.parametrize("options", [{}, {"n_step": 3, "alpha": 0.6}], ids=str)
def test_storing_takes_the_same_number_of_calls_for_any_number_of_environments(
    name: str, options: dict[str, Any]
) -> None:
    counts = []
    for n_envs in (8, 256):
        collector = Collector(VECTORS[name](n_envs), 2, torch.Generator().manual_seed(0))
        policy = random_policy(collector)
        buffer = ReplayBuffer(collector.spec.steps, n_envs, GAMMA, partial(ReplayStorage, **options), 4096, 0)
        for _ in range(3):
            rollout = collector.collect(policy)
            count = n_calls(buffer.add, rollout)
        counts.append(count)
    assert counts[1] <= counts[0] + 20
