"""Check of reward aggregators that count the same events in several acts of an environment step."""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from maze_pl.envs.checker.examination import N_REPLAYED, Examination
from maze_pl.envs.checker.recorder import Act
from maze_pl.envs.checker.report import WARNING, Finding
from maze_pl.envs.core_env import RewardAggregatorInterface

_METHOD = "summarize_reward"
_REASON = "which is called in several acts of an environment step; query_events returns all events of the step so far"
_REMEDY = "call it in the act that completes the step only, or return what is new since the previous call"


def check_repeated_rewards(examination: Examination) -> Iterator[Finding]:
    """Find reward aggregators that pay for an event in several acts, in a replay of the first acts."""
    env = examination.env
    acts = examination.acts[:N_REPLAYED]
    aggregators = [one for one in env.pubsub.subscribers if isinstance(one, RewardAggregatorInterface)]
    if not aggregators or not _has_several_rewards(acts):
        return
    rewards = [act.reward for act in acts if act.action is not None]
    with _watched(aggregators) as watches:

        def begin_act(_: Any) -> None:
            for watch in watches:
                watch.act += 1

        env.before = begin_act
        try:
            examination.play_again(env)
        finally:
            env.before = None
    for watch in watches:
        n_repeated = sum(one.is_paid(rewards) for one in watch.repeated)
        if n_repeated > 0:
            name = type(watch.aggregator).__name__
            fault = f"{n_repeated} of {len(rewards)} acts are rewarded again for events of earlier acts"
            yield WARNING, f"{fault}, by {_METHOD} of {name}, {_REASON}: {_REMEDY}"


def _has_several_rewards(acts: Sequence[Act]) -> bool:
    """True if several acts of an environment step have rewards."""
    n_rewards: Counter[tuple[int, int]] = Counter()
    n_resets = 0
    for before, act in pairwise(acts):
        n_resets += act.action is None
        n_rewards[n_resets, before.env_time] += act.action is not None and act.reward != 0
    return any(number > 1 for number in n_rewards.values())


class _Call(NamedTuple):
    """A call of an aggregator.

    Attributes:
        step: Id of the episode and number of the environment step.
        act: Number of the act.
        n_events: Number of the events that it had received in the environment step.
        reward: The result.
    """

    step: tuple[str, int]
    act: int
    n_events: int
    reward: float


class _Repetition(NamedTuple):
    """An act in which an aggregator pays for events of an earlier act again.

    Attributes:
        first: Number of the act that paid for them first.
        second: Number of the later act.
        reward: Result of the aggregator in the later act.
        has_new_events: Whether the aggregator has received further events in between.
    """

    first: int
    second: int
    reward: float
    has_new_events: bool

    def is_paid(self, rewards: Sequence[float]) -> bool:
        """True if the simulation returned the result, and not its difference from the previous one.

        Args:
            rewards: Rewards of all acts.
        """
        is_returned = not self.has_new_events or rewards[self.second] == self.reward
        return bool(rewards[self.first] and rewards[self.second] and is_returned)


class _Watch:
    """Computes rewards in place of an aggregator, and notes acts that pay for earlier events again.

    Args:
        aggregator: The aggregator.

    Attributes:
        aggregator: As given.
        act: Number of the running act, from 0.
        repeated: Acts that pay for earlier events again.
    """

    def __init__(self, aggregator: RewardAggregatorInterface) -> None:
        self.aggregator = aggregator
        self.act = -1
        self.repeated: list[_Repetition] = []
        self._last: _Call | None = None

    def __call__(self, maze_state: Any = None) -> float:
        context = self.aggregator.pubsub.context
        step = context.episode_id, context.env_time - context.env_step_incremented
        last = self._last
        is_again = False
        if last is not None and last.step == step and last.act < self.act:
            is_again = self._pays_again(last, maze_state)
        reward = type(self.aggregator).summarize_reward(self.aggregator, maze_state)
        n_events = len(self.aggregator.events)
        if last is not None and is_again:
            self.repeated.append(_Repetition(last.act, self.act, reward, n_events > last.n_events))
        self._last = _Call(step, self.act, n_events, reward)
        return reward

    def _pays_again(self, last: _Call, maze_state: Any) -> bool:
        """True if the events of the last call, and not just the state, would give the same reward again."""
        if not (last.n_events and last.reward):
            return False
        again = self._reward_for(last.n_events, maze_state)
        return again == last.reward and again != self._reward_for(0, maze_state)

    def _reward_for(self, n_events: int, maze_state: Any) -> float | None:
        """Return the reward for the first events only, by a copy of the aggregator; None if it needs more events."""
        aggregator = copy.copy(self.aggregator)
        del vars(aggregator)[_METHOD]
        aggregator.events = self.aggregator.events[:n_events]
        try:
            return aggregator.summarize_reward(maze_state)
        except Exception:  # of the user's code
            return None


@contextmanager
def _watched(aggregators: Sequence[RewardAggregatorInterface]) -> Iterator[list[_Watch]]:
    """Watch the calls of aggregators."""
    watches = [_Watch(aggregator) for aggregator in aggregators]
    try:
        for watch in watches:
            vars(watch.aggregator)[_METHOD] = watch
        yield watches
    finally:
        for watch in watches:
            vars(watch.aggregator).pop(_METHOD, None)
