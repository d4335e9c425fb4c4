"""Environments that follow a script, and the row model of the design in plain Python, act by act."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface
from maze_pl.envs.maze_env import MazeEnv


@dataclass(frozen=True)
class Act:
    """One act of a script."""

    key: int
    agent: int
    reward: float
    own_reward: float
    advance: int
    actor_done: bool = False


@dataclass(frozen=True)
class Episode:
    """Acts, how they end, and who would have acted next."""

    acts: tuple[Act, ...]
    truncated: bool
    follower: tuple[int, int]


@dataclass(frozen=True)
class Script:
    """What the environments of a test do, whatever the policy says."""

    n_agents: tuple[int, ...]
    attributed: bool
    episodes: tuple[tuple[Episode, ...], ...] = field(default=())  # of each environment, repeated for ever


def observation_id(env: int, episode: int, act: int) -> float:
    return float(env * 1_000_000 + episode * 1_000 + act)


class ScriptedCoreEnv(CoreEnv):
    """Plays the episodes of one environment of a script one after the other."""

    def __init__(self, script: Script, index: int) -> None:
        super().__init__()
        self.script, self.index = script, index
        self.episode = -1
        self.at = 0
        self.own_rewards: list[float] = []
        self.done_actor = False

    @property
    def _episode(self) -> Episode:
        episodes = self.script.episodes[self.index]
        return episodes[self.episode % len(episodes)]

    def reset(self) -> float:
        self.episode += 1
        self.at = 0
        self.own_rewards = []
        return self.get_maze_state()

    def step(self, maze_action: Any) -> tuple[float, float, bool, bool, dict[str, Any]]:
        act = self._episode.acts[self.at]
        if self.at == 0 or self._episode.acts[self.at - 1].advance:
            self.own_rewards = []
        self.own_rewards.append(act.own_reward)
        self.done_actor = act.actor_done
        self.at += 1
        for _ in range(act.advance):
            self.context.increment_env_step()
        over = self.at == len(self._episode.acts)
        truncated = over and self._episode.truncated
        return self.get_maze_state(), act.reward, over and not truncated, truncated, {}

    def actor_id(self) -> ActorID:
        if self.at < len(self._episode.acts):
            act = self._episode.acts[self.at]
            return ActorID(act.key, act.agent)
        return ActorID(*self._episode.follower)

    def is_actor_done(self) -> bool:
        return self.done_actor

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.array(self.own_rewards) if self.script.attributed else None

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return dict(enumerate(self.script.n_agents))

    def get_maze_state(self) -> float:
        return observation_id(self.index, self.episode, self.at)

    def seed(self, seed: int) -> None:
        self.last_seed = seed

    def close(self) -> None:
        self.at = 0


class Observe(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"id": spaces.Box(-np.inf, np.inf, (1,), np.float64)})

    def maze_to_space(self, maze_state: float) -> dict[str, np.ndarray]:
        return {"id": np.array([maze_state])}


class Choose(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(3)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["choice"])


def make_env(script: Script, index: int) -> MazeEnv:
    keys = range(len(script.n_agents))
    return MazeEnv(ScriptedCoreEnv(script, index), {k: Choose() for k in keys}, {k: Observe() for k in keys})


# ------------------------------------------------------------------------------------------------------ reference


@dataclass
class PlayedAct:
    """An act as it lies in a rollout."""

    act: Act
    env: int
    row: int
    position: int
    obs: float
    is_first: bool
    step_end: bool  # completes the environment step
    ends_row: bool
    terminated: bool
    truncated: bool
    advance: int
    follower: tuple[int, int] | None = None  # who acts after it, None after an end that is terminal
    follower_obs: float = 0.0


class Reference:
    """Plays a script act by act and cuts it into rollouts."""

    def __init__(self, script: Script, n_rollout_steps: int) -> None:
        self.script, self.n = script, n_rollout_steps
        self.where = [(0, 0)] * len(script.episodes)
        self.acted: list[set[tuple[int, int]]] = [set() for _ in script.episodes]  # in the episode

    def collect(self) -> list[list[PlayedAct]]:
        return [self._collect(env) for env in range(len(self.script.episodes))]

    def _collect(self, env: int) -> list[PlayedAct]:
        episodes = self.script.episodes[env]
        played: list[PlayedAct] = []
        completed, row, in_row = 0, 0, []
        while completed < self.n:
            number, at = self.where[env]
            episode = episodes[number % len(episodes)]
            act = episode.acts[at]
            actor = (act.key, act.agent)
            over = at + 1 == len(episode.acts)
            follower = episode.follower if over else (episode.acts[at + 1].key, episode.acts[at + 1].agent)
            first = actor not in self.acted[env]
            self.acted[env].add(actor)
            ends_row = over or act.advance > 0 or follower in [*in_row, actor]
            terminated, truncated = over and not episode.truncated, over and episode.truncated
            played.append(
                PlayedAct(
                    act,
                    env,
                    row,
                    len(in_row),
                    observation_id(env, number, at),
                    first,
                    over or act.advance > 0,
                    ends_row,
                    terminated,
                    truncated,
                    act.advance,
                    None if terminated else follower,
                    observation_id(env, number, at + 1),
                )
            )
            in_row.append(actor)
            if ends_row:
                row, in_row = row + 1, []
            if over or act.advance > 0:
                completed += 1
            self.where[env] = (number + 1, 0) if over else (number, at + 1)
            if over:
                self.acted[env].clear()
        return played


def step_reference(acts: list[PlayedAct], value: Any, gamma: float, lam: float, attributed: bool) -> list[Any]:
    """For each act of one environment (reward, discount, advantage, weight), straight from the definitions."""
    row_steps = {a.row: a.advance for a in acts if a.ends_row}
    results: dict[int, tuple[float, float, float, float]] = {}
    for i in range(len(acts) - 1, -1, -1):
        me = acts[i]
        actor = (me.act.key, me.act.agent)
        reward, discount, following, terminal, bootstrap = 0.0, 1.0, None, False, None
        if me.act.actor_done:
            for later in acts[i:]:
                reward += later.act.reward
                if later.step_end:
                    break
            discount, terminal = 0.0, True
        else:
            for j in range(i, len(acts)):
                if j > i and (acts[j].act.key, acts[j].act.agent) == actor:
                    following = j
                    break
                reward += discount * acts[j].act.reward
                if acts[j].ends_row:
                    discount *= gamma ** row_steps[acts[j].row]
                if acts[j].terminated:
                    terminal, discount = True, 0.0
                    break
                if acts[j].truncated or j == len(acts) - 1:
                    if acts[j].follower == actor:
                        bootstrap = value(acts[j].follower_obs)
                    break
        if attributed:
            reward = me.act.own_reward
        v = value(me.obs)
        if terminal:
            results[i] = (reward, 0.0, reward - v, 1.0)
        elif following is not None:
            delta = reward + discount * value(acts[following].obs) - v
            open_ = results[following][3] == 0.0
            advantage = delta + (0.0 if open_ else discount * lam * results[following][2])
            results[i] = (reward, discount, advantage, 1.0)
        elif bootstrap is not None:
            results[i] = (reward, discount, reward + discount * bootstrap - v, 1.0)
        else:
            results[i] = (reward, discount, 0.0, 0.0)
    return [results[i] for i in range(len(acts))]


def shared_reference(acts: list[PlayedAct], value: Any, gamma: float, lam: float) -> list[tuple[float, float]]:
    """For each row of one environment (advantage, value of the row)."""
    rows = [[a for a in acts if a.row == t] for t in range(acts[-1].row + 1)]
    result: list[tuple[float, float]] = [(0.0, 0.0)] * len(rows)
    for t in range(len(rows) - 1, -1, -1):
        last, v = rows[t][-1], value(rows[t][0].obs)
        reward = sum(a.act.reward for a in rows[t])
        g = gamma**last.advance
        if last.terminated:
            advantage = reward - v
        elif last.truncated or t == len(rows) - 1:
            advantage = reward + g * value(last.follower_obs) - v
        else:
            advantage = reward + g * value(rows[t + 1][0].obs) - v + g * lam * result[t + 1][0]
        result[t] = (advantage, v)
    return result
