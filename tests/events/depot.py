"""A user's environment, with everything that can be logged of one: topics, KPI, rewards by events.

A depot holds pieces. Each step the agent orders some, customers take some, and what exceeds the depot is thrown away.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    MazeEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
)
from maze_pl.events import (
    EpisodeEventLog,
    EventLogWriter,
    EventRecord,
    KpiCalculator,
    define_episode_stats,
    define_epoch_stats,
    define_plot,
    define_stats_grouping,
    define_step_stats,
    histogram,
)
from maze_pl.events.event_logs import output_folder

N_STEPS, CAPACITY = 5, 12


def picture(values: list[Any], groups: tuple[str, ...]) -> np.ndarray:
    return np.full((4, 4, 3), min(255, len(values)), np.uint8)


class InventoryEvents:
    @define_epoch_stats(np.mean, output_name="mean_episode_total")
    @define_episode_stats(sum)
    @define_step_stats(len)
    def piece_discarded(self, piece: tuple[int, int]) -> None:
        """There was no room left."""

    @define_epoch_stats(np.mean, input_name="step_mean", output_name="step_mean")
    @define_epoch_stats(max, input_name="step_max", output_name="step_max")
    @define_episode_stats(np.mean, output_name="step_mean")
    @define_episode_stats(max, output_name="step_max")
    @define_step_stats(None)
    def pieces_in_inventory(self, value: int) -> None:
        """How many there are."""


class SalesEvents:
    @define_epoch_stats(histogram)
    @define_epoch_stats(np.sum, input_name="total", output_name="total")
    @define_plot(picture, input_name=None)
    @define_episode_stats(histogram)
    @define_episode_stats(sum, output_name="total")
    @define_step_stats(sum, input_name="amount")
    @define_stats_grouping("customer")
    def sold(self, customer: str, amount: int, price: float = 1.0, note: Any = None) -> None:
        """A customer took some."""


class DepotKpis(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        levels = episode_event_log.query_events(InventoryEvents.pieces_in_inventory)
        mean = sum(record.attributes["value"] for record in levels) / len(levels)
        return {"level": mean, "tiny": mean / 1e6}


class DeclaredKpis(DepotKpis):
    kpi_names = ("level", "tiny")


class SalesReward(RewardAggregatorInterface):
    def __init__(self, price: float = 1.0) -> None:
        super().__init__()
        self.price = price

    def get_interfaces(self) -> list[type]:
        return [SalesEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        return self.price * sum(record.attributes["amount"] for record in self.query_events(SalesEvents.sold))


class StorageReward(RewardAggregatorInterface):
    def __init__(self, broken_at: int | None = None) -> None:
        super().__init__()
        self.broken_at, self.n_asked = broken_at, 0

    def get_interfaces(self) -> list[type]:
        return [InventoryEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        self.n_asked += 1
        if self.n_asked == self.broken_at:
            return float("nan")
        return -float(maze_state) - len(self.query_events(InventoryEvents.piece_discarded))


class DepotCoreEnv(CoreEnv):
    def __init__(self, reward_aggregator: RewardAggregatorInterface) -> None:
        super().__init__()
        self.inventory = self.pubsub.create_event_topic(InventoryEvents)
        self.sales = self.pubsub.create_event_topic(SalesEvents)
        self.reward_aggregator = reward_aggregator
        self.pubsub.register_subscriber(reward_aggregator)
        self.generator = np.random.default_rng(0)
        self.stock, self.closed = 0.0, False

    def step(self, maze_action: float) -> tuple[float, float, bool, bool, dict[str, Any]]:
        self.stock += maze_action
        while self.stock > CAPACITY:
            self.stock -= 1.0
            self.inventory.piece_discarded(piece=(1, 2))
        for customer in ("ann", "bob"):
            amount = int(min(self.stock, self.generator.integers(3)))
            self.stock -= amount
            self.sales.sold(customer, amount, note=np.array([amount, 0.5]))
        self.inventory.pieces_in_inventory(value=round(1000 * self.stock))
        reward = self.reward_aggregator.summarize_reward(self.stock)
        return self.stock, reward, self.context.env_time + 1 == N_STEPS, False, {}

    def reset(self) -> float:
        self.stock = float(self.generator.integers(4))
        return self.stock

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def close(self) -> None:
        self.closed = True

    def get_maze_state(self) -> float:
        return self.stock

    def get_kpi_calculator(self) -> KpiCalculator:
        return DepotKpis()


class Level(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"stock": spaces.Box(-100, 100, (1,), np.float32)})

    def maze_to_space(self, maze_state: float) -> dict[str, np.ndarray]:
        return {"stock": np.array([maze_state], np.float32)}


class Order(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"amount": spaces.Box(0, 4, (1,), np.float32)})

    def space_to_maze(self, action: Any, maze_state: float) -> float:
        return float(action["amount"][0])


def make_depot(reward_aggregator: RewardAggregatorInterface | None = None) -> MazeEnv:
    return MazeEnv(DepotCoreEnv(reward_aggregator or SalesReward()), {0: Order()}, {0: Level()})


class LinesWriter(EventLogWriter):
    """A user's own: one text file for each environment, named after the object that writes it."""

    def __init__(self, folder: str = "lines") -> None:
        super().__init__()
        self.folder = output_folder(folder)

    def write(self, episode_id: str, record: EventRecord) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{episode_id}.txt").open("a") as file:
            file.write(f"{record.env_time} {record.event.__name__}\n")


def make_declared_depot() -> MazeEnv:
    env = make_depot()
    env.core_env.get_kpi_calculator = DeclaredKpis  # type: ignore[method-assign]
    return env
