"""Events of a whole episode, and the KPIs that are computed from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from maze_pl.events.pubsub import Event, EventRecord, select_events


@dataclass(slots=True)
class StepEventLog:
    """Events of one environment step.

    Attributes:
        env_time: Environment steps completed before this one.
        events: Its events, in the order in which they were fired.
    """

    env_time: int
    events: list[EventRecord] = field(default_factory=list)

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in this step."""
        return select_events(self.events, events)


class EpisodeEventLog:
    """All events of one episode, step by step. Events fired by the reset belong to the first step.

    Attributes:
        step_event_logs: One log for each environment step, also for those without events.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin another episode."""
        self.step_event_logs: list[StepEventLog] = []
        self._step_is_open = False

    def receive(self, *records: EventRecord) -> None:
        """Add events to the current environment step."""
        self._open_step().events.extend(records)

    def end_step(self) -> None:
        """Complete the current environment step."""
        self._open_step()
        self._step_is_open = False

    def advance(self, n_steps: int) -> None:
        """Complete environment steps until at least `n_steps` are complete."""
        while len(self.step_event_logs) - self._step_is_open < n_steps:
            self.end_step()

    def query_events(self, events: Event | Iterable[Event]) -> list[EventRecord]:
        """Events of one or several kinds in the whole episode, in the order in which they were fired."""
        return select_events((record for step in self.step_event_logs for record in step.events), events)

    def _open_step(self) -> StepEventLog:
        """Log of the current environment step; begin one if there is none."""
        if not self._step_is_open:
            self.step_event_logs.append(StepEventLog(env_time=len(self.step_event_logs)))
            self._step_is_open = True
        return self.step_event_logs[-1]


class KpiCalculator(ABC):
    """Computes measures of success of an episode other than its reward.

    Attributes:
        kpi_names: Names of all KPIs that an episode may have. With them, callbacks that monitor
            another KPI are refused before training starts, instead of after the first evaluation.
            None declares nothing.
        asks_environment: Whether it asks an environment for the KPIs, instead of computing them
            from its arguments. Then the KPIs after each step of an episode are not known afterwards.
    """

    kpi_names: Collection[str] | None = None
    asks_environment: bool = False

    @abstractmethod
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Key performance indicators of an episode that ended, by name.

        Args:
            episode_event_log: All events of the episode.
            last_maze_state: The environment's state at its end.
        """


class RunningKpiCalculator(KpiCalculator):
    """KPI calculator that receives one environment step after the other.

    It needs no log of all events, so that the memory and the checkpoints of an episode without end
    stay small. Subclasses define `new_totals`, `add_step` and `kpis_of`.

    Example:
        >>> class Usage(RunningKpiCalculator):
        ...     def new_totals(self):
        ...         return {"n_steps": 0, "n_events": 0}
        ...     def add_step(self, totals, step):
        ...         totals["n_steps"] += 1
        ...         totals["n_events"] += len(step.events)
        ...     def kpis_of(self, totals, last_maze_state):
        ...         return {"events_per_step": totals["n_events"] / totals["n_steps"]}
        >>> log = EpisodeEventLog()
        >>> log.end_step()
        >>> Usage().calculate_kpis(log, None)
        {'events_per_step': 0.0}
    """

    @abstractmethod
    def new_totals(self) -> dict[str, Any]:
        """Totals of an episode without steps: numbers, strings, NumPy arrays, and lists and dicts of them."""

    @abstractmethod
    def add_step(self, totals: dict[str, Any], step: StepEventLog) -> None:
        """Add the events of an environment step to the totals, in place."""

    @abstractmethod
    def kpis_of(self, totals: dict[str, Any], last_maze_state: Any) -> dict[str, float]:
        """Key performance indicators of an episode that ended, by name.

        Args:
            totals: Totals of all steps.
            last_maze_state: The environment's state at its end.
        """

    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Key performance indicators of an episode whose events were all kept, by name."""
        totals = self.new_totals()
        for step in episode_event_log.step_event_logs:
            self.add_step(totals, step)
        return self.kpis_of(totals, last_maze_state)


class RunningEventLog(EpisodeEventLog):
    """Log that passes each complete environment step to a `RunningKpiCalculator` and drops it.

    Args:
        calculator: The calculator.
    """

    def __init__(self, calculator: RunningKpiCalculator) -> None:
        self._calculator = calculator
        super().__init__()

    def reset(self) -> None:
        """Begin another episode."""
        super().reset()
        self._totals, self._n_steps = self._calculator.new_totals(), 0

    def end_step(self) -> None:
        """Complete the current environment step."""
        super().end_step()
        (step,) = self.step_event_logs
        step.env_time = self._n_steps
        self._calculator.add_step(self._totals, step)
        self._n_steps += 1
        self.step_event_logs = []

    def advance(self, n_steps: int) -> None:
        """Complete environment steps until at least `n_steps` are complete."""
        while self._n_steps < n_steps:
            self.end_step()

    def kpis(self, last_maze_state: Any) -> dict[str, float]:
        """Key performance indicators of the episode, by name; events after the last step are one more step."""
        if self.step_event_logs:
            self.end_step()
        return self._calculator.kpis_of(self._totals, last_maze_state)
