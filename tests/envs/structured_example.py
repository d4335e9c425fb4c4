"""A small structured environment whose every number can be worked out by hand.

In each environment step the planner sets a target, then the workers 0, 1 and 2 add to a heap one after the other.
Worker 1 retires with its second act. A worker may add at most as much as it has strength left, which its mask shows.
After four environment steps the episode terminates. The reward of a worker is minus the distance of its contribution
from the target, the planner's is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface, Wrapper, take_over
from maze_pl.events import EpisodeEventLog, KpiCalculator, define_episode_stats, define_epoch_stats, define_step_stats

N_STEPS = 4
RETIREMENT = 2


class HeapEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="amount")
    def added(self, worker: int, amount: int) -> None:
        """A worker added to the heap."""

    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def cleared(self) -> None:
        """The heap was removed, at the start of the episode."""


class HeapKpis(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        acts = episode_event_log.query_events(HeapEvents.added)
        return {"acts_per_step": len(acts) / len(episode_event_log.step_event_logs), "heap": last_maze_state["heap"]}


class HeapCoreEnv(CoreEnv):
    def __init__(self) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(HeapEvents)
        self.generator = np.random.default_rng(0)
        self.closed = False
        self._begin()

    def _begin(self) -> None:
        self.actor = ActorID("plan", 0)
        self.target, self.heap = 0, 0
        self.strength = [3, 3, 3]
        self.done = False
        self.rewards: list[float] = []

    def step(self, maze_action: tuple[str, int]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        kind, amount = maze_action
        assert kind == self.actor.step_key
        workers = [0, 1, 2] if self.context.env_time < RETIREMENT else [0, 2]
        terminated, reward, self.done = False, 0.0, False
        if kind == "plan":
            self.rewards = [0.0]
            self.target = amount
            self.actor = ActorID("work", 0)
        else:
            worker = self.actor.agent_id
            self.strength[worker] = max(1, self.strength[worker] - amount)
            self.heap += amount
            self.events.added(worker=worker, amount=amount)
            reward = -float(abs(amount - self.target))
            self.rewards.append(reward)
            self.done = worker == 1 and self.context.env_time == RETIREMENT - 1
            if worker != workers[-1]:
                self.actor = ActorID("work", workers[workers.index(worker) + 1])
            else:
                self.actor = ActorID("plan", 0)
                self.context.increment_env_step()
                terminated = self.context.env_time == N_STEPS
        return self.get_maze_state(), reward, terminated, False, {}

    def reset(self) -> dict[str, Any]:
        self._begin()
        self.heap = int(self.generator.integers(10))
        self.events.cleared()
        return self.get_maze_state()

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def close(self) -> None:
        self.closed = True

    def get_maze_state(self) -> dict[str, Any]:
        strength = self.strength[self.actor.agent_id]
        return {"target": self.target, "heap": self.heap, "strength": strength}

    def get_kpi_calculator(self) -> KpiCalculator:
        return HeapKpis()

    def actor_id(self) -> ActorID:
        return self.actor

    def is_actor_done(self) -> bool:
        return self.done

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"plan": 1, "work": 3}

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.array(self.rewards)

    def clone_from(self, env: CoreEnv) -> None:
        take_over(self, env)


class PlanObservation(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"heap": spaces.Box(0, 100, (1,), np.float32)})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"heap": np.array([maze_state["heap"]], np.float32)}


class WorkObservation(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                "heap": spaces.Box(0, 100, (1,), np.float32),
                "target": spaces.Discrete(4),
                "amount_mask": spaces.Box(0, 1, (4,), np.float32),
            }
        )

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        return {
            "heap": np.array([maze_state["heap"]], np.float32),
            "target": np.array(maze_state["target"]),
            "amount_mask": (np.arange(4) <= maze_state["strength"]).astype(np.float32),
        }


class NamedAction(ActionConversionInterface):
    def __init__(self, kind: str, mask: str | None = None) -> None:
        self.kind, self.mask = kind, mask

    def space(self) -> spaces.Dict:
        return spaces.Dict({"amount": spaces.Discrete(4)})

    def space_to_maze(self, action: Any, maze_state: Any) -> tuple[str, int]:
        return self.kind, int(action["amount"])

    def maze_to_space(self, maze_action: tuple[str, int]) -> dict[str, int]:
        return {"amount": maze_action[1]}

    @property
    def action_masks(self) -> dict[str, str]:
        return {"amount": self.mask} if self.mask else {}


def make_heap_env(core_env: HeapCoreEnv | None = None) -> MazeEnv:
    return MazeEnv(
        core_env or HeapCoreEnv(),
        action_conversion_dict={"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")},
        observation_conversion_dict={"plan": PlanObservation(), "work": WorkObservation()},
    )


class TwoHalvesWrapper(Wrapper):
    """Splits the action of a flat environment in two: first whether to act at all, then the action itself."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.second, self.act = False, 0
        self.last: dict[str, np.ndarray] = {}
        self.last_reward = 0.0

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"whether": 1, "what": 1}

    @property
    def observation_spaces_dict(self) -> dict[int | str, spaces.Dict]:
        return dict.fromkeys(("whether", "what"), self.env.observation_spaces_dict[0])

    @property
    def action_spaces_dict(self) -> dict[int | str, spaces.Dict]:
        return {"whether": spaces.Dict({"act": spaces.Discrete(2)}), "what": self.env.action_spaces_dict[0]}

    @property
    def action_masks_dict(self) -> dict[int | str, dict[str, str]]:
        return {"whether": {}, "what": {}}

    def actor_id(self) -> ActorID:
        return ActorID("what" if self.second else "whether", 0)

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.array([self.last_reward / 2] * 2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.second = False
        self.last, info = self.env.reset(seed=seed, options=options)
        return self.last, info

    def step_in_parts(self, action: Any) -> Any:
        self.second = not self.second
        if self.second:
            self.begin_env_step()
            self.act = action["act"]
            return self.last, 0.0, False, False, {}
        self.last, self.last_reward, terminated, truncated, info = yield (
            {"action": action["action"] if self.act else 0}
        )
        return self.last, self.last_reward, terminated, truncated, info


def make_timeless() -> Any:
    """A heap whose author has forgotten to let time pass, so that it never ends."""
    env = make_heap_env()
    env.context.increment_env_step = lambda: None
    return env
