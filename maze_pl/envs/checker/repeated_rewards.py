"""Check of reward aggregators that count the same events in several acts of an environment step."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from maze_pl.envs.checker.examination import N_REPLAYED, Examination
from maze_pl.envs.checker.recorder import Act, Recorder
from maze_pl.envs.checker.report import WARNING, Finding
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.events import EventRecord

_TOLERANCE = 1e-4
_LEAST_STEPS = 3  # fewer may be a coincidence
_NOTIFY = "notify_event"
_METHOD = "summarize_reward"
_REASON = "which is called in several acts of an environment step; query_events returns all events of the step so far"
_REMEDY = "call it in the act that completes the step only, or return what is new since the previous call"

_Step = tuple[int, int]
"""Number of the episode, and of the environment step in it."""


def check_repeated_rewards(examination: Examination) -> Iterator[Finding]:
    """Find reward aggregators that pay for events again in later acts of most environment steps.

    Acts are replayed while an aggregator misses some events. Events are paid again if a later act
    loses the same reward as their own act. Steps without events that change the reward, or without
    a later act, do not count. Aggregators that fail without events are not examined.
    """
    acts = examination.acts[:N_REPLAYED]
    is_possible = examination.is_deterministic and _has_several_rewards(acts)
    if not is_possible or not _aggregators(examination.env):
        return
    env = examination.make()
    aggregators = _aggregators(env)
    for aggregator in aggregators:
        examination.play_again(env, 0)  # restores the statistics of wrappers
        replay = _Replay(env, aggregator, acts[: N_REPLAYED // len(aggregators)])
        repeated = replay.repetitions()
        if sum(repeated) >= max(_LEAST_STEPS, len(repeated) / 2):
            steps = f"in {sum(repeated)} of {len(repeated)} environment steps with such events"
            fault = f"{steps}, acts are rewarded again for events of earlier acts"
            name = type(aggregator).__name__
            yield WARNING, f"{fault}, by {_METHOD} of {name}, {_REASON}: {_REMEDY}"


def _aggregators(env: Recorder) -> list[RewardAggregatorInterface]:
    """Return the aggregators from which events can be withheld."""
    subscribers = [one for one in env.pubsub.subscribers if _NOTIFY not in vars(one)]
    return [one for one in subscribers if isinstance(one, RewardAggregatorInterface)]


def _has_several_rewards(acts: Sequence[Act]) -> bool:
    """True if several acts of an environment step have rewards."""
    pairs = zip(acts, _steps_of(acts), strict=True)
    n_rewards = Counter(step for act, step in pairs if act.reward != 0)
    return any(number > 1 for number in n_rewards.values())


def _steps_of(acts: Sequence[Act]) -> list[_Step]:
    """Return the environment step of each act; a reset belongs to the first step of its episode."""
    steps = [(0, 0)]
    for before, act in pairwise(acts):
        episode = steps[-1][0]
        steps.append((episode + 1, 0) if act.action is None else (episode, before.env_time))
    return steps


class _Replay:
    """Replay in which an aggregator misses the events of one act of each environment step, the first with events.

    Args:
        env: The environment.
        aggregator: An aggregator of the environment.
        acts: The acts.
    """

    def __init__(self, env: Recorder, aggregator: RewardAggregatorInterface, acts: Sequence[Act]) -> None:
        self._env = env
        self._aggregator = aggregator
        self._acts = acts
        self._steps = _steps_of(acts)
        self._first: dict[_Step, int] = {}  # number of the act whose events are missed
        self._lost: list[float] = []  # for each act, its reward minus the one in the replay

    def repetitions(self) -> list[bool]:
        """Tell for each step whether a later act loses the same reward, if the act with these events loses any."""
        vars(self._aggregator)[_NOTIFY] = self._notify
        try:
            with warnings.catch_warnings(), suppress(Exception):  # of code that needs these events
                warnings.simplefilter("ignore")
                self._play()
        finally:
            vars(self._aggregator).pop(_NOTIFY, None)
        later: defaultdict[_Step, list[float]] = defaultdict(list)
        for number, (step, lost) in enumerate(zip(self._steps, self._lost, strict=False)):
            if number > self._first.get(step, number):
                later[step].append(lost)
        repeated = []
        for step, others in later.items():
            lost = self._lost[self._first[step]]
            if abs(lost) > _TOLERANCE:
                repeated.append(bool(np.isclose(others, lost, _TOLERANCE, 0).any()))
        return repeated

    def _notify(self, record: EventRecord) -> None:
        """Receive an event in place of the aggregator, and pass it on unless it is to be missed."""
        number = len(self._lost)  # of the running act
        is_reset = self._acts[number].action is None
        if is_reset or self._first.setdefault(self._steps[number], number) != number:
            type(self._aggregator).notify_event(self._aggregator, record)

    def _play(self) -> None:
        """Replay the acts, until the episode takes another course."""
        for act in self._acts:
            if act.action is None:
                self._env.reset(seed=act.seed)
            else:
                self._env.step(act.action)
            again = self._env.acts.pop()
            if _course(again) != _course(act):
                return
            self._lost.append(act.reward - again.reward)


def _course(act: Act) -> tuple[Any, ...]:
    """Return the parts of an act that decide which acts can follow."""
    return act.actor, act.env_time, act.terminated, act.truncated
