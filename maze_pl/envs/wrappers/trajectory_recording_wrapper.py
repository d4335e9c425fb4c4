"""Records episodes: to be looked at, to be shown as films, and to learn from."""

import copy
import io
from collections import deque
from collections.abc import Mapping
from typing import Any

from maze_pl.core.episode import StatKey
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.trajectory_record import StateRecord, StateTrajectoryRecord, TrajectoryWriter
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events.plots import require_matplotlib
from maze_pl.events.pubsub import EventRecord


class TrajectoryRecordingWrapper(Wrapper):
    """Keeps the last episodes, step by step of the simulation, and passes each of them on to a writer.

    Everything is copied when it is recorded (`copy.deepcopy` of state, action, information, events and components), so
    that nothing in a record changes later. For a small state this takes about as long as a step of CartPole with its
    statistics; for a large one it is what recording costs. An episode that is given up, by `reset` or `close`, is
    recorded as far as it went, and one that a resumed run goes on with as a whole; those that wrappers estimate their
    statistics from are left out. A writer that wants pictures gets those of `render`. Evaluation records, too.

    Args:
        env: The environment to wrap.
        writer: What else happens to episodes, such as `TrajectoryFiles` or `GifFiles`.
        n_episodes: How many episodes are kept here.

    Raises:
        ValueError: The writer wants pictures, and nothing draws this environment.

    Attributes:
        trajectories: The last episodes that ended, oldest first.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = TrajectoryRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"))
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 1})
        >>> env.close()
        >>> [(step.maze_action, step.reward) for step in env.trajectories[0].steps]
        [(1, 1.0)]
    """

    def __init__(self, env: StructuredEnv, writer: TrajectoryWriter | None = None, n_episodes: int = 1) -> None:
        super().__init__(env)
        self._has_frames = writer is not None and writer.needs_frames
        if self._has_frames:
            require_matplotlib(type(writer).__name__)
            if self.get_renderer() is None and self.render_mode != "rgb_array":
                remedy = "make a gymnasium environment with render_mode='rgb_array' (--data.env.dict_kwargs.render_mode"
                raise ValueError(f"nothing draws {name_of(env)}: {remedy} rgb_array), give a simulation a get_renderer")
        self.writer = writer
        self.trajectories: deque[StateTrajectoryRecord] = deque(maxlen=n_episodes)
        self._record: StateTrajectoryRecord | None = None
        self._is_wanted = False  # the record, as it has steps that were not only taken to estimate statistics
        self._latest: EventRecord | None = None
        self._n_events = 0  # of the environment step, recorded already

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and its record."""
        self.end_episode()
        result = self.env.reset(seed=seed, options=options)
        self._record, self._is_wanted = StateTrajectoryRecord(self.env.get_episode_id()), False
        self._latest, self._n_events = next(reversed(self.env.get_step_events()), None), 0
        self._look(self._record)
        return result

    def step(self, action: Action) -> StepResult:
        """Step, and record what the simulation did; nothing where a wrapper inside only remembers the action."""
        env, record = self.env, self._record
        env_time, actor_id = env.get_env_time(), env.core_env.actor_id()
        components = copy.deepcopy(env.get_serializable_components())
        result = env.step(action)
        _, reward, terminated, truncated, info = result
        events = env.get_step_events()
        if record is not None and events and events[-1] is not self._latest:
            taken, info, fresh = copy.deepcopy((env.get_maze_action(), info, events[self._n_events :]))
            state, outcome = record.last_maze_state, (reward, terminated, truncated, info)
            record.steps.append(StateRecord(env_time, actor_id, state, taken, *outcome, fresh, components))
            self._latest, self._is_wanted = events[-1], self.context.is_logged
            self._n_events = len(events) if env.get_env_time() == env_time else 0
            self._look(record)
        if terminated or truncated:
            self.end_episode()
        return result

    def _look(self, record: StateTrajectoryRecord) -> None:
        record.last_maze_state = copy.deepcopy(self.env.get_maze_state())
        if self._has_frames:
            from PIL import Image

            frame = io.BytesIO()
            Image.fromarray(self.render()).save(frame, "PNG", compress_level=1)
            record.frames.append(frame.getvalue())

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Complete the record of the episode, if it was begun."""
        record, self._record = self._record, None
        if record is not None and self._is_wanted:
            self.trajectories.append(record)
            if self.writer is not None:
                self.writer.write(record)
        return {}

    def close(self) -> None:
        """Complete the record of the episode, and close the environment."""
        self.end_episode()
        super().close()
