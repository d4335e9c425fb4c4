from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import (
    ActionConversionInterface,
    CoreEnv,
    MazeEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
    WeightedRewardAggregator,
)
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector import SequentialVectorEnv, VectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper, RewardScalingWrapper
from maze_pl.events import BaseEnvEvents, EnvironmentContext, EpochStatistics, Pubsub, RewardShareEvents


class PickEvents:
    def picked(self, picker: int, fruit: int) -> None: ...


class PickedFruit(RewardAggregatorInterface):
    """What one picker, or all of them, have picked; the state adds nothing."""

    def __init__(self, picker: int | None = None) -> None:
        super().__init__()
        self.picker = picker

    def get_interfaces(self) -> list[type]:
        return [PickEvents]

    def summarize_reward(self, maze_state: Any = None) -> float:
        picked = [record.attributes for record in self.query_events(PickEvents.picked)]
        return float(sum(one["fruit"] for one in picked if self.picker in (None, one["picker"])))


class LostEvents:
    def lost(self, fruit: int) -> None: ...


class LostFruit(PickedFruit):
    """An aggregator that was written for another simulation."""

    def get_interfaces(self) -> list[type]:
        return [LostEvents]


class PickedOrLostFruit(PickedFruit):
    def get_interfaces(self) -> list[type]:
        return [LostEvents, PickEvents]


class Constant(RewardAggregatorInterface):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get_interfaces(self) -> list[type]:
        return []

    def summarize_reward(self, maze_state: Any = None) -> float:
        return self.value


class OrchardCoreEnv(CoreEnv):
    """Two pickers act one after the other in each environment step; each has a reward aggregator of its own."""

    def __init__(self, team: RewardAggregatorInterface | None = None) -> None:
        super().__init__()
        self.events = self.pubsub.create_event_topic(PickEvents)
        self.team = team or PickedFruit()
        self.own = [PickedFruit(0), PickedFruit(1)]
        for aggregator in (self.team, *self.own):
            self.pubsub.register_subscriber(aggregator)
        self.turn = 0

    def step(self, maze_action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.events.picked(picker=self.turn, fruit=maze_action)
        self.turn = 1 - self.turn
        if self.turn == 1:
            return 0, 0.0, False, False, {}
        self.context.increment_env_step()
        return 0, self.team.summarize_reward(0), self.context.env_time == 3, False, {}

    def reset(self) -> int:
        self.turn = 0
        return 0

    def seed(self, seed: int) -> None:
        """Nothing is random here."""

    def close(self) -> None:
        """There is nothing to release."""

    def get_maze_state(self) -> int:
        return 0

    def actor_id(self) -> ActorID:
        return ActorID("pick", self.turn)

    @property
    def agent_counts_dict(self) -> dict[int | str, int]:
        return {"pick": 2}

    def get_actor_rewards(self) -> np.ndarray:
        return np.array([aggregator.summarize_reward(0) for aggregator in self.own])


class Nothing(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"nothing": spaces.Box(0, 1, (1,), np.float32)})

    def maze_to_space(self, maze_state: int) -> dict[str, np.ndarray]:
        return {"nothing": np.zeros(1, np.float32)}


class Fruit(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"fruit": spaces.Discrete(9)})

    def space_to_maze(self, action: Any, maze_state: int) -> int:
        return int(action["fruit"])


def orchard(team: RewardAggregatorInterface | None = None) -> MazeEnv:
    return MazeEnv(OrchardCoreEnv(team), {"pick": Fruit()}, {"pick": Nothing()})


def play(env: Any, *fruits: int) -> list[float]:
    return [env.step({"fruit": fruit})[1] for fruit in fruits]


def test_the_reward_is_that_of_all_events_of_an_environment_step_and_of_no_other() -> None:
    env = orchard()
    env.reset(seed=0)
    assert play(env, 1, 2, 3, 4) == [0.0, 3.0, 0.0, 7.0]


def test_one_aggregator_for_each_agent_gives_the_actors_their_rewards() -> None:
    env = RewardScalingWrapper.wrap(orchard(), scale=0.5)
    env.reset(seed=0)
    for first, second in ((1, 2), (5, 0)):
        play(env, first, second)
        np.testing.assert_array_equal(env.get_actor_rewards(), [first / 2, second / 2])


def test_actor_rewards_of_aggregators_reach_whoever_collects() -> None:
    vector: VectorEnv = SequentialVectorEnv([orchard])
    vector.reset()
    collected = []
    for fruit in (1, 2, 3, 4):
        vector.staging.action["pick"]["fruit"][:] = fruit
        attributed = vector.step().actor_rewards
        if attributed is not None:
            collected.append(attributed)
    assert [one.rewards.tolist() for one in collected] == [[[1.0, 2.0]], [[3.0, 4.0]]]


def test_parts_are_weighted_and_their_shares_logged_in_the_units_of_the_reward() -> None:
    parts = {"all": PickedFruit(), "first": PickedFruit(0), "base": Constant(1)}
    inner = orchard(WeightedRewardAggregator(parts, {"first": -0.5}))
    env = LogStatsWrapper.wrap(RewardScalingWrapper.wrap(inner, scale=10.0))
    env.reset(seed=0)
    assert play(env, 4, 2) == [0.0, 50.0]
    shares = [record.attributes for record in env.get_step_events() if record.event is RewardShareEvents.share]
    assert shares == [{"name": "all", "value": 6.0}, {"name": "first", "value": -2.0}, {"name": "base", "value": 1.0}]
    assert play(env, 2, 1, 0, 0) == [0.0, 30.0, 0.0, 10.0]
    epoch = EpochStatistics()
    (summary,) = env.drain_episode_summaries()
    epoch.add(summary)
    values = epoch.compute()
    names = {name: f"RewardShareEvents/share/mean_episode_total/{name}" for name in parts}
    assert {name: values[path] for name, path in names.items()} == {"all": 9.0, "first": -3.0, "base": 3.0}
    assert values["BaseEnvEvents/reward/mean"] == 9.0


def test_combinations_nest() -> None:
    inner = WeightedRewardAggregator({"all": PickedFruit(), "base": Constant(2.0)}, {"base": 0.5})
    env = orchard(WeightedRewardAggregator({"inner": inner, "first": PickedFruit(0)}, {"inner": 10.0}))
    env.reset(seed=0)
    assert play(env, 1, 2) == [0.0, 41.0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_has_parts_of_its_own(duplicate: Any) -> None:
    env = orchard(WeightedRewardAggregator({"all": PickedFruit()}, {"all": 2.0}))
    env.reset(seed=0)
    play(env, 1)
    copied = duplicate(env)
    assert (play(copied, 5), play(env, 2)) == ([12.0], [6.0])


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), None, "1", np.ones(2)])
def test_a_part_that_says_no_finite_number_is_named(value: Any) -> None:
    env = orchard(WeightedRewardAggregator({"all": PickedFruit(), "odd": Constant(value)}))
    env.reset(seed=0)
    with pytest.raises(EnvContractError, match=r"the reward of aggregator 'odd' \(Constant\) is .*, not a finite"):
        play(env, 1, 1)


@pytest.mark.parametrize("value", [1, 1.5, True, np.float32(0.5), np.int64(3)])
def test_every_kind_of_number_is_one(value: Any) -> None:
    aggregator = WeightedRewardAggregator({"constant": Constant(value)}, {"constant": 2.0})
    Pubsub(EnvironmentContext()).register_subscriber(aggregator)
    assert aggregator.summarize_reward() == 2.0 * float(value)


@pytest.mark.parametrize("weights", [{"other": 1.0}, {"all": float("nan")}])
def test_weights_must_be_finite_and_for_parts_that_there_are(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be finite numbers for the aggregators \['all'\]"):
        WeightedRewardAggregator({"all": PickedFruit()}, weights)
    with pytest.raises(ValueError, match=r"for the aggregators \[\]"):
        WeightedRewardAggregator({})


def test_a_combination_that_is_not_registered_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"call pubsub\.register_subscriber"):
        WeightedRewardAggregator({"all": PickedFruit()}).summarize_reward()


def test_a_reward_of_the_simulation_that_is_not_finite_is_refused_before_it_is_logged() -> None:
    env = orchard(Constant(float("nan")))
    env.reset(seed=0)
    with pytest.raises(EnvContractError, match="step of OrchardCoreEnv returned the reward nan, which is not finite"):
        play(env, 1, 1)
    assert len(env.pubsub.query_events(BaseEnvEvents.reward)) == 1


@pytest.mark.parametrize(
    "make_team", [LostFruit, lambda: WeightedRewardAggregator({"lost": LostFruit(), "picked": PickedFruit()})]
)
def test_an_aggregator_whose_events_the_environment_never_fires_is_named_once(make_team: Any) -> None:
    env = orchard(make_team())
    missing = "LostFruit gets no events: OrchardCoreEnv does not fire LostEvents, only PickEvents and "
    with pytest.warns(UserWarning, match=missing):
        env.reset(seed=0)
        env.step({"fruit": 1})
    env.step({"fruit": 1})
    env.reset(seed=1)
    play(env, 1, 2, 3, 4)


@pytest.mark.parametrize("team", [Constant(1.0), PickedOrLostFruit()])
def test_an_aggregator_that_needs_no_event_or_one_of_several_is_sound(team: RewardAggregatorInterface) -> None:
    env = orchard(team)
    env.reset(seed=0)
    play(env, 1, 2, 3, 4)
