"""Plays recorded episodes again: to look at them, to record them in another way, or to see whether they come out."""

from typing import Any

import numpy as np

from maze_pl.collect.in_memory_dataset import converted
from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs.trajectory_record import StateTrajectoryRecord, read_trajectories


class ReplayRecordedActionsPolicy:
    """Takes in episode i the actions that were recorded i-th; for rollouts with the seed of the recorded ones.

    Args:
        records: Space records, or a file in which there are all episodes. With `env` and `spec` also state records.
        trust: Whether the file may run code while it is read, because you know who wrote it.
        env: Converts state records; `rollout` gives it to a policy that it makes.
        spec: What is seen and done in it.

    Example:
        >>> from maze_pl import rollout
        >>> from maze_pl.envs import GymMazeEnv
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", episodes=2, seed=1)
        >>> replay = ReplayRecordedActionsPolicy([one.spaces for one in played])
        >>> again = rollout(lambda: GymMazeEnv("CartPole-v1"), replay, episodes=2, seed=1)
        >>> [one.summary.reward for one in again] == [one.summary.reward for one in played]
        True
    """

    def __init__(self, records: Any, trust: bool = False, env: Any = None, spec: Any = None) -> None:
        found = read_trajectories(records, trust=trust) if isinstance(records, str) else records
        self.records = [converted(one, env, spec) if isinstance(one, StateTrajectoryRecord) else one for one in found]

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Look up what was done.

        Raises:
            ValueError: Nothing was recorded for an act, or what another actor did.
        """
        if batch.episode_index is None or batch.n_acts is None:
            raise ValueError("recorded actions can only be replayed where whole episodes are played, as in rollouts")
        acts = zip(batch.episode_index.tolist(), batch.n_acts.tolist(), batch.agent_id.tolist(), strict=True)
        actions = [self._action(episode, n, ActorID(batch.step_key, agent)) for episode, n, agent in acts]
        return PolicyStep({head: np.stack([action[head] for action in actions]) for head in actions[0]})

    def _action(self, episode: int, n_acts: int, actor: ActorID) -> dict[str, Any]:
        recorded: Any = "nothing"
        if episode < len(self.records) and n_acts < len(record := self.records[episode]):
            index = record.key_index[n_acts]
            recorded = ActorID(record.spec.step_keys[index], int(record.agent_id[n_acts]))
            if recorded == actor:
                place = np.count_nonzero(record.key_index[:n_acts] == index)
                return {head: values[place] for head, values in record.action[actor.step_key].items()}
        where = f"act {n_acts} of episode {episode} by {actor}, {recorded} was recorded"
        raise ValueError(f"instead of {where}: use the same environment, seed and limit of steps")
