"""Conversion of recorded states of the simulation to observations and actions."""

from typing import Any

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec
from maze_pl.envs.trajectory_record import StateTrajectoryRecord
from maze_pl.records.record_files import SpacesTrajectoryRecord


def converted(record: StateTrajectoryRecord, env: Any, spec: Spec) -> SpacesTrajectoryRecord:
    """Convert a state record to a space record with an environment's conversions and wrappers.

    Args:
        record: The episode.
        env: The environment.
        spec: Specification of the environment.
    """
    acts: list[Any] = []
    for place, step in enumerate(record.steps):
        observations, actions = env.get_observation_and_action_dicts(step.maze_state, step.maze_action, place == 0)
        last_key = list(actions)[-1] if actions else None
        for key, action in actions.items():
            agent = 0 if spec.steps[key].n_agents == 1 else step.actor_id.agent_id
            reward = step.reward if key == last_key else 0.0  # the step's reward follows its last act
            acts.append((key, agent, step.env_time, reward, False, observations[key], action))
    end = record.steps[-1]
    last_actor = None
    last_observation = {}
    if not end.terminated:
        observations, _ = env.get_observation_and_action_dicts(record.last_maze_state, None, False)
        single_agent_keys = (key for key in observations if spec.steps[key].n_agents == 1)
        next_key = next(single_agent_keys, None)
        if next_key is not None:
            last_actor = ActorID(next_key, 0)
            last_observation = observations[next_key]
    made = SpacesTrajectoryRecord.of_acts(
        record.episode_id,
        spec,
        acts,
        terminated=end.terminated,
        truncated=not end.terminated,
        last_env_time=end.env_time + 1,
        last_actor=last_actor,
        last_observation=last_observation,
    )
    made.check()
    return made
