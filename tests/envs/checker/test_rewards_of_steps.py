"""The doctor examines environment steps of several acts: their rewards, and the last one if it is not complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from maze_pl.envs import (
    MazeEnv,
    RewardAggregatorInterface,
    RewardWrapper,
    WeightedRewardAggregator,
    check_env,
)
from maze_pl.envs.wrappers import RewardClippingWrapper
from tests.envs.relay import N_TOOLS, Amount, RelayCoreEnv, RelayEnv, RelayEvents, Turn, make_relay_env

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing


class PickEvents:
    def picked(self, amount: int) -> None:
        """The picker, which acts first in an environment step, has acted."""


class PickedReward(RewardAggregatorInterface):
    """Pays for what the picker takes."""

    def get_interfaces(self) -> list[type]:
        return [PickEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(sum(event.attributes["amount"] for event in self.events))


class RareReward(PickedReward):
    """Pays for some of what the picker takes."""

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(sum(event.attributes["amount"] > 2 for event in self.events))


class NeededEvent(PickedReward):
    """Fails without an event."""

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(self.events[0].attributes["amount"])


class AmountReward(RewardAggregatorInterface):
    """Pays for everything."""

    def get_interfaces(self) -> list[type]:
        return [RelayEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        return float(sum(event.attributes["amount"] for event in self.query_events(RelayEvents.acted)))


class NewReward(AmountReward):
    """Pays for what is new since the previous call."""

    n_paid = 0

    def summarize_reward(self, maze_state: Any = None) -> float:
        new = self.events[self.n_paid :]
        self.n_paid = len(self.events)
        return float(sum(event.attributes["amount"] for event in new))

    def clear_events(self) -> None:
        super().clear_events()
        self.n_paid = 0


class OfEvents(AmountReward):
    """Needs no state."""

    def summarize_reward(self) -> float:  # type: ignore[override]
        return super().summarize_reward()


class OfComplete(AmountReward):
    """Is told whether the step is complete."""

    def summarize_reward(self, maze_state: Any = None, is_last: bool = False) -> float:
        return super().summarize_reward(maze_state) if is_last else 0.1


class CostOfActs(AmountReward):
    """Costs the same in each act, whatever happens."""

    def summarize_reward(self, maze_state: Any = None) -> float:
        return -1.0


class AsReturned(RelayCoreEnv):
    """Returns the result of an aggregator in each act."""

    def __init__(self, aggregator: RewardAggregatorInterface) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.pick_events = self.pubsub.create_event_topic(PickEvents)
        self.pubsub.register_subscriber(aggregator)

    def step(self, maze_action: int) -> Any:
        is_last = self.turn == N_TOOLS
        if self.turn == 0:
            self.pick_events.picked(amount=maze_action)
        state, _, terminated, truncated, info = super().step(maze_action)
        return state, self.reward(state, is_last), terminated, truncated, info

    def reward(self, state: Any, is_last: bool) -> float:
        return self.aggregator.summarize_reward(state)


class Differences(AsReturned):
    """Returns what an act adds to the result."""

    given = 0.0

    def reward(self, state: Any, is_last: bool) -> float:
        total = self.aggregator.summarize_reward(state)
        reward = total - self.given
        self.given = 0.0 if is_last else total
        return reward

    def reset(self) -> Any:
        self.given = 0.0
        return super().reset()


class DifferencesAndCosts(Differences):
    """Returns what an act adds to the result, minus its cost."""

    def reward(self, state: Any, is_last: bool) -> float:
        return super().reward(state, is_last) - 0.1


class WithoutState(AsReturned):
    def reward(self, state: Any, is_last: bool) -> float:
        return self.aggregator.summarize_reward()


class WithEnd(AsReturned):
    def reward(self, state: Any, is_last: bool) -> float:
        aggregator: Any = self.aggregator
        return float(aggregator.summarize_reward(state, is_last=is_last))


class Cost(RewardWrapper):
    """Lets each act cost the same."""

    def reward(self, reward: float) -> float:
        return reward - 0.1


class AtTheEnd(AsReturned):
    """Asks in each act, and returns the result of the last one."""

    def reward(self, state: Any, is_last: bool) -> float:
        total = self.aggregator.summarize_reward(state)
        return total if is_last else 0.0


def findings(make_env: Callable[[], Any], check: str = "rewards") -> list[tuple[str, str]]:
    lines = check_env(make_env, n_steps=60).lines
    assert not [line for line in lines if line.verdict == "error"]
    return [(line.verdict, line.explanation) for line in lines if line.name == check]


def relay(core: Callable[[Any], RelayCoreEnv], aggregator: Callable[[], Any]) -> Callable[[], MazeEnv]:
    keys = ("pick", "tool")
    return lambda: RelayEnv(core(aggregator()), dict.fromkeys(keys, Amount()), dict.fromkeys(keys, Turn()))


@pytest.mark.parametrize("aggregator", [PickedReward, AmountReward])
def test_events_that_are_paid_for_in_several_acts_are_found(aggregator: type[Any]) -> None:
    ((verdict, explanation),) = findings(relay(AsReturned, aggregator))
    assert verdict == "warning"
    assert re.match(r"in \d+ of \d+ environment steps with such events, acts are rewarded again for ", explanation)
    assert f"by summarize_reward of {aggregator.__name__}, which is called in several acts" in explanation


def test_environment_steps_without_events_that_are_paid_for_do_not_count() -> None:
    found = [findings(relay(AsReturned, aggregator))[0][1] for aggregator in (PickedReward, RareReward)]
    every, rare = (re.match(r"in (\d+) of (\d+) environment steps with such events", one) for one in found)
    assert every is not None and rare is not None
    assert int(rare[1]) == int(rare[2]) < int(every[2])


def test_a_part_of_a_weighted_aggregator_that_pays_again_is_named() -> None:
    def weighted() -> WeightedRewardAggregator:
        return WeightedRewardAggregator({"picked": PickedReward(), "new": NewReward()}, {"picked": 0.5})

    ((verdict, explanation),) = findings(relay(AsReturned, weighted))
    assert verdict == "warning" and "summarize_reward of PickedReward" in explanation


@pytest.mark.parametrize(
    ("core", "aggregator"),
    [
        (AsReturned, NewReward),
        (AsReturned, CostOfActs),
        (Differences, AmountReward),
        (Differences, PickedReward),
        (DifferencesAndCosts, PickedReward),
        (WithEnd, OfComplete),
        (AtTheEnd, AmountReward),
        (AtTheEnd, NeededEvent),
    ],
)
def test_rewards_that_are_paid_once_are_sound(core: type[Any], aggregator: type[Any]) -> None:
    assert [verdict for verdict, _ in findings(relay(core, aggregator))] == ["ok"]


def test_an_aggregator_without_a_state_is_examined_as_others() -> None:
    ((verdict, explanation),) = findings(relay(WithoutState, OfEvents))
    assert verdict == "warning" and "by summarize_reward of OfEvents" in explanation


def test_wrappers_that_change_each_reward_repeat_no_payment() -> None:
    make_env = relay(Differences, PickedReward)
    assert [verdict for verdict, _ in findings(lambda: Cost(make_env()))] == ["ok"]


def test_an_aggregator_that_fails_without_events_is_left_as_it_was() -> None:
    env = relay(AsReturned, NeededEvent)()
    assert [verdict for verdict, _ in findings(lambda: env)] == ["ok"]
    (aggregator,) = (one for one in env.pubsub.subscribers if isinstance(one, NeededEvent))
    assert "notify_event" not in vars(aggregator)
    assert not [line for line in check_env(env, n_steps=60).lines if line.verdict == "error"]


class Doubled(RelayCoreEnv):
    """Attributes twice the rewards."""

    def get_actor_rewards(self) -> np.ndarray:
        return 2 * np.array(self.rewards)


def test_attributed_rewards_with_another_sum_are_found() -> None:
    ((verdict, explanation),) = findings(relay(lambda _: Doubled(), AmountReward))
    assert verdict == "warning" and "the rewards of actors do not add up to the reward in" in explanation


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: RewardClippingWrapper(env, -0.5, 0.5)])
def test_attributed_rewards_need_not_add_up_after_wrappers(wrap: Callable[[Any], Any]) -> None:
    assert [verdict for verdict, _ in findings(lambda: wrap(make_relay_env(attributed=True)))] == ["ok"]


def test_episodes_that_end_within_an_environment_step_are_counted() -> None:
    ((verdict, explanation),) = findings(make_relay_env, "env_time")
    assert verdict == "ok" and "lengths count complete environment steps" in explanation
    assert "episodes ended within one" in explanation
    never = findings(lambda: make_relay_env(n_steps=3), "env_time")
    assert never == [("ok", "environment time advances")]
