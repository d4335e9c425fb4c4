"""The worker that plays several episodes from the same start and returns the best one."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from maze_pl.collect.episodes import play_acts
from maze_pl.collect.rollout_worker import RolloutWorker
from maze_pl.core.actor_id import ActorID
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import Array, PolicyBatch, PolicyStep, evaluation_mode
from maze_pl.core.seeding import derive_seed
from maze_pl.envs.arrays import ArrayVectorEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.vector.vector_env import VectorEnv
from maze_pl.envs.wrappers.spaces_recording_wrapper import SpacesRecordingWrapper
from maze_pl.records.record_files import Act, SpacesTrajectoryRecord

_TRAINING: Final = "train"  # no evaluator has this name


class BestEpisode(NamedTuple):
    """The best of several episodes from the same start.

    Attributes:
        record: Its observations and actions.
        summaries: Statistics of all episodes.
        place: Number of the best one among them.
    """

    record: SpacesTrajectoryRecord
    summaries: Sequence[EpisodeSummary]
    place: int


@dataclass
class BestEpisodeWorker(RolloutWorker):
    """Plays the episodes of evaluators, and several sampled episodes from each start.

    A start is the number of an episode: all environments begin it with the same seed. Everything in
    its episodes depends on the seed of the run, the start and the policy alone.
    """

    def play_best(self, start: int, wrapper_statistics: dict[str, Any], policy: Any = None) -> BestEpisode:
        """Play an episode in each environment, all from the same start, with sampled actions.

        Args:
            start: Number of the start.
            wrapper_statistics: Wrapper statistics, which the episodes do not change.
            policy: The policy; the worker's policy if None.

        Returns:
            The episode with the largest return, the first one if several have it.
        """
        if _TRAINING not in self.vectors:
            self.vectors[_TRAINING] = self.training[0]()
        vector = self.vectors[_TRAINING]
        vector.load_shared_states(wrapper_statistics, freeze=True)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "policy", start))
        acting = self.policy if policy is None else policy
        recorder = ActRecorder(vector, acting)
        with evaluation_mode(acting):
            if isinstance(vector, ArrayVectorEnv):
                recorder.play(start, generator)
            else:
                starts = [start] * vector.n_envs
                for _ in play_acts(vector, acting, starts, deterministic=False, generator=generator):
                    pass
        summaries = vector.drain_summaries()
        place = int(np.argmax([summary.reward for summary in summaries]))
        if isinstance(vector, ArrayVectorEnv):
            return BestEpisode(recorder.record_of(place, self.seed, start), summaries, place)
        records: list[SpacesTrajectoryRecord] = vector.of_each(last_record, [place])  # type: ignore[attr-defined]
        return BestEpisode(records[0], summaries, place)


class _Acts(NamedTuple):
    """Acts of one sub-step in some environments, and their results.

    Attributes:
        envs: [n] the environments.
        batch: What the actors observed.
        action: Head -> [n, ...].
        reward: [N] reward of each environment after the act.
        actor_done: [N] whether the actor is done.
        env_time: [N] environment steps completed before the act.
    """

    envs: Array
    batch: PolicyBatch
    action: dict[str, Array]
    reward: Array
    actor_done: Array
    env_time: Array


class ActRecorder:
    """Plays episodes in arrays, and records those that are asked for.

    Args:
        vector: Environments that play one episode each.
        policy: Chooses the actions.
    """

    def __init__(self, vector: VectorEnv, policy: Any) -> None:
        self._vector = vector
        self._policy = policy
        self._asked: list[tuple[PolicyBatch, dict[str, Array]]] = []
        self._acts: list[_Acts] = []
        self._env_time = np.zeros(vector.n_envs, np.int64)

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose actions, and keep them with the observations."""
        kept = {name: values.copy() for name, values in batch.observation.items()}
        step: PolicyStep = self._policy.act(batch, **options)
        self._asked.append((replace(batch, observation=kept), step.action))
        return step

    def play(self, start: int, generator: torch.Generator) -> None:
        """Play an episode in each environment, all from the same start, with sampled actions."""
        staging = self._vector.staging
        starts = [start] * self._vector.n_envs
        for envs in play_acts(self._vector, self, starts, deterministic=False, generator=generator):
            results = staging.reward.copy(), staging.actor_done.copy(), self._env_time.copy()
            for batch, action in self._asked:
                assert batch.env_index is not None
                self._acts.append(_Acts(batch.env_index, batch, action, *results))
            self._asked = []
            self._env_time[envs] += staging.env_steps[envs]

    def record_of(self, env: int, seed: int, start: int) -> SpacesTrajectoryRecord:
        """Return the record of the episode of an environment.

        Args:
            env: Number of the environment.
            seed: Seed of the run, which names the episode together with the start.
            start: Number of the start.
        """
        acts: list[Act] = []
        for one in self._acts:
            row = int(np.searchsorted(one.envs, env))
            if row < len(one.envs) and one.envs[row] == env:
                observation = {name: values[row] for name, values in one.batch.observation.items()}
                action = {head: values[row] for head, values in one.action.items()}
                numbers = int(one.batch.agent_id[row]), int(one.env_time[env]), float(one.reward[env])
                acts.append((one.batch.step_key, *numbers, bool(one.actor_done[env]), observation, action))
        staging, spec = self._vector.staging, self._vector.spec
        is_terminated = bool(staging.terminated[env])
        actor, last = None, {}
        if not is_terminated:
            actor = ActorID(spec.step_keys[int(staging.next_key[env])], int(staging.next_agent[env]))
            last = {name: values[env].copy() for name, values in staging.observation[actor.step_key].items()}
        words = [derive_seed(seed, "episode id", start, number) for number in range(4)]
        episode_id = str(uuid.UUID(int=sum(word << 32 * place for place, word in enumerate(words)), version=4))
        rest = is_terminated, bool(staging.truncated[env]), int(self._env_time[env]), actor, last
        return SpacesTrajectoryRecord.of_acts(episode_id, spec, acts, *rest)


def last_record(env: Any) -> SpacesTrajectoryRecord:
    """Return the record of the episode that an environment has just played."""
    record: SpacesTrajectoryRecord = env.trajectories[-1]
    return record


def recording(env: StructuredEnv, max_agents: dict[Any, int] | None) -> SpacesRecordingWrapper:
    """Wrap an environment, so that it keeps the observations and actions of its last episode."""
    return SpacesRecordingWrapper(env, None, 1, max_agents)
