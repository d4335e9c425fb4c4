"""A structured problem in both forms, with every feature of the contract: sub-steps, agents, masks, events and KPIs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ArrayEnv, ArrayStep, CoreEnv, MazeEnv
from maze_pl.envs.arrays import RandomStreams
from maze_pl.envs.core_env import ActionConversionInterface, ObservationConversionInterface
from maze_pl.events import (
    EpisodeEventLog,
    KpiCalculator,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.topics import histogram

N_WORKERS = 2
N_DAYS = 6
LOAD = spaces.Box(-1000, 1000, (2,), np.float32)
PLAN = spaces.Dict({"load": LOAD, "allowed": spaces.Box(0, 1, (3,), np.float32)})
WORK = spaces.Dict({"load": LOAD, "worker": spaces.Box(0, 1, (N_WORKERS,), np.float32)})
PLANS = spaces.Dict({"plan": spaces.Discrete(3)})
EFFORTS = spaces.Dict({"effort": spaces.Box(-1, 1, (2,), np.float32)})
SEES = {"plan": PLAN, "work": WORK}
ACTS = {"plan": PLANS, "work": EFFORTS}
COUNTS = {"plan": 1, "work": N_WORKERS}
MASKS = {"plan": {"plan": "allowed"}}


class YardEvents:
    """Events with all kinds of statistics."""

    @define_epoch_stats(np.mean, input_name="mean", output_name="mean")
    @define_epoch_stats(max, input_name="largest", output_name="largest")
    @define_epoch_stats(histogram, input_name="each", output_name="spread")
    @define_episode_stats(None, input_name="value", output_name="each")
    @define_episode_stats(max, input_name="value", output_name="largest")
    @define_episode_stats(np.mean, input_name="value", output_name="mean")
    @define_step_stats(max, output_name="value")
    def hauled(self, value: float) -> None:
        """A worker hauled."""

    @define_epoch_stats(np.std, input_name="sum", output_name="std")
    @define_epoch_stats(np.mean, input_name="count", output_name="mean_count")
    @define_episode_stats(sum, input_name="sum", output_name="sum")
    @define_episode_stats(sum, input_name="count", output_name="count")
    @define_step_stats(len, output_name="count")
    @define_step_stats(sum, output_name="sum")
    @define_stats_grouping("kind")
    def spilled(self, kind: str, value: float) -> None:
        """Something was spilled, of a kind."""

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(len)
    def planned(self) -> None:
        """A plan was made."""


class YardKpis(KpiCalculator):
    """Mean haul per act; no value in episodes without acts of workers."""

    kpi_names = ("mean_haul",)

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        hauls = [record.attributes["value"] for record in episode_event_log.query_events(YardEvents.hauled)]
        total = 0.0
        for haul in hauls:
            total += haul
        return {"mean_haul": total / len(hauls)} if hauls else {}


class YardCoreEnv(CoreEnv):
    """A plan, then one act of each worker, make up a day; the first to spill a lot ends the episode."""

    def __init__(self) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(YardEvents)
        self.load = np.zeros(2)
        self.allowed = np.zeros(3)
        self.plan = 0
        self.turn = 0
        self.rewards: list[float] = []
        self.generator = np.random.default_rng()

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self.load = self.generator.uniform(-1.0, 1.0, size=2)
        self.turn = 0
        self.draw_masks()
        self.events.planned()
        return self.load

    def draw_masks(self) -> None:
        banned = int(self.generator.integers(3))
        self.allowed = np.ones(3)
        self.allowed[banned] = 0.0

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        terminated = truncated = False
        if self.turn == 0:
            self.plan = int(maze_action["plan"])
            self.events.planned()
            reward = 0.0
            self.rewards = [reward]
        else:
            effort = maze_action["effort"].astype(np.float64)
            haul = float(effort[0] * (self.plan + 1))
            self.load = self.load + np.array([haul, effort[1]])
            self.events.hauled(haul)
            if effort[1] > 0.3:
                self.events.spilled("oil" if effort[0] > 0 else "sand", float(effort[1]))
            reward = haul - 0.1 * abs(float(self.load[0]))
            self.rewards.append(reward)
            terminated = bool(effort[1] > 0.93)
        if self.turn == N_WORKERS:
            truncated = self.context.env_time + 1 >= N_DAYS
            self.context.increment_env_step()
            self.draw_masks()
        self.turn = (self.turn + 1) % (N_WORKERS + 1)
        return self.load, reward, terminated, truncated, {}

    def get_maze_state(self) -> Any:
        return self.load

    def close(self) -> None:
        pass

    def actor_id(self) -> ActorID:
        return ActorID("plan", 0) if self.turn == 0 else ActorID("work", self.turn - 1)

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        return COUNTS

    def get_actor_rewards(self) -> np.ndarray:
        return np.array(self.rewards)

    def get_kpi_calculator(self) -> KpiCalculator:
        return YardKpis()


class _Sees(ObservationConversionInterface):
    def __init__(self, core_env: YardCoreEnv, key: str) -> None:
        self.core_env = core_env
        self.key = key

    def space(self) -> spaces.Dict:
        return SEES[self.key]

    def maze_to_space(self, maze_state: Any) -> dict[str, np.ndarray]:
        load = maze_state.astype(np.float32)
        if self.key == "plan":
            return {"load": load, "allowed": self.core_env.allowed.astype(np.float32)}
        return {"load": load, "worker": np.eye(N_WORKERS, dtype=np.float32)[self.core_env.turn - 1]}


class _Acts(ActionConversionInterface):
    def __init__(self, key: str) -> None:
        self.key = key

    def space(self) -> spaces.Dict:
        return ACTS[self.key]

    @property
    def action_masks(self) -> Mapping[str, str]:
        return {"plan": "allowed"} if self.key == "plan" else {}

    def space_to_maze(self, action: Any, maze_state: Any) -> Any:
        return action

    def maze_to_space(self, maze_action: Any) -> Any:
        return maze_action


def make_yard() -> MazeEnv:
    """The form for single episodes."""
    core_env = YardCoreEnv()
    return MazeEnv(core_env, {key: _Acts(key) for key in SEES}, {key: _Sees(core_env, key) for key in SEES})


class YardArrayEnv(ArrayEnv):
    """The form in arrays."""

    observation_spaces_dict = SEES
    action_spaces_dict = ACTS
    agent_counts_dict = COUNTS
    action_masks_dict = MASKS
    kpi_names = ("mean_haul",)

    def __init__(self) -> None:
        super().__init__()
        self.topic = self.create_event_topic(YardEvents)

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.load = np.zeros((n_envs, 2))
        self.allowed = np.zeros((n_envs, 3))
        self.plan = np.zeros(n_envs, np.int64)
        self.turn = np.zeros(n_envs, np.int64)
        self.time = np.zeros(n_envs, np.int64)
        self.rewards = np.zeros((n_envs, N_WORKERS + 1))
        self.total_haul = np.zeros(n_envs)
        self.n_hauls = np.zeros(n_envs, np.int64)
        self.random = RandomStreams(np.zeros(n_envs, np.int64))

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.random.seed(seeds, which)
        self.load[which] = self.random.uniform(-1.0, 1.0, size=2, which=which)
        for array in (self.turn, self.time, self.total_haul, self.n_hauls):
            array[which] = 0
        self._draw_masks(which)
        self.topic.planned(which)
        return self._result()

    def _draw_masks(self, which: Any) -> None:
        self.allowed[which] = 1.0
        self.allowed[which, self.random.integers(3, which=which)] = 0.0

    def step(self, actions: Any, which: Any) -> ArrayStep:
        which = self.numbers_of(which)
        turn = self.turn[which]
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, np.bool_)
        planning = which[turn == 0]
        self.plan[planning] = actions["plan"]["plan"][planning]
        self.topic.planned(planning)
        self.rewards[planning, 0] = 0.0
        working = which[turn > 0]
        effort = actions["work"]["effort"][working].astype(np.float64)
        haul = effort[:, 0] * (self.plan[working] + 1)
        self.load[working] += np.stack([haul, effort[:, 1]], -1)
        self.topic.hauled(working, haul)
        self.total_haul[working] += haul
        self.n_hauls[working] += 1
        spilling = effort[:, 1] > 0.3
        kinds = np.where(effort[spilling, 0] > 0, "oil", "sand")
        self.topic.spilled(working[spilling], kinds, effort[spilling, 1])
        reward[working] = haul - 0.1 * np.abs(self.load[working, 0])
        self.rewards[working, self.turn[working]] = reward[working]
        terminated[working] = effort[:, 1] > 0.93
        ending = which[turn == N_WORKERS]
        self.time[ending] += 1
        truncated = np.zeros(self.n_envs, np.bool_)
        truncated[ending] = self.time[ending] >= N_DAYS
        self._draw_masks(ending)
        self.turn[which] = (turn + 1) % (N_WORKERS + 1)
        result = self._result()
        result.reward = reward
        result.terminated = terminated
        result.truncated = truncated
        result.actor_rewards = self.rewards
        return result

    def _result(self) -> ArrayStep:
        worker = np.maximum(self.turn - 1, 0)
        load = self.load.astype(np.float32)
        observation = {
            "plan": {"load": load, "allowed": self.allowed.astype(np.float32)},
            "work": {"load": load, "worker": np.eye(N_WORKERS, dtype=np.float32)[worker]},
        }
        return ArrayStep(observation, env_time=self.time, next_key=(self.turn > 0).astype(np.int64), next_agent=worker)

    def kpis(self, which: Any) -> dict[str, np.ndarray]:
        n_hauls = self.n_hauls[which]
        means = self.total_haul[which] / np.maximum(n_hauls, 1)
        return {"mean_haul": np.where(n_hauls > 0, means, np.nan)}
