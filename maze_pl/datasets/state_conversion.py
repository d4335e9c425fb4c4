"""Conversion of recorded states of the simulation to observations and actions."""

from collections.abc import Mapping
from itertools import pairwise
from math import nan
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.structured_env import Observation, StructuredEnv
from maze_pl.envs.trajectory_record import StateRecord, StateTrajectoryRecord
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.records.record_files import SpacesTrajectoryRecord


def converted(record: StateTrajectoryRecord, env: Any, spec: Spec) -> SpacesTrajectoryRecord:
    """Convert a state record to a space record with an environment's conversions and wrappers.

    Args:
        record: The episode.
        env: The environment.
        spec: Specification of the environment.

    Raises:
        ValueError: Observations depend on states that were not recorded.
    """
    _require_all_states(record, env)
    acts: list[Any] = []
    actor_rewards: list[float] = []
    for place, step in enumerate(record.steps):
        observations, actions = env.get_observation_and_action_dicts(step.maze_state, step.maze_action, place == 0)
        last_key = list(actions)[-1] if actions else None
        for key, action in actions.items():
            agent = 0 if spec.steps[key].n_agents == 1 else step.actor_id.agent_id
            reward = step.reward if key == last_key else 0.0  # the step's reward follows its last act
            is_done = step.actor_done and key == last_key and not spec.is_flat
            acts.append((key, agent, step.env_time, reward, is_done, observations[key], action))
        actor_rewards += _rewards_of_acts(step, len(actions))
    end = record.steps[-1]
    last_actor = None
    last_observation = {}
    if not end.terminated:
        observations, _ = env.get_observation_and_action_dicts(record.last_maze_state, None, False)
        last_actor = _last_actor(record, observations, spec)
        if last_actor is not None:
            last_observation = observations[last_actor.step_key]
    is_known = any(step.actor_rewards is not None for step in record.steps)
    made = SpacesTrajectoryRecord.of_acts(
        record.episode_id,
        spec,
        acts,
        terminated=end.terminated,
        truncated=not end.terminated,
        last_env_time=record.n_env_steps,
        last_actor=last_actor,
        last_observation=last_observation,
        is_from_environment=True,
        actor_reward=np.array(actor_rewards) if record.is_attributed and is_known else None,
    )
    made.check()
    return made


def _rewards_of_acts(step: StateRecord, n_acts: int) -> list[float]:
    """Rewards attributed to the acts of a decision, NaN if they are unknown.

    A decision may have had another number of acts when it was recorded, by other wrappers. The
    last act then gets all of its rewards.
    """
    if step.actor_rewards is None:
        return [nan] * n_acts
    if len(step.actor_rewards) == n_acts:
        return step.actor_rewards
    return [*[0.0] * (n_acts - 1), sum(step.actor_rewards)][:n_acts]


def _last_actor(
    record: StateTrajectoryRecord, observations: Mapping[StepKey, Observation], spec: Spec
) -> ActorID | None:
    """Actor whose turn would have been next, None if it is unknown.

    Args:
        record: The episode.
        observations: Observations of the last state, by sub-step.
        spec: Specification of the environment.
    """
    for key in observations:
        if spec.steps[key].n_agents == 1:
            return ActorID(key, 0)
    known = record.last_actor_id
    return known if known is not None and known.step_key in observations else None


def _require_all_states(record: StateTrajectoryRecord, env: StructuredEnv) -> None:
    """Refuse an episode if observations depend on states that were not recorded.

    Raises:
        ValueError: A wrapper with a history lies inside of one that takes steps by itself.
    """
    times = [step.env_time for step in record.steps]
    times.append(record.n_env_steps)
    if times[0] == 0 and all(later - time <= 1 for time, later in pairwise(times)):
        return
    outer: Wrapper | None = None
    for wrapper in wrappers_of(env):
        kind = type(wrapper)
        if kind.has_history and outer is not None:
            stepping = type(outer).__name__
            fault = f"{kind.__name__} needs the states of all environment steps"
            reason = f"those that {stepping} takes by itself are not recorded"
            remedy = f"wrap {kind.__name__} around {stepping}, or use space records"
            raise ValueError(f"{fault}, but {reason}; {remedy}")
        if kind.takes_steps:
            outer = wrapper
