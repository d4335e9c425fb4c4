"""Raw event logs, a file for each event."""

from collections.abc import Mapping
from typing import Any

from maze_pl.core.episode import StatKey
from maze_pl.envs.structured_env import Action, Array, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events import EventLogFiles, EventLogWriter


class EventLogsWrapper(Wrapper):
    """Passes every event of every topic to a writer; the default writes files in the run directory.

    In a configuration, with a custom writer:

        wrappers:
          - class_path: maze_pl.envs.wrappers.EventLogsWrapper
            init_args: {writer: {class_path: my_project.DatabaseWriter, init_args: {table: events}}}

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.events import EventLogFiles
        >>> folder = tempfile.mkdtemp()
        >>> env = EventLogsWrapper.wrap(GymMazeEnv("CartPole-v1"), writer=EventLogFiles(folder))
        >>> _ = env.reset(seed=0)
        >>> _ = env.step({"action": 1})
        >>> env.close()
        >>> print(Path(folder, "BaseEnvEvents.reward.csv").read_text().splitlines()[0])
        episode_id,episode_started,env_time,value

    KPIs (`BaseEnvEvents.kpi`) are included where a `LogStatsWrapper` computes them, as in training.
    Episodes that wrappers use to estimate their statistics are left out, and so are acts that are
    replayed on resuming. An episode that a resumed run continues keeps its start. Attempts that
    `RandomResetWrapper` drops are separate episodes here.

    Args:
        env: The environment to wrap.
        writer: Writer of the events; `EventLogFiles()` if None.
    """

    def __init__(self, env: StructuredEnv, writer: EventLogWriter | None = None) -> None:
        super().__init__(env)
        self.writer = writer or EventLogFiles()
        env.pubsub.register_subscriber(self.writer)

    def step(self, action: Action) -> StepResult:
        """Step, and tell the writer if that ended the episode."""
        return self._told(self.env.step(action))

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator."""
        return self._told((yield action))

    def _told(self, result: StepResult) -> StepResult:
        """Tell the writer if a step ended the episode."""
        if (result[2] or result[3]) and self.context.is_logged:
            self.writer.has_news = False
            self.writer.end_episode()
        return result

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Tell the writer that the episode has ended if it received events (such as KPIs) since."""
        if self.writer.has_news and self.context.is_logged:
            self.writer.has_news = False
            self.writer.end_episode()
        return {}

    def write_pending(self) -> str | None:
        """Have the writer write pending events; see `EventLogWriter.write_pending`."""
        return self.writer.write_pending()

    def state_dict(self) -> dict[str, Any]:
        """Time at which the running episode began, under which its further events are written."""
        return {"episode_id": self.context.episode_id, "episode_started": self.context.episode_started}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`, if the same episode is running."""
        if state["episode_id"] == self.context.episode_id:
            self.context.episode_started = state["episode_started"]

    def close(self) -> None:
        """Close the environment and the writer."""
        self.writer.close()
        super().close()
