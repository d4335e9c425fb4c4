"""Writes raw event logs."""

from maze_pl.envs.structured_env import Action, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events.event_logs import EventLogFiles, EventLogWriter


class EventLogsWrapper(Wrapper):
    """Hands every event of every topic to a writer while it happens, by default to files in the run directory.

    In a configuration, with a writer of one's own:

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

    Episodes that wrappers estimate their statistics from are left out, and so is what is played again on resuming.
    Attempts that `RandomResetWrapper` drops are episodes of their own here.

    Args:
        env: The environment to wrap.
        writer: Where events go; `EventLogFiles()` if None.
    """

    def __init__(self, env: StructuredEnv, writer: EventLogWriter | None = None) -> None:
        super().__init__(env)
        self.writer = writer or EventLogFiles()
        env.pubsub.register_subscriber(self.writer)

    def step(self, action: Action) -> StepResult:
        """Step, and tell the writer if that ended the episode."""
        result = self.env.step(action)
        if result[2] or result[3]:
            self.writer.end_episode()
        return result

    def close(self) -> None:
        """Close the environment and the writer."""
        self.writer.close()
        super().close()
