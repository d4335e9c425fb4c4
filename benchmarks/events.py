"""Time of events and their statistics: an environment that does nothing else, with more and more features, interleaved.

Prints one line of JSON: by name, the median microseconds of processor time. An environment step fires four events of
the kinds that simulations have (a count, a value, and two with several attributes) in addition to its reward.
The time of statistics is the difference from the same environment without them, ends of episodes (every 200 steps)
included.
"""

from __future__ import annotations

import json
import os
import statistics
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from gymnasium import spaces

from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    MazeEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
)
from maze_pl.envs.wrappers import LogStatsWrapper
from maze_pl.events import (
    KpiCalculator,
    Pubsub,
    define_episode_stats,
    define_epoch_stats,
    define_stats_grouping,
    define_step_stats,
)
from maze_pl.events.pubsub import EnvironmentContext

EPISODE = 200
CHUNK = 10 * EPISODE
ROUNDS = 40


class InventoryEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def piece_replenished(self): ...

    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value): ...


class CuttingEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def valid_cut(self, current_demand, piece_to_cut, raw_piece_size): ...

    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="area")
    @define_stats_grouping("kind")
    def waste(self, kind, area): ...


class Usage(KpiCalculator):
    def calculate_kpis(self, episode_event_log, last_maze_state):
        used = len(episode_event_log.query_events(InventoryEvents.piece_replenished))
        return {"usage": used / len(episode_event_log.step_event_logs)}


class UsageReward(RewardAggregatorInterface):
    def get_interfaces(self):
        return [InventoryEvents]

    def summarize_reward(self, maze_state=None):
        return -float(len(self.query_events(InventoryEvents.piece_replenished)))


class Simulation(CoreEnv):
    def __init__(self, fires, calculator=None, aggregator=None):
        super().__init__()
        self.inventory = self.pubsub.create_event_topic(InventoryEvents)
        self.cutting = self.pubsub.create_event_topic(CuttingEvents)
        self.fires, self.calculator, self.aggregator = fires, calculator, aggregator
        if aggregator is not None:
            self.pubsub.register_subscriber(aggregator)
        self.time = 0

    def step(self, maze_action):
        if self.fires:
            self.inventory.piece_replenished()
            self.inventory.pieces_in_inventory(value=self.time)
            self.cutting.valid_cut(current_demand=(1, 2), piece_to_cut=(4, 3), raw_piece_size=(4, 3))
            self.cutting.waste("corner", 0.5)
        self.time += 1
        reward = 1.0 if self.aggregator is None else self.aggregator.summarize_reward(None)
        return None, reward, self.time == EPISODE, False, {}

    def reset(self):
        self.time = 0

    def seed(self, seed): ...

    def close(self): ...

    def get_maze_state(self): ...

    def get_kpi_calculator(self):
        return self.calculator


class Observation(ObservationConversionInterface):
    def __init__(self):
        self.seen = {"observation": np.zeros(1, np.float32)}

    def space(self):
        return spaces.Dict({"observation": spaces.Box(0, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state):
        return self.seen


class Action(ActionConversionInterface):
    def space(self):
        return spaces.Dict({"action": spaces.Discrete(2)})

    def space_to_maze(self, action, maze_state):
        return action["action"]


def stepped(wrap=lambda env: env, **simulation):
    env = wrap(MazeEnv(Simulation(**simulation), {0: Action()}, {0: Observation()}))
    env.reset(seed=0)
    action = {"action": 1}

    def run():
        for _ in range(CHUNK):
            if env.step(action)[2]:
                env.reset()
        if isinstance(env, LogStatsWrapper):
            env.drain_episode_summaries()

    return run


def recorded(fire, subscriber=None):
    pubsub = Pubsub(EnvironmentContext())
    topics = pubsub.create_event_topic(InventoryEvents), pubsub.create_event_topic(CuttingEvents)
    if subscriber is not None:
        pubsub.register_subscriber(subscriber)

    def run():
        for _ in range(CHUNK // EPISODE):
            for _ in range(EPISODE):
                fire(*topics)
            pubsub.clear()

    return run


def one(inventory, cutting):
    inventory.pieces_in_inventory(value=7)


def three(inventory, cutting):
    cutting.valid_cut(current_demand=(1, 2), piece_to_cut=(4, 3), raw_piece_size=(4, 3))


MEASURED = {
    "event with one attribute": recorded(one),
    "event with three attributes": recorded(three),
    "event with one attribute and a reward aggregator": recorded(one, UsageReward()),
    "nothing": recorded(lambda inventory, cutting: None),
    "step without events": stepped(fires=False),
    "step": stepped(fires=True),
    "step with statistics": stepped(LogStatsWrapper.wrap, fires=True),
    "step with a KPI": stepped(fires=True, calculator=Usage()),
    "step with statistics and a KPI": stepped(LogStatsWrapper.wrap, fires=True, calculator=Usage()),
}
DIFFERENCES = {
    "recording an event with one attribute": ("event with one attribute", "nothing"),
    "recording an event with three attributes": ("event with three attributes", "nothing"),
    "recording an event for a reward aggregator": ("event with one attribute and a reward aggregator", "nothing"),
    "firing the four events of a step": ("step", "step without events"),
    "statistics of a step with four events": ("step with statistics", "step"),
    "statistics and a KPI of such a step": ("step with statistics and a KPI", "step with a KPI"),
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for _ in range(ROUNDS):
        for name, run in MEASURED.items():
            began = time.process_time()
            run()
            times[name].append((time.process_time() - began) / CHUNK * 1e6)
    rounds = {
        name: [with_it - without for with_it, without in zip(times[more], times[less], strict=True)]
        for name, (more, less) in DIFFERENCES.items()
    }
    print(json.dumps({name: statistics.median(values) for name, values in rounds.items()}))


if __name__ == "__main__":
    main()
