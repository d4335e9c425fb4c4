"""Environments of rollouts, which record what is played in them."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from maze_pl.core.actor_id import StepKey
from maze_pl.envs import wrappers as ours
from maze_pl.envs.building import load_shared_states, wrapper_stack
from maze_pl.envs.gif_files import GifFiles
from maze_pl.envs.kept_frames import KeptFrames
from maze_pl.events import EventLogFiles

RECORDABLE: Final = ("spaces", "states", "events", "frames", "gifs")
"""Names of the data that a rollout records; see `rollout`."""


class _EventRows(EventLogFiles):
    """Collects the event rows of an episode, for a writer that puts all episodes in order."""

    def append(self, *rows: Any) -> None:
        """Keep rows, in an attribute that only exists while there are any."""
        self.kept = [*vars(self).get("kept", ()), rows]

    def pop(self) -> Any:
        """Remove and return the rows of the last episode, like the other recorders."""
        return vars(self).pop("kept", [])


@dataclass(frozen=True)
class RecordingEnvs:
    """Factory of environments with frozen wrapper statistics that record their episodes.

    Attributes:
        factory: Makes an environment with its wrappers, but for those that the policy contains.
        wrapper_statistics: Wrapper statistics.
        record: Data to record, as in `rollout`.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        max_agents: Maximum number of agents at the same time, by sub-step.
    """

    factory: Callable[[], Any]
    wrapper_statistics: Mapping[str, Any]
    record: Collection[str]
    max_steps: int
    max_agents: dict[StepKey, int] | None

    def __call__(self) -> Any:
        """Make an environment; its attribute `recorded` holds a recorder for each part of episodes."""
        env: Any = self.factory()
        load_shared_states(wrapper_stack(env), self.wrapper_statistics, freeze=True)  # before wrappers are inserted
        # A limit that is never reached keeps vectors from stepping a gymnasium environment past its states.
        env = ours.TimeLimitWrapper(env.detach(), self.max_steps or sys.maxsize)
        recorders: dict[str, Any] = {}
        kept = {"states", *self.record} if "frames" in self.record else {*self.record}
        if not {"states", "gifs", "frames"}.isdisjoint(self.record):
            writer: Any = None
            if "gifs" in self.record:
                writer = GifFiles()  # which needs frames, too
            elif "frames" in self.record:
                writer = KeptFrames()
            env = ours.TrajectoryRecordingWrapper(env, writer)
            recorders["states"] = env.trajectories
        if "events" in self.record:
            env = ours.EventLogsWrapper(env, _EventRows(n_rows=sys.maxsize))
            recorders["events"] = env.writer
        if "spaces" in self.record:
            env = ours.SpacesRecordingWrapper(env, None, 1, self.max_agents)
            recorders["spaces"] = env.trajectories
        env = ours.LogStatsWrapper(env)
        env.recorded = {name: recorder for name, recorder in recorders.items() if name in kept}
        return env


def recorded(env: Any) -> tuple[str, dict[str, Any]]:
    """Return the id and the recordings of the episode that an environment has just played."""
    return env.get_episode_id(), {name: recorder.pop() for name, recorder in env.recorded.items()}
