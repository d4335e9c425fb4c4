"""Key performance indicators: computed once per episode, from everything that happened in it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from maze_pl.events.pubsub import EventRecord, select_events


@dataclass(slots=True)
class StepEventLog:
    """Events of one environment step.

    Attributes:
        env_time: Environment steps completed before this one.
        events: Its events, in the order in which they were fired.
    """

    env_time: int
    events: list[EventRecord] = field(default_factory=list)

    def query_events(self, events: Callable[..., Any] | Iterable[Callable[..., Any]]) -> list[EventRecord]:
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

    def receive(self, record: EventRecord) -> None:
        """Add an event to the current environment step."""
        self._open_step().events.append(record)

    def end_step(self) -> None:
        """Complete the current environment step."""
        self._open_step()
        self._step_is_open = False

    def query_events(self, events: Callable[..., Any] | Iterable[Callable[..., Any]]) -> list[EventRecord]:
        """Events of one or several kinds in the whole episode, in the order in which they were fired."""
        return select_events((record for step in self.step_event_logs for record in step.events), events)

    def _open_step(self) -> StepEventLog:
        """The log of the current environment step, begun if it has none."""
        if not self._step_is_open:
            self.step_event_logs.append(StepEventLog(env_time=len(self.step_event_logs)))
            self._step_is_open = True
        return self.step_event_logs[-1]


class KpiCalculator(ABC):
    """Computes what one would want an episode to be judged by, apart from its reward."""

    @abstractmethod
    def calculate_kpis(self, episode_event_log: EpisodeEventLog, last_maze_state: Any) -> dict[str, float]:
        """Key performance indicators of an episode that ended, by name.

        Args:
            episode_event_log: All events of the episode.
            last_maze_state: The environment's state at its end.
        """
