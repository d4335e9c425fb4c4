"""Rollouts whose states are recorded at the simulation, and deployments that get the same states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maze_pl import AgentDeployment
from maze_pl.core.spec import Spec
from maze_pl.envs.building import make_wrapped, shared_states_of, wrapper_stack
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.envs.wrappers import TimeLimitWrapper, TrajectoryRecordingWrapper
from maze_pl.modules import PPO
from maze_pl.runs.rollout import Trajectory, rollout
from tests.equality import assert_equal

SEED = 3


def untrained(make_env: Callable[[], Any], wrappers: Sequence[Any] = (), **options: Any) -> Any:
    """A policy with networks for an environment, whose decisions depend on the observations."""
    env = make_wrapped(make_env, wrappers)
    module = PPO(spec=Spec.of(env, {key: 3 for key, n in env.agent_counts_dict.items() if n < 0}), **options)
    return module.policy


def play(
    make_env: Callable[[], Any],
    wrappers: Sequence[Any],
    policy: Any,
    statistics: Any,
    n_episodes: int,
    max_steps: int,
    **options: Any,
) -> tuple[list[StateTrajectoryRecord], list[Trajectory]]:
    """Play episodes; return them as the simulation saw them, each act of it, and as trajectories."""
    recorders: list[Any] = []

    def recorded(env: Any) -> Any:
        recorders.append(TrajectoryRecordingWrapper(env, n_episodes=1000))
        return recorders[-1]

    played = rollout(
        make_env,
        policy,
        n_episodes,
        SEED,
        record=(),
        wrappers=[recorded, *wrappers],
        wrapper_statistics=statistics,
        max_steps=max_steps,
        n_envs=1,
        **options,
    )
    return [record for recorder in recorders for record in recorder.trajectories], played


def estimated(make_env: Callable[[], Any], wrappers: Sequence[Any]) -> dict[str, Any]:
    """Statistics of wrappers."""
    env = make_wrapped(make_env, wrappers)
    env.estimate(100, 0)
    return shared_states_of(wrapper_stack(env))


def decisions_on(deployment: AgentDeployment, record: StateTrajectoryRecord) -> list[Any]:
    """Actions of a deployment in the recorded states, and its answer in the last one."""
    before: tuple[Any, ...] = (0.0, False, False, {})
    is_done = False
    actions = []
    for step in record.steps:
        named = {"actor_id": step.actor_id, "env_time": step.env_time} if deployment.needs_actor else {}
        actions.append(deployment.act(step.maze_state, *before, is_actor_done=is_done, **named))
        before = (step.reward, step.terminated, step.truncated, step.info)
        is_done = step.actor_done
    named = {}
    if deployment.needs_actor and not (before[1] or before[2]):  # a wrapper ends the episode
        named = {"actor_id": record.steps[0].actor_id, "env_time": record.steps[-1].env_time + 1}
    actions.append(deployment.act(record.last_maze_state, *before, **named))
    return actions


def equal(one: Any, other: Any) -> bool:
    """Whether two actions are the same, to the last bit."""
    if isinstance(one, np.ndarray | np.generic):
        return (
            type(one) is type(other)
            and one.shape == other.shape
            and one.dtype == other.dtype
            and bool((one == other).all())
        )
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


def require_same_decisions(
    make_env: Callable[[], Any],
    wrappers: Sequence[Any] = (),
    policy: Any = None,
    n_episodes: int = 10,
    max_steps: int = 15,
) -> AgentDeployment:
    """Check that a deployment decides as a rollout did, and sums the episodes up to the same statistics.

    Both for the most likely actions and for sampled ones.
    """
    policy = untrained(make_env, wrappers) if policy is None else policy
    statistics = estimated(make_env, wrappers)
    limited = [*wrappers, lambda env: TimeLimitWrapper(env, max_steps)]
    for deterministic in (True, False):
        records, played = play(
            make_env, wrappers, policy, statistics, n_episodes, max_steps, deterministic=deterministic
        )
        deployment = AgentDeployment(
            policy,
            make_env,
            limited,
            wrapper_statistics=statistics,
            seed=SEED,
            deterministic=deterministic,
        )
        compare(deployment, records, played)
        deployment.close()
    return deployment


def compare(deployment: AgentDeployment, records: list[StateTrajectoryRecord], played: list[Trajectory]) -> None:
    """Check the decisions of a deployment, and its statistics, against those of a rollout."""
    assert len(records) == len(played)
    n_decisions = 0
    for record in records:
        *actions, last = decisions_on(deployment, record)
        for step, action in zip(record.steps, actions, strict=True):
            fault = f"{action} at {step.env_time}, but {step.maze_action} in the rollout"
            assert equal(action, step.maze_action), fault
        n_decisions += len(actions)
        assert last is None and not deployment.is_running
    assert n_decisions > len(records), "episodes of a single decision show nothing"
    for summary, trajectory in zip(deployment._summaries, played, strict=True):
        assert summary.env_steps == trajectory.summary.env_steps
        assert summary.reward == trajectory.summary.reward
        in_rollout = {**trajectory.summary.statistics, **trajectory.summary.samples}
        for key, value in {**summary.statistics, **summary.samples}.items():
            if ":" not in key[0]:  # others are of the simulation's own events, which nobody fires here
                assert_equal(value, in_rollout[key])
