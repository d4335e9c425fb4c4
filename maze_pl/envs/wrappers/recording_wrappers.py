"""Records episodes: to be looked at, to be shown as films, and to learn from."""

import copy
import io
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.records import Act, SpacesTrajectoryRecord
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.trajectory_record import StateRecord, StateTrajectoryRecord, TrajectoryWriter
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events import EventLogFiles, EventLogWriter, EventRecord
from maze_pl.events.display import require_matplotlib

_SIMPLE = {int, float, bool, str, type(None)}


class RecordingWrapper(Wrapper):
    """Keeps the last episodes, and passes each of them on to a writer.

    Args:
        env: The environment to wrap.
        writer: What else happens to episodes.
        n_episodes: How many episodes are kept here.

    Attributes:
        trajectories: The last episodes that ended, oldest first.
    """

    def __init__(self, env: StructuredEnv, writer: TrajectoryWriter | None, n_episodes: int) -> None:
        super().__init__(env)
        self.writer, self.trajectories = writer, deque[Any](maxlen=n_episodes)
        self._is_wanted = False  # the episode, as it has steps that were not only taken to estimate statistics

    def _keep(self, record: Any) -> None:
        """Take a record that is complete."""
        self.trajectories.append(record)
        if self.writer is not None:
            self.writer.write(record)

    def close(self) -> None:
        """Complete the record of the episode, and close the environment."""
        self.end_episode()
        super().close()


class TrajectoryRecordingWrapper(RecordingWrapper):
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
        super().__init__(env, writer, n_episodes)
        self._has_frames = writer is not None and writer.needs_frames
        if self._has_frames:
            require_matplotlib(type(writer).__name__)
            if self.get_renderer() is None and self.render_mode != "rgb_array":
                remedy = "make a gymnasium environment with render_mode='rgb_array' (--data.env.dict_kwargs.render_mode"
                raise ValueError(f"nothing draws {name_of(env)}: {remedy} rgb_array), give a simulation a get_renderer")
        self._record: StateTrajectoryRecord | None = None
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
        components = _copied(env.get_serializable_components())
        result = env.step(action)
        _, reward, terminated, truncated, info = result
        events = env.get_step_events()
        if record is not None and events and events[-1] is not self._latest:
            taken, info = _copied(env.get_maze_action()), _copied(info)
            fresh = [one._replace(attributes=_copied(one.attributes)) for one in events[self._n_events :]]
            state, outcome = record.last_maze_state, (reward, terminated, truncated, info)
            record.steps.append(StateRecord(env_time, actor_id, state, taken, *outcome, fresh, components))
            self._latest, self._is_wanted = events[-1], self.context.is_logged
            self._n_events = len(events) if env.get_env_time() == env_time else 0
            self._look(record)
        if terminated or truncated:
            self.end_episode()
        return result

    def _look(self, record: StateTrajectoryRecord) -> None:
        record.last_maze_state = _copied(self.env.get_maze_state())
        if self._has_frames:
            from PIL import Image

            frame = io.BytesIO()
            Image.fromarray(cast(Any, self.render())).save(frame, "PNG", compress_level=1)
            record.frames.append(frame.getvalue())

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Complete the record of the episode, if it was begun."""
        record, self._record = self._record, None
        if record is not None and self._is_wanted:
            self._keep(record)
        return {}


class SpacesRecordingWrapper(RecordingWrapper):
    """Keeps the last episodes as agents saw and played them, and passes each of them on to a writer.

    Meant to be the last of a list of wrappers: what passes through here is copied, and put into arrays of the spaces'
    types. An episode that is given up, by `reset` or `close`, is recorded as far as it went, as truncated, and one
    that a resumed run goes on with as a whole; those that wrappers estimate their statistics from are left out.
    `TrajectoryRecordingWrapper` records the simulation instead.

    Args:
        env: The environment to wrap.
        writer: What else happens to episodes, such as `TrajectoryFiles`.
        n_episodes: How many episodes are kept here.
        max_agents: For sub-steps whose number of agents changes, how many may be alive at once.

    Raises:
        ValueError: The writer draws episodes, or `max_agents` is missing.

    Attributes:
        trajectories: The last episodes that ended, oldest first.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = SpacesRecordingWrapper.wrap(GymMazeEnv("CartPole-v1"))
        >>> observation, info = env.reset(seed=1)
        >>> result = env.step({"action": 1})
        >>> env.close()
        >>> record = env.trajectories[0]
        >>> record.observation[0]["observation"].shape, record.action[0]["action"], record.reward, record.truncated
        ((1, 4), array([1]), array([1.]), True)
    """

    def __init__(
        self,
        env: StructuredEnv,
        writer: TrajectoryWriter | None = None,
        n_episodes: int = 1,
        max_agents: dict[StepKey, int] | None = None,
    ) -> None:
        super().__init__(env, writer, n_episodes)
        if writer is not None and writer.needs_frames:
            raise ValueError(f"{type(writer).__name__} draws episodes, which needs TrajectoryRecordingWrapper")
        self._described, self._context = Spec.of(env, max_agents), env.context
        self._is_flat = self._described.is_flat
        self._acts, self._rewards = cast(list[Act] | None, None), list[float]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode, and its record."""
        self.end_episode()
        result = self.env.reset(seed=seed, options=options)
        self._acts, self._rewards, self._is_wanted = [], [], False
        self._actor, self._env_time, self._seen = self.env.actor_id(), self.env.get_env_time(), _arrays(result[0])
        return result

    def step(self, action: Action) -> StepResult:
        """Step, and record the act."""
        env, acts, done = self.env, self._acts, _arrays(action)
        result = env.step(action)
        if acts is None:
            return result
        observation, reward, terminated, truncated, _ = result
        before, is_flat = self._env_time, self._is_flat
        acts.append((*self._actor, before, reward, not is_flat and env.is_actor_done(), self._seen, done))
        self._env_time, self._seen = env.get_env_time(), _arrays(observation)
        self._is_wanted = self._context.is_logged  # not only played to estimate statistics
        if not is_flat and (self._env_time != before or terminated or truncated):
            rewards = env.get_actor_rewards()
            self._rewards += [] if rewards is None else list(rewards)
        if not is_flat and not terminated:
            self._actor = env.actor_id()
        if terminated or truncated:
            self._end(bool(terminated), bool(truncated))
        return result

    def _end(self, terminated: bool, truncated: bool) -> None:
        """Complete the record, and pass it on, if it is wanted."""
        acts, self._acts, rewards = self._acts, None, self._rewards
        if not acts or not self._is_wanted:
            return
        actor = None if terminated else ActorID(*self._actor)
        seen = self._described.steps[actor.step_key].observation_space.spaces if actor else {}
        last = {name: np.array(self._seen[name], space.dtype) for name, space in seen.items()}
        attributed = np.array(rewards + [np.nan] * (len(acts) - len(rewards))) if rewards else None
        rest = terminated, truncated, self._env_time, actor, last, attributed
        self._keep(SpacesTrajectoryRecord.of_acts(self.env.get_episode_id(), self._described, acts, *rest))

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Complete the record of the episode, if it was begun and has not ended."""
        self._end(terminated=False, truncated=True)
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Rewards of the running episode: wrappers that learn change them in another way if it is played again."""
        return {"reward": [act[3] for act in self._acts or ()], "actor_reward": [float(one) for one in self._rewards]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the result of `state_dict`; what was seen and done follows from playing the episode again."""
        if self._acts and len(self._acts) == len(state["reward"]):
            self._acts = [(*act[:3], own, *act[4:]) for act, own in zip(self._acts, state["reward"], strict=True)]
            self._rewards = list(state["actor_reward"])


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


def _arrays(values: Mapping[str, Any]) -> Observation:
    return {name: np.array(value) for name, value in values.items()}


def _copied(value: Any) -> Any:
    """A copy of anything; what is simple without `copy.deepcopy`, which takes ten times as long."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy(order="K")
    if type(value) is dict and all(type(one) in _SIMPLE for one in value.values()):
        return dict(value)
    return value if type(value) in _SIMPLE else copy.deepcopy(value)
