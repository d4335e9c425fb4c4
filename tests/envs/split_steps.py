"""A flat simulation whose step a wrapper splits in two, with an event in the first half that is paid for."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    MazeEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
    StructuredEnv,
    Wrapper,
)
from maze_pl.events import (
    EpisodeEventLog,
    KpiCalculator,
    define_episode_stats,
    define_epoch_stats,
    define_step_stats,
)

N_STEPS = 6


class BidEvents:
    @define_epoch_stats(np.mean)
    @define_episode_stats(sum)
    @define_step_stats(sum, input_name="price")
    def bid(self, price: int) -> None:
        """The wrapper was given a price."""

    @define_epoch_stats(np.mean, input_name="most", output_name="most")
    @define_epoch_stats(np.mean, input_name="total", output_name="total")
    @define_episode_stats(max, input_name="in_step", output_name="most")
    @define_episode_stats(sum, input_name="in_step", output_name="total")
    @define_step_stats(sum, input_name="amount", output_name="in_step")
    def sold(self, amount: int) -> None:
        """The simulation sold something."""


class BidReward(RewardAggregatorInterface):
    def get_interfaces(self) -> list[type]:
        return [BidEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        bids = [record.attributes["price"] for record in self.query_events(BidEvents.bid)]
        sold = [record.attributes["amount"] for record in self.query_events(BidEvents.sold)]
        return float(10 * sum(bids) + sum(sold))


class BidKpis(KpiCalculator):
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        steps = episode_event_log.step_event_logs
        busy = [step for step in steps if step.query_events(BidEvents.sold)]
        sold = [one.attributes["amount"] for one in episode_event_log.query_events(BidEvents.sold)]
        return {"n_steps": len(steps), "busy_steps": len(busy), "sold": sum(sold), "state": last_maze_state}


class AuctionCoreEnv(CoreEnv):
    """Sells what it is told to, at most 3 pieces a step, for `N_STEPS` steps that begin at a time of its own."""

    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.start, self.state = start, 0
        self.events = self.pubsub.create_event_topic(BidEvents)
        self.aggregator = BidReward()
        self.pubsub.register_subscriber(self.aggregator)

    def step(self, maze_action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.state += maze_action
        self.events.sold(amount=maze_action)
        terminated = self.context.env_time + 1 == self.start + N_STEPS
        return self.state, self.aggregator.summarize_reward(), terminated, False, {}

    def reset(self) -> int:
        self.context.env_time = self.start
        self.state = 0
        return self.state

    def seed(self, seed: int) -> None: ...

    def close(self) -> None: ...

    def get_maze_state(self) -> int:
        return self.state

    def get_kpi_calculator(self) -> KpiCalculator:
        return BidKpis()


class Sold(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"sold": spaces.Box(0, 100, (1,), np.float32)})

    def maze_to_space(self, maze_state: int) -> dict[str, np.ndarray]:
        return {"sold": np.array([maze_state], np.float32)}


class Amount(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"amount": spaces.Discrete(4)})

    def space_to_maze(self, action: Any, maze_state: int) -> int:
        return int(action["amount"])

    def maze_to_space(self, maze_action: int) -> dict[str, int]:
        return {"amount": maze_action}

    def noop_action(self) -> dict[str, int]:
        return {"amount": 0}


def make_auction_env(start: int = 0) -> MazeEnv:
    return MazeEnv(AuctionCoreEnv(start), {0: Amount()}, {0: Sold()})


class BidFirstWrapper(Wrapper):
    """Asks for a price first, which it announces, and then for an amount."""

    begins_steps = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.events = self.pubsub.create_event_topic(BidEvents)
        self.has_bid = False
        self.seen: dict[str, np.ndarray] = {}
        self._observation_spaces = dict.fromkeys(("bid", "sell"), env.observation_spaces_dict[0])
        price = spaces.Dict({"price": spaces.Discrete(4)})
        self._action_spaces = {"bid": price, "sell": env.action_spaces_dict[0]}

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"bid": 1, "sell": 1}

    @property
    def action_masks_dict(self) -> dict[int | str, dict[str, str]]:
        return {"bid": {}, "sell": {}}

    def actor_id(self) -> ActorID:
        return ActorID("sell" if self.has_bid else "bid", 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.has_bid = False
        self.seen, info = self.env.reset(seed=seed, options=options)
        return dict(self.seen), info

    def announce(self, price: int) -> None:
        self.events.bid(price=price)

    def step_in_parts(self, action: Any) -> Any:
        self.has_bid = not self.has_bid
        if self.has_bid:
            if self.begins_steps:
                self.begin_env_step()
            self.announce(int(action["price"]))
            return dict(self.seen), 0.0, False, False, {}
        self.seen, reward, terminated, truncated, info = yield action
        return dict(self.seen), reward, terminated, truncated, info


class ForgetfulBidFirstWrapper(BidFirstWrapper):
    """Does not say that an environment step begins with the price."""

    begins_steps = False


def play_auction(env: Any, prices: list[int], amounts: list[int]) -> list[float]:
    """Rewards of the environment steps."""
    env.reset(seed=0)
    rewards = []
    for price, amount in zip(prices, amounts, strict=True):
        first = env.step({"price": price})[1]
        rewards.append(first + env.step({"amount": amount})[1])
    return rewards
