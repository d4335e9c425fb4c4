"""A structured simulation that may end within an environment step, and whose states say who acts next.

In each environment step the picker acts first, then the tools 0 and 1. The episode ends after `n_steps` steps, or as
soon as the picker takes 3 in step 3 or later. The reward of an act is its amount plus a tenth of its place in the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.events import EpisodeEventLog, KpiCalculator, define_episode_stats, define_epoch_stats, define_step_stats

N_TOOLS = 2


class RelayEvents:
    @define_epoch_stats(np.mean, input_name="n_steps", output_name="n_steps")
    @define_epoch_stats(np.mean, input_name="most", output_name="most")
    @define_episode_stats(len, input_name="in_step", output_name="n_steps")
    @define_episode_stats(max, input_name="in_step", output_name="most")
    @define_step_stats(len, output_name="in_step")
    def acted(self, amount: int) -> None:
        """An actor acted."""


class RelayKpis(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        steps = episode_event_log.step_event_logs
        n_acts = len(episode_event_log.query_events(RelayEvents.acted))
        return {"acts_per_step": n_acts / len(steps), "turn": last_maze_state["turn"], "time": last_maze_state["time"]}


class RelayCoreEnv(CoreEnv):
    def __init__(self, attributed: bool = False, n_steps: int = 8, retires: bool = False) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(RelayEvents)
        self.attributed, self.n_steps, self.retires = attributed, n_steps, retires
        self.turn = 0
        self.done = False
        self.rewards: list[float] = []

    def step(self, maze_action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.events.acted(amount=maze_action)
        if self.turn == 0:
            self.rewards = []
        reward = maze_action + 0.1 * self.turn
        self.rewards.append(reward)
        terminated = self.turn == 0 and maze_action == 3 and self.context.env_time >= 3
        self.done = self.retires and self.turn == 2 and self.context.env_time == 1
        self.turn += 1
        if self.turn > N_TOOLS or (self.turn == N_TOOLS and self.retires and self.context.env_time > 1):
            self.turn = 0
            self.context.increment_env_step()
            terminated = self.context.env_time >= self.n_steps
        return self.get_maze_state(), reward, terminated, False, {}

    def reset(self) -> Any:
        self.turn, self.done, self.rewards = 0, False, []
        return self.get_maze_state()

    def seed(self, seed: int) -> None: ...

    def close(self) -> None: ...

    def actor_id(self) -> ActorID:
        return ActorID("tool", self.turn - 1) if self.turn else ActorID("pick", 0)

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"pick": 1, "tool": N_TOOLS}

    def is_actor_done(self) -> bool:
        return self.done

    def get_actor_rewards(self) -> np.ndarray | None:
        return np.array(self.rewards) if self.attributed else None

    def get_maze_state(self) -> dict[str, Any]:
        return {"turn": self.turn, "time": self.context.env_time}

    def get_kpi_calculator(self) -> KpiCalculator:
        return RelayKpis()


class Turn(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"turn": spaces.Box(0, 100, (2,), np.float32)})

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, np.ndarray]:
        return {"turn": np.array([maze_state["turn"], maze_state["time"]], np.float32)}


class Amount(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"amount": spaces.Discrete(4)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["amount"])

    def maze_to_space(self, maze_action: int) -> dict[str, int]:
        return {"amount": maze_action}


class RelayEnv(MazeEnv):
    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Any:
        key = "tool" if maze_state["turn"] else "pick"
        observations = {key: self.observation_conversion_dict[key].maze_to_space(maze_state)}
        if maze_action is None:
            return observations, None
        return observations, {key: self.action_conversion_dict[key].maze_to_space(maze_action)}


def make_relay_env(attributed: bool = False, n_steps: int = 8, retires: bool = False) -> MazeEnv:
    """Make the environment.

    Args:
        attributed: Whether rewards are attributed to acts.
        n_steps: Environment steps after which the episode ends at the latest.
        retires: Whether tool 1 is done after its act in step 1.
    """
    core_env = RelayCoreEnv(attributed, n_steps, retires)
    return RelayEnv(core_env, {"pick": Amount(), "tool": Amount()}, {"pick": Turn(), "tool": Turn()})
