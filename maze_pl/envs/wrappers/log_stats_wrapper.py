"""Statistics of episodes."""

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary, StatKey
from maze_pl.envs.contract import EnvContractError, bounds, check_reset, check_step, describe
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.events.attribute_values import detached
from maze_pl.events.episode_log import (
    EpisodeEventLog,
    KpiCalculator,
    RunningEventLog,
    RunningKpiCalculator,
)
from maze_pl.events.episode_statistics import EpisodeStatistics, action_keys
from maze_pl.events.event_names import find_topic
from maze_pl.events.pubsub import EventRecord
from maze_pl.events.topics import (
    BaseEnvEvents,
    ContinuousActionEvents,
    DiscreteActionEvents,
    EventDeclaration,
    StatisticsError,
    declarations,
)

_STATISTICS: Final = (
    "expected a dict whose keys are (name of a topic, event, statistic or None, tuple of the values of its groups)"
)
_DETACHED: Final = -1  # instead of the number of a reader


class LogStatsWrapper(Wrapper):
    """Collects events and actions of an environment, and summarises each episode when it ends.

    It is meant to be the outermost wrapper: it logs the actions that it receives, once for each
    decision, and an episode ends when it ends for this wrapper. Events count in the environment
    step in which they were fired, even if a wrapper made the step by itself. Another
    `LogStatsWrapper` around or inside this one keeps separate statistics.

    An episode that `reset` cuts short is left out and counted in `n_unfinished`, unless
    `close_episode` was called before or `count_unfinished` is set.

    Args:
        env: The environment to wrap.
        logging_prefix: Name under which statistics of this environment are printed.
        count_unfinished: Whether an episode that `reset` cuts short is summarised up to that point.

    Attributes:
        n_unfinished: Number of episodes left out since the summaries were last drained.
        logged_totals: Numbers of steps and episodes that a hand-written loop has logged so far, for
            `SimpleStatsLoggingSetup`.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1"))
        >>> _ = env.reset(seed=1)
        >>> while not any(env.step({"action": 1})[2:4]):
        ...     continue
        >>> [summary.reward for summary in env.drain_episode_summaries()]
        [9.0]
    """

    def __init__(self, env: StructuredEnv, logging_prefix: str | None = None, count_unfinished: bool = False) -> None:
        super().__init__(env)
        self.logging_prefix, self.count_unfinished = logging_prefix, count_unfinished
        self.n_unfinished = 0
        self.logged_totals: dict[str, int] = {}
        self._pubsub = env.pubsub
        self._reader = env.pubsub.add_reader()
        kinds = [type(wrapper) for wrapper in wrappers_of(env)]
        self._is_innermost = not any(issubclass(kind, LogStatsWrapper) for kind in kinds)
        self._base_events = env.pubsub.create_event_topic(BaseEnvEvents)
        self._inner = tuple(wrappers_of(env))[::-1]  # values of outer wrappers take precedence
        self._statistics = EpisodeStatistics()
        self._event_log = _event_log(env.get_kpi_calculator())
        self._summaries: list[EpisodeSummary] = []
        self._env_time, self._begun = 0, False
        self._known_keys: set[StatKey] = set()  # of statistics of wrappers
        # Actions go straight into columns, and become events only if KPIs are computed.
        self._actions: dict[StepKey, list[tuple[str, list[Any]]]] = {}
        self._act_events: dict[StepKey, list[tuple[EventDeclaration, dict[str, Any]]]] = {}
        for key, space in env.action_spaces_dict.items():
            self._act_events[key] = [_act_event(key, head, part) for head, part in space.items()]
            names = action_keys(key, space).items()
            self._actions[key] = [(head, self._statistics.passed_on(name)) for head, name in names]
        counts = env.agent_counts_dict
        self._flat_key: StepKey | None = next(iter(counts)) if list(counts.values()) == [1] else None

    def step(self, action: Action) -> StepResult:
        """Step, and record the action and the events."""
        step_key, taken = self._note(action)
        return self._receive(self.env.step(action), step_key, taken)

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        step_key, taken = self._note(action)
        return self._receive((yield action), step_key, taken)

    def _note(self, action: Action) -> tuple[StepKey, dict[str, Any]]:
        """Record an action; return its sub-step, and a copy of it if KPIs need one."""
        env = self.env
        step_key = env.actor_id().step_key if self._flat_key is None else self._flat_key
        for head, values in self._actions[step_key]:
            value = action[head]
            values.append(value if type(value) is int else detached(value))
        log = self._event_log
        taken = {head: detached(value) for head, value in action.items()} if log else {}
        return step_key, taken

    def _receive(self, result: Any, step_key: StepKey, taken: dict[str, Any]) -> StepResult:
        """Record the events of a step; summarise the episode if it ended.

        Args:
            result: Result of the step.
            step_key: Sub-step in which the action was taken.
            taken: The action, or nothing if no KPIs need it.
        """
        env, log = self.env, self._event_log
        try:
            _, _, terminated, truncated, _ = result
        except (TypeError, ValueError):
            check_step(result, env)
            raise
        records, now = self._pubsub.drain(self._reader), env.get_env_time()
        acts = [] if log is None else self._acts(step_key, taken)
        elapsed = now - self._env_time
        is_several = elapsed > 1
        if elapsed == 1 and records:  # the last of several steps may have events, but not be complete
            is_several = records[-1].env_time - self.context.first_env_time >= now
        if is_several:
            self._receive_by_step(records, acts, now)
        else:
            receive = self._statistics.receive
            for record in records:
                receive(record)
            if log is not None:
                log.receive(*records, *acts)
            if now != self._env_time:
                self._env_time = now
                self._statistics.end_step()
                if log is not None:
                    log.end_step()
        self._begun = True
        if terminated or truncated:
            self.close_episode()
        return result  # type: ignore[no-any-return]

    def _acts(self, step_key: StepKey, taken: dict[str, Any]) -> list[EventRecord]:
        """The action as events, one for each head."""
        time = self._env_time + self.context.first_env_time
        return [
            EventRecord(declaration.topic, declaration.event, {**attributes, "value": taken[attributes["name"]]}, time)
            for declaration, attributes in self._act_events[step_key]
        ]

    def _receive_by_step(self, records: list[EventRecord], acts: list[EventRecord], now: int) -> None:
        """Receive the events of several environment steps, each in its step.

        Args:
            records: Events that were fired.
            acts: Actions, for the event log only.
            now: Environment time after the steps.
        """
        first, log = self.context.first_env_time, self._event_log
        for record in records:
            self._statistics.advance(record.env_time - first)
            self._statistics.receive(record)
        self._statistics.advance(now)
        if log is not None:
            for record in sorted(chain(records, acts), key=attrgetter("env_time")):
                log.advance(record.env_time - first)
                log.receive(record)
            log.advance(now)
        self._env_time = now

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; everything that happens from now on counts in it."""
        if self._begun and self.count_unfinished:
            self.close_episode()
        self.n_unfinished += self._begun
        self._drop_episode()
        result = self.env.reset(seed=seed, options=options)
        check_reset(result, self.env)
        self._env_time = 0
        now = self.env.get_env_time()
        if now:  # a wrapper has made steps by itself
            self._receive_by_step(self._pubsub.drain(self._reader), [], now)
        return result

    def get_env_time(self) -> int:
        """Number of environment steps since the episode started."""
        return self._env_time

    def close_episode(self) -> None:
        """Summarise the running episode as if it ended here; do nothing if it has not begun."""
        if not self._begun:
            return
        self._statistics.declare(*self._pubsub.topics)
        kpis = self._kpis()
        summary = self._statistics.end_episode(kpis, env_steps=self._env_time)
        if self._is_innermost:  # others compute the same
            for kpi, number in kpis.items():
                self._base_events.kpi(name=kpi, value=float(number))
        for wrapper in self._inner:
            further = wrapper.end_episode()
            self._check_further(further, wrapper)
            for name, value in further.items():
                if isinstance(value, np.ndarray):
                    summary.samples[name] = value
                else:
                    summary.statistics[name] = value
        self._summaries.append(summary)
        self._drop_episode()

    def _check_further(self, further: Any, wrapper: Wrapper) -> None:
        """Refuse statistics of a wrapper that no epoch could sum up.

        Raises:
            EnvContractError: They are not a dict from `StatKey` to numbers and arrays, or an event is not declared.
        """
        came = f"end_episode of {type(wrapper).__name__} returned"
        if not isinstance(further, Mapping):
            raise EnvContractError(f"{came} {describe(further)}; {_STATISTICS}")
        for key, value in further.items():
            if not isinstance(value, np.ndarray | int | float | np.number):
                raise EnvContractError(f"{came} {describe(value)} for {key!r}; expected a number or an array")
            if key not in self._known_keys:
                if not _is_stat_key(key):
                    raise EnvContractError(f"{came} a statistic named {key!r}; {_STATISTICS}")
                topic, event, _, _ = key
                try:
                    events = declarations(find_topic(topic, self._pubsub.topics))
                except ValueError as error:
                    raise EnvContractError(f"{came} a statistic of an unknown topic: {error}") from error
                if event not in events:
                    raise EnvContractError(f"{came} a statistic of {topic}, which declares no event {event!r}")
                self._known_keys.add(key)

    def _kpis(self) -> dict[str, float]:
        """Compute the KPIs of the episode.

        Raises:
            StatisticsError: A KPI is not declared by the calculator.
        """
        calculator = self.env.get_kpi_calculator()
        log = self._event_log
        if calculator is None or log is None:
            return {}
        state = self.env.get_maze_state()
        kpis = log.kpis(state) if isinstance(log, RunningEventLog) else calculator.calculate_kpis(log, state)
        declared = calculator.kpi_names
        undeclared = [] if declared is None else sorted(set(kpis) - set(declared))
        if undeclared:
            remedy = f"add it to kpi_names, which has {sorted(declared or ())}"
            raise StatisticsError(f"{type(calculator).__name__} computes the KPI {undeclared[0]!r}: {remedy}")
        if isinstance(declared, Sequence):  # tables have this order
            return {name: kpis[name] for name in declared if name in kpis}
        return kpis

    def drain_episode_summaries(self) -> list[EpisodeSummary]:
        """Summaries of the episodes that ended since the last call, each exactly once."""
        summaries, self._summaries = self._summaries, []
        self.n_unfinished = 0
        return summaries

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Summarise the episode that an outer wrapper has ended."""
        self.close_episode()
        return {}

    def detach(self) -> Any:
        """Stop collecting, for good, and return the environment inside, which keeps no more events for this wrapper."""
        self._pubsub.remove_reader(self._reader)
        self._reader = _DETACHED
        return self.env

    def leave_out_kpis(self) -> None:
        """Compute no KPIs from now on, because the events that they need are not fired."""
        self._event_log = None

    def estimate(self, n_samples: int, seed: int) -> None:
        """Let inner wrappers estimate their statistics, without counting the episodes for it."""
        n_unfinished, summaries = self.n_unfinished, self.drain_episode_summaries()
        self.context.is_logged = False
        super().estimate(n_samples, seed)
        self.context.is_logged = True
        self._drop_episode()
        self.n_unfinished, self._summaries = n_unfinished, summaries

    def _drop_episode(self) -> None:
        self._pubsub.drain(self._reader)
        self._statistics.reset()
        if self._event_log is not None:
            self._event_log.reset()
        self._begun = False


def _is_stat_key(key: Any) -> bool:
    """True for the key of a statistic, with names of this type."""
    if not isinstance(key, tuple) or len(key) != 4:
        return False
    topic, event, statistic, groups = key
    are_texts = isinstance(topic, str) and isinstance(event, str) and isinstance(statistic, str | None)
    return are_texts and isinstance(groups, tuple) and all(isinstance(group, str) for group in groups)


def _event_log(calculator: KpiCalculator | None) -> EpisodeEventLog | None:
    """Log for the events that a calculator needs; None without a calculator."""
    if isinstance(calculator, RunningKpiCalculator):
        return RunningEventLog(calculator)
    return None if calculator is None else EpisodeEventLog()


def _act_event(step_key: StepKey, head: str, space: spaces.Space[Any]) -> tuple[EventDeclaration, dict[str, Any]]:
    """Declaration of the event of a head's action, and its attributes but for the value."""
    attributes = {"step_key": step_key, "name": head}
    if isinstance(space, spaces.Box):
        return declarations(ContinuousActionEvents)["action"], attributes
    lowest, highest = bounds(space)
    n_choices = int(np.max(np.subtract(highest, lowest))) + 1
    return declarations(DiscreteActionEvents)["action"], {**attributes, "num_actions": n_choices}
