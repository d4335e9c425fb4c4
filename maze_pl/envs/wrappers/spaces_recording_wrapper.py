"""Records of observations and actions that are safe to load from untrusted sources."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.spec import Spec
from maze_pl.envs.attribution import attributes_rewards, ends_actors
from maze_pl.envs.contract import check_actor_rewards
from maze_pl.envs.structured_env import (
    Action,
    Array,
    Observation,
    ResetResult,
    StepParts,
    StepResult,
    StructuredEnv,
)
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.envs.wrappers.recording_wrapper import RecordingWrapper
from maze_pl.records.record_files import Act, SpacesTrajectoryRecord

_ENV_TIME: Final = 2  # places in an `Act`
_REWARD: Final = 3


class SpacesRecordingWrapper(RecordingWrapper):
    """Keeps the last episodes as agents saw and played them, and passes each of them to a writer.

    It is meant to be the last of a list of wrappers: it copies everything that passes through it
    into arrays of the spaces' types. An episode that is cut short by `reset` or `close` is recorded
    up to there, as truncated; an episode that a resumed run continues is recorded as a whole.
    Episodes that wrappers use to estimate their statistics are left out.
    `TrajectoryRecordingWrapper` records the simulation instead.

    Args:
        env: The environment to wrap.
        writer: Writer that receives each episode, such as `TrajectoryFiles`.
        n_episodes: Number of episodes kept here.
        max_agents: Step key -> largest number of agents alive at once, for sub-steps whose number
            of agents changes; that of the data module is not passed on.

    Raises:
        ValueError: The writer draws episodes; in `reset`, if `max_agents` is missing.
        EnvContractError: In `step`, if `get_actor_rewards` does not return one reward for each act
            of the environment step, or does so in some environment steps only.

    Attributes:
        trajectories: The last episodes that ended, oldest first.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"))
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 1})
        >>> env.close()
        >>> record = env.trajectories[0]
        >>> record.observation[0]["observation"].shape, record.action[0]["action"], record.reward, record.truncated
        ((1, 4), array([1]), array([1.]), True)
    """

    def __init__(
        self,
        env: StructuredEnv,
        writer: TrajectoryWriter | None = None,
        n_episodes: int = 1,
        max_agents: dict[StepKey, int] | None = None,
    ) -> None:
        super().__init__(env, writer, n_episodes)
        if writer is not None and writer.needs_frames:
            raise ValueError(f"{type(writer).__name__} draws episodes, which needs TrajectoryRecordingWrapper")
        self._context = env.context
        self._max_agents = max_agents
        self._described_env: StructuredEnv | None = None
        self._acts: list[Act] | None = None
        self._rewards: list[float] = []

    def _read_spaces(self) -> None:
        """Read the spaces of the wrapped environment, which is another one in a copy around it."""
        limits = self._max_agents or {}
        for key, count in self.env.agent_counts_dict.items():
            if count < 0 and key not in limits:
                fault = f"the number of agents of sub-step {key!r} changes during an episode"
                remedy = f"give it max_agents={{{key!r}: ...}}, as it does not get that of the data module"
                raise ValueError(f"SpacesRecordingWrapper cannot record: {fault}; {remedy}")
        self._described = Spec.of(self.env, limits)
        self._is_flat = self._described.is_flat
        self._attributes = attributes_rewards(self.env)
        self._ends_actors = not self._is_flat and ends_actors(self.env)
        self._described_env = self.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode and its record."""
        self.end_episode()
        if self.env is not self._described_env:
            self._read_spaces()
        result = self.env.reset(seed=seed, options=options)
        self._acts, self._rewards = [], []
        self._is_wanted = False
        self._actor, self._env_time = self.env.actor_id(), self.env.get_env_time()
        self._observation = _arrays(result[0])
        return result

    def step(self, action: Action) -> StepResult:
        """Step, and record the act."""
        kept_action = _arrays(action)
        return self._recorded(self.env.step(action), kept_action)

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        kept_action = _arrays(action)
        return self._recorded((yield action), kept_action)

    def _recorded(self, result: StepResult, kept_action: Observation) -> StepResult:
        """Record an act and its result."""
        env, acts = self.env, self._acts
        if acts is None:
            return result
        observation, reward, terminated, truncated, _ = result
        before, is_flat = self._env_time, self._is_flat
        is_done = not is_flat and env.is_actor_done()
        acts.append((*self._actor, before, reward, is_done, self._observation, kept_action))
        self._env_time, self._observation = env.get_env_time(), _arrays(observation)
        self._is_wanted = self._context.is_logged  # not only played to estimate statistics
        is_complete = self._env_time != before or terminated or truncated  # the environment step
        if self._attributes and is_complete:
            self._attribute(env.get_actor_rewards(), acts, before)
        if self._ends_actors and is_complete:
            for actor in env.get_done_actors():
                _mark_done(acts, actor)
        if not is_flat and not terminated:
            self._actor = env.actor_id()
        if terminated or truncated:
            self._end(bool(terminated), bool(truncated))
        return result

    def _attribute(self, rewards: Array | None, acts: list[Act], env_time: int) -> None:
        """Record the rewards of the acts of a finished environment step, which began at a time.

        Raises:
            EnvContractError: There is not one reward for each act, or only some steps have rewards.
        """
        n_acts = sum(1 for _ in takewhile(lambda act: act[_ENV_TIME] == env_time, reversed(acts)))
        is_attributed = bool(self._rewards) if n_acts < len(acts) else None
        check_actor_rewards(rewards, n_acts, is_attributed, self.env)
        self._rewards += [] if rewards is None else list(rewards)

    def _end(self, terminated: bool, truncated: bool) -> None:
        """Complete the record, and pass it on if it is wanted."""
        acts, self._acts = self._acts, None
        rewards = self._rewards
        if not acts or not self._is_wanted:
            return
        actor = None if terminated else ActorID(*self._actor)
        attributed = np.array(rewards + [np.nan] * (len(acts) - len(rewards))) if rewards else None
        record = SpacesTrajectoryRecord.of_acts(
            self.env.get_episode_id(),
            self._described,
            acts,
            terminated=terminated,
            truncated=truncated,
            last_env_time=self._env_time,
            last_actor=actor,
            last_observation=self._observation if actor else {},
            actor_reward=attributed,
            is_from_environment=True,
        )
        self._keep(record)

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Complete the record of the episode if one is running."""
        self._end(terminated=False, truncated=True)
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Rewards of the running episode, since adaptive wrappers would change them in a replay."""
        rewards = [act[_REWARD] for act in self._acts or ()]
        return {"reward": rewards, "actor_reward": [float(reward) for reward in self._rewards]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; replaying restores observations and actions."""
        if self._acts and len(self._acts) == len(state["reward"]):
            acts: list[Act] = []
            for act, reward in zip(self._acts, state["reward"], strict=True):
                acts.append((*act[:_REWARD], reward, *act[_REWARD + 1 :]))
            self._acts = acts
            self._rewards = list(state["actor_reward"])


def _mark_done(acts: list[Act], actor: ActorID) -> None:
    """Mark the latest act of an actor as its last."""
    for place in reversed(range(len(acts))):
        key, agent, *_ = acts[place]
        if (key, agent) == tuple(actor):
            time, reward, _, observation, action = acts[place][_ENV_TIME:]
            acts[place] = (key, agent, time, reward, True, observation, action)
            return


def _arrays(values: Mapping[str, Any]) -> Observation:
    return {name: np.array(value) for name, value in values.items()}
