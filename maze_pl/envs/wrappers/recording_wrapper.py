"""Base class of wrappers that record episodes."""

from collections import deque
from typing import Any

from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.envs.wrapper import Wrapper


class RecordingWrapper(Wrapper):
    """Keeps the last episodes, and passes each of them to a writer.

    Args:
        env: The environment to wrap.
        writer: Writer that receives each episode.
        n_episodes: Number of episodes kept here.

    Attributes:
        trajectories: The last episodes that ended, oldest first.
    """

    def __init__(self, env: StructuredEnv, writer: TrajectoryWriter | None, n_episodes: int) -> None:
        super().__init__(env)
        self.writer, self.trajectories = writer, deque[Any](maxlen=n_episodes)
        self._is_wanted = False  # True once the episode has steps other than for statistics

    def clone_from(self, env: Any) -> None:
        """Copy the state of another stack, with its record, which is wanted after further steps."""
        super().clone_from(env)
        self._is_wanted = False

    def _keep(self, record: Any) -> None:
        """Keep a complete record, and pass it to the writer."""
        self.trajectories.append(record)
        if self.writer is not None:
            self.writer.write(record)

    def close(self) -> None:
        """Complete the record of the episode, and close the writer and the environment."""
        self.end_episode()
        if self.writer is not None:
            self.writer.close()
        super().close()
