"""Policy that replays the actions of recorded episodes."""

from pathlib import Path
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.datasets.episode_loader import entries_of, require_record
from maze_pl.datasets.state_conversion import converted
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, read_trajectories

Array = np.ndarray[Any, np.dtype[Any]]


class ReplayRecordedActionsPolicy:
    """Replays recorded episodes: to watch them, to record them in another form, or to verify them.

    In episode i it takes the actions of the i-th record. The rollout needs the seed of the recorded
    episodes.

    Args:
        records: Space records, one or several, or a file with all episodes. State records too, with
            `env` and `spec`.
        trust: Whether the file may execute code while it is read; set it only if you know who wrote
            it.
        env: Converts state records; `rollout` passes it to a policy that it makes.
        spec: Specification of the environment.

    Raises:
        TypeError: Something other than records was given.
        ValueError: The file is a folder, or cannot be read.

    Example:
        >>> from maze_pl import rollout
        >>> from maze_pl.envs import GymMazeEnv
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", episodes=2, seed=1)
        >>> replay = ReplayRecordedActionsPolicy([episode.spaces for episode in played])
        >>> again = rollout(lambda: GymMazeEnv("CartPole-v1"), replay, episodes=2, seed=1)
        >>> rewards = [episode.summary.reward for episode in played]
        >>> [episode.summary.reward for episode in again] == rewards
        True
    """

    def __init__(self, records: Any, trust: bool = False, env: Any = None, spec: Any = None) -> None:
        if isinstance(records, str | Path):
            if Path(records).is_dir():
                fault = f"{records} is a folder, in which episodes have no order"
                remedy = "name the file with all episodes in the order in which they were played"
                raise ValueError(f"{fault}; {remedy}")
            records = read_trajectories(records, trust=trust)
        self.records = []
        self._places: list[Array] = []  # [L] of each record: number of earlier acts of the same sub-step
        for record in entries_of(records):
            require_record(record)
            if isinstance(record, StateTrajectoryRecord):
                record = converted(record, env, spec)
            self.records.append(record)
            self._places.append(_places_in_sub_steps(record.key_index))

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Look up the recorded actions.

        Raises:
            ValueError: No action was recorded for an act, or one of another actor.
        """
        if batch.episode_index is None or batch.n_acts is None:
            where = "where whole episodes are played, as in rollouts"
            raise ValueError(f"recorded actions can only be replayed {where}")
        episodes = batch.episode_index.tolist()
        agents = batch.agent_id.tolist()
        acts = zip(episodes, batch.n_acts.tolist(), agents, strict=True)
        actions = [self._action(episode, n_acts, ActorID(batch.step_key, agent)) for episode, n_acts, agent in acts]
        chosen = {}
        for head in actions[0]:
            chosen[head] = np.stack([action[head] for action in actions])
        return PolicyStep(chosen)

    def _action(self, episode: int, n_acts: int, actor: ActorID) -> dict[str, Any]:
        """Action recorded for the act after `n_acts` acts of an episode, which is the actor's."""
        recorded: Any = "nothing"
        if episode < len(self.records) and n_acts < len(self.records[episode]):
            record = self.records[episode]
            index = record.key_index[n_acts]
            recorded = ActorID(record.spec.step_keys[index], int(record.agent_id[n_acts]))
            if recorded == actor:
                place = self._places[episode][n_acts]
                heads = record.action[actor.step_key].items()
                return {head: values[place] for head, values in heads}
        where = f"act {n_acts} of episode {episode} by {actor}"
        remedy = "use the same environment, seed and limit of steps"
        raise ValueError(f"instead of {where}, {recorded} was recorded: {remedy}")


def _places_in_sub_steps(key_index: Array) -> Array:
    """Number of earlier acts of the same sub-step, [L] int64.

    Args:
        key_index: [L] index of the step key of each act.
    """
    places = np.zeros(len(key_index), np.int64)
    for index in np.unique(key_index):
        acts = np.flatnonzero(key_index == index)
        places[acts] = np.arange(len(acts))
    return places
