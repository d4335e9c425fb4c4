"""Records of the episodes of a vector of environments."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from maze_pl.collect.episodes import play_acts
from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import Array, PolicyBatch, PolicyStep
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import environment_actions
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv
from maze_pl.records.record_files import Act, SpacesTrajectoryRecord


class _Acts(NamedTuple):
    """Acts of one sub-step in some environments, and their results.

    Attributes:
        envs: [n] the environments, ascending.
        batch: What the actors observed.
        action: Head -> [n, ...], as environments receive it.
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
    """Plays an episode in each environment, and makes the records that are asked for.

    It takes the place of the policy while it plays. Records equal those of `SpacesRecordingWrapper`,
    except for the identifiers of episodes.

    Args:
        vector: Environments without automatic reset.
        policy: Chooses the actions.
    """

    def __init__(self, vector: VectorEnv, policy: Any) -> None:
        self._vector = vector
        self._policy = policy
        self._chosen: list[tuple[PolicyBatch, dict[str, Array]]] = []  # since the last step
        self._acts: list[_Acts] = []
        self._env_time = np.zeros(vector.n_envs, np.int64)
        self._terminated = np.zeros(vector.n_envs, np.bool_)
        self._truncated = np.zeros(vector.n_envs, np.bool_)
        self._actor_rewards: dict[int, list[float]] = {}
        self._last: dict[int, tuple[ActorID, dict[str, Array]]] = {}  # of truncated episodes

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        """Choose actions, and keep them with the observations."""
        observation = {name: values.copy() for name, values in batch.observation.items()}
        step: PolicyStep = self._policy.act(batch, **options)
        spaces = self._vector.spec.steps[batch.step_key].action_space.spaces
        action = {head: environment_actions(spaces[head], values) for head, values in step.action.items()}
        self._chosen.append((replace(batch, observation=observation), action))
        return step

    def play(self, start: int, generator: torch.Generator) -> None:
        """Play an episode in each environment, all from the same start, with sampled actions.

        Args:
            start: Index of the episode, which seeds the environments.
            generator: Source of the policy's randomness.
        """
        staging = self._vector.staging
        starts = [start] * self._vector.n_envs
        options: dict[str, Any] = {"deterministic": False, "generator": generator, "check_masks": True}
        for envs, extras in play_acts(self._vector, self, starts, **options):
            results = staging.reward.copy(), staging.actor_done.copy(), self._env_time.copy()
            for batch, action in self._chosen:
                assert batch.env_index is not None
                self._acts.append(_Acts(batch.env_index, batch, action, *results))
            self._chosen = []
            self._env_time[envs] += staging.env_steps[envs]
            self._terminated[envs] = staging.terminated[envs]
            self._truncated[envs] = staging.truncated[envs]
            self._keep(extras)

    def returns(self) -> Array:
        """Return the sums [N] of the rewards of the episodes, as changed by wrappers."""
        returns = np.zeros(self._vector.n_envs)
        for acts in self._acts:
            returns[acts.envs] += acts.reward[acts.envs]
        return returns

    def paid(self) -> float:
        """Return the sum of the absolute values of all attributed rewards, as changed by wrappers."""
        return float(sum(np.abs(rewards).sum() for rewards in self._actor_rewards.values()))

    def _keep(self, extras: StepExtras) -> None:
        """Keep final observations, attributed rewards and the ends of actors."""
        for group in extras.finals:
            for place, env in enumerate(group.envs.tolist()):
                last = {name: values[place].copy() for name, values in group.observation.items()}
                self._last[env] = ActorID(group.key, int(group.agent_ids[place])), last
        for env, actors in extras.done_actors.items():
            for actor in actors:
                self._mark_done(env, actor)
        if extras.actor_rewards is not None:
            for env, rewards in extras.actor_rewards.by_env().items():
                self._actor_rewards.setdefault(env, []).extend(rewards.tolist())

    def _mark_done(self, env: int, actor: ActorID) -> None:
        """Mark the latest act of an actor of an environment as its last."""
        for acts in reversed(self._acts):
            if acts.batch.step_key == actor[0]:
                row = int(np.searchsorted(acts.envs, env))
                if row < len(acts.envs) and acts.envs[row] == env and acts.batch.agent_id[row] == actor[1]:
                    acts.actor_done[env] = True
                    return

    def record_of(self, env: int, *name: Any) -> SpacesTrajectoryRecord:
        """Return the record of the episode of an environment.

        Args:
            env: Number of the environment.
            name: Numbers and texts that the identifier of the episode is derived from.
        """
        acts: list[Act] = []
        for one in self._acts:
            row = int(np.searchsorted(one.envs, env))
            if row < len(one.envs) and one.envs[row] == env:
                observation = {name: values[row] for name, values in one.batch.observation.items()}
                action = {head: values[row] for head, values in one.action.items()}
                numbers = int(one.batch.agent_id[row]), int(one.env_time[env]), float(one.reward[env])
                acts.append((one.batch.step_key, *numbers, bool(one.actor_done[env]), observation, action))
        actor, last = self._last.get(env, (None, {}))
        rewards = self._actor_rewards.get(env)
        words = [derive_seed(*name, "episode id", number) for number in range(4)]
        identifier = uuid.UUID(int=sum(word << 32 * place for place, word in enumerate(words)), version=4)
        return SpacesTrajectoryRecord.of_acts(
            str(identifier),
            self._vector.spec,
            acts,
            terminated=bool(self._terminated[env]),
            truncated=bool(self._truncated[env]),
            last_env_time=int(self._env_time[env]),
            last_actor=actor,
            last_observation=last,
            is_from_environment=True,
            actor_reward=None if rewards is None else np.array(rewards + [np.nan] * (len(acts) - len(rewards))),
        )
