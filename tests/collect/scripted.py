"""Environments that follow a script, and the row model of the design in plain Python, act by act."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.core.spec import Spec
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
    """What the environments of a test do, whatever the policy says.

    Where a number of agents is -1, they come and go, and at most `max_agents` of them are alive at once.
    """

    n_agents: tuple[int, ...]
    attributed: bool
    episodes: tuple[tuple[Episode, ...], ...] = field(default=())  # of each environment, repeated for ever
    max_agents: tuple[int, ...] = ()

    @property
    def limits(self) -> dict[int, int]:
        """For sub-steps whose number of agents changes, how many of them may be alive at once."""
        return {key: self.max_agents[key] for key, count in enumerate(self.n_agents) if count < 0}

    @property
    def n_slots(self) -> dict[int, int]:
        """For each sub-step, how many of its agents may be alive at once."""
        return dict(enumerate(self.n_agents)) | self.limits


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


def spec_of(script: Script) -> Spec:
    return Spec.of(make_env(script, 0), script.limits)


# ------------------------------------------------------------------------------------------------------ reference


@dataclass
class PlayedAct:
    """An act as it lies in a rollout."""

    act: Act
    env: int
    row: int
    position: int
    slot: int
    obs: float
    is_first: bool
    step_end: bool  # completes the environment step
    ends_row: bool
    terminated: bool
    truncated: bool
    advance: int
    follower: tuple[int, int] | None = None  # who acts after it, None after an end that is terminal
    follower_slot: int = -1  # -1 for an agent that comes when the episode is cut off: it never gets one
    follower_obs: float = 0.0


class Reference:
    """Plays a script act by act and cuts it into rollouts."""

    def __init__(self, script: Script, n_rollout_steps: int) -> None:
        self.script, self.n = script, n_rollout_steps
        self.where = [(0, 0)] * len(script.episodes)
        self.acted: list[set[tuple[int, int]]] = [set() for _ in script.episodes]  # in the episode
        self.slots: list[dict[tuple[int, int], int]] = [{} for _ in script.episodes]  # of agents that come and go

    def collect(self) -> list[list[PlayedAct]]:
        return [self._collect(env) for env in range(len(self.script.episodes))]

    def episodes(self) -> list[list[list[PlayedAct]]]:
        """For each environment, its episodes; needs rollouts of one environment step."""
        played: list[list[list[PlayedAct]]] = []
        for env, episodes in enumerate(self.script.episodes):
            played.append([[] for _ in episodes])
            while self.where[env][0] < len(episodes):
                number = self.where[env][0]
                played[-1][number] += self._collect(env)
        return played

    def _collect(self, env: int) -> list[PlayedAct]:
        episodes = self.script.episodes[env]
        played: list[PlayedAct] = []
        completed, row, in_row, used = 0, 0, list[tuple[int, int]](), set[tuple[int, int]]()
        slots = self.slots[env]

        def slot_of(actor: tuple[int, int], used: set[tuple[int, int]]) -> int:
            """The first slot that nobody has, and in which nobody has acted in the row."""
            key, agent = actor
            if self.script.n_agents[key] > 0:
                return agent
            if actor not in slots:
                taken = {slot for (other, _), slot in slots.items() if other == key}
                taken |= {slot for other, slot in used if other == key}
                slots[actor] = next(slot for slot in itertools.count() if slot not in taken)
            return slots[actor]

        while completed < self.n:
            number, at = self.where[env]
            episode = episodes[number % len(episodes)]
            act = episode.acts[at]
            actor = (act.key, act.agent)
            over = at + 1 == len(episode.acts)
            follower = episode.follower if over else (episode.acts[at + 1].key, episode.acts[at + 1].agent)
            first = actor not in self.acted[env]
            self.acted[env].add(actor)
            slot = slot_of(actor, used)
            used.add((act.key, slot))
            ends_row = over or act.advance > 0 or follower in [*in_row, actor]
            terminated, truncated = over and not episode.truncated, over and episode.truncated
            if act.actor_done and self.script.n_agents[act.key] < 0 and not over:
                del slots[actor]
            follower_slot = follower[1] if self.script.n_agents[follower[0]] > 0 else slots.get(follower, -1)
            if not over:
                follower_slot = slot_of(follower, set() if ends_row else used)
            played.append(
                PlayedAct(
                    act,
                    env,
                    row,
                    len(in_row),
                    slot,
                    observation_id(env, number, at),
                    first,
                    over or act.advance > 0,
                    ends_row,
                    terminated,
                    truncated,
                    act.advance,
                    None if terminated else follower,
                    follower_slot,
                    observation_id(env, number, at + 1),
                )
            )
            in_row.append(actor)
            if ends_row:
                row, in_row, used = row + 1, [], set()
            if over or act.advance > 0:
                completed += 1
            self.where[env] = (number + 1, 0) if over else (number, at + 1)
            if over:
                self.acted[env].clear()
                slots.clear()
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
