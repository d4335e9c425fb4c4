"""Records of the simulation's states, actions and events, optionally with frames."""

import copy
import io
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import ActorID
from maze_pl.core.episode import StatKey
from maze_pl.envs.attribution import attributes_rewards, ends_actors
from maze_pl.envs.contract import check_picture, name_of
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.trajectory_record import StateRecord, StateTrajectoryRecord
from maze_pl.envs.trajectory_writer import TrajectoryWriter
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.recording_wrapper import RecordingWrapper
from maze_pl.events import BaseEnvEvents, EventRecord, Subscriber
from maze_pl.events.display import require_matplotlib

_SIMPLE = {int, float, bool, str, type(None)}


class _DecisionEvents(Subscriber):
    """Copies of all events of a decision, as they were when fired, and of its first action.

    Args:
        env: The environment inside all wrappers.

    Attributes:
        maze_action: The first action that the simulation took in the decision.
        has_acted: Whether it took one.
    """

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__()
        self._env = env
        self.maze_action: Any = None
        self.has_acted = False

    def get_interfaces(self) -> list[type]:
        return [object]

    def notify_event(self, record: EventRecord) -> None:
        self.events.append(record._replace(attributes=_copied(record.attributes)))
        if record.event is BaseEnvEvents.reward and not self.has_acted:
            self.has_acted, self.maze_action = True, _copied(self._env.get_maze_action())

    def clear_events(self) -> None:
        if not self.pubsub.context.env_step_incremented:  # an episode begins, not just a step
            self.events.clear()

    def take(self) -> list[EventRecord]:
        """Return the events, and begin the next decision."""
        events, self.events = self.events, []
        self.has_acted = False
        return events


class TrajectoryRecordingWrapper(RecordingWrapper):
    """Keeps the last episodes, decision by decision, and passes each of them to a writer.

    A decision is an act from outside that reaches the simulation, with everything that inner
    wrappers make of it. Its state is the state before it. Its action is the first that the
    simulation took, or the result of `get_maze_action` of an inner wrapper that overrides it. Its
    reward and events are those of all environment steps that it took.

    Everything is copied when it is recorded (`copy.deepcopy` of state, action, information, events
    and components), so nothing in a record changes later. For a small state this takes about as
    long as a step of CartPole with its statistics; for a large one, copying dominates the cost of
    recording. An episode that is cut short by `reset` or `close` is recorded up to there; an
    episode that a resumed run continues is recorded as a whole. Episodes that wrappers use to
    estimate their statistics are left out. A writer that needs frames receives those of `render`.
    Evaluation episodes are recorded, too.

    Args:
        env: The environment to wrap.
        writer: Writer that receives each episode, such as `TrajectoryFiles` or `GifFiles`.
        n_episodes: Number of episodes kept here.

    Raises:
        ValueError: The writer needs frames, and nothing draws this environment.

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
        self._reward = 0.0  # includes acts that did not reach the simulation
        self._attributes = attributes_rewards(env)
        self._ends_actors = ends_actors(env)
        self._n_acts = 0  # since the last decision
        self._unfinished: list[tuple[StateRecord, int]] = []  # decisions of this step, with their numbers of acts
        layers = list(wrappers_of(env))
        passed_on = Wrapper.get_maze_action
        self._names_actions = any(type(layer).get_maze_action is not passed_on for layer in layers)
        self._events = _DecisionEvents(layers[-1].env if layers else env)
        env.pubsub.register_subscriber(self._events)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode and its record."""
        self.end_episode()
        result = self.env.reset(seed=seed, options=options)
        self._record = StateTrajectoryRecord(self.env.get_episode_id(), is_attributed=self._attributes)
        self._is_wanted = False
        self._events.has_acted = False  # steps by wrappers are not decisions
        self._reward = 0.0
        self._n_acts = 0
        self._unfinished = []
        self._look(self._record)
        return result

    def step_in_parts(self, action: Action) -> StepParts:
        """Step, and record the decision, unless an inner wrapper only stores the action."""
        env, record = self.env, self._record
        env_time, actor_id = env.get_env_time(), env.core_env.actor_id()
        components = _copied(env.get_serializable_components())
        result: StepResult = yield action
        _, reward, terminated, truncated, _ = result
        is_last = terminated or truncated
        self._reward += reward
        self._n_acts += 1
        if record is not None:
            if self._events.has_acted:
                self._add_decision(record, result, env_time, actor_id, components)
            elif record.steps and is_last:  # a wrapper alone has ended the episode
                last = record.steps[-1]
                last.reward += self._reward
                last.terminated, last.truncated = terminated, truncated
                last.events += self._events.take()
            self._end_step(record, env_time, is_last)
        if is_last:
            self.end_episode()
        return result

    def _add_decision(
        self,
        record: StateTrajectoryRecord,
        result: StepResult,
        env_time: int,
        actor_id: ActorID,
        components: dict[str, Any],
    ) -> None:
        """Record a decision that has reached the simulation.

        Args:
            record: Record of the episode.
            result: Result of the decision.
            env_time: Environment time before it.
            actor_id: The simulation's actor.
            components: State of the serializable components before it.
        """
        env, fired = self.env, self._events
        _, _, terminated, truncated, info = result
        step = StateRecord(
            env_time=env_time,
            actor_id=actor_id,
            maze_state=record.last_maze_state,
            maze_action=_copied(env.get_maze_action()) if self._names_actions else fired.maze_action,
            reward=self._reward,
            terminated=terminated,
            truncated=truncated,
            info=_copied(info),
            events=fired.take(),
            serializable_components=components,
            actor_done=bool(env.is_actor_done()),
        )
        record.steps.append(step)
        self._unfinished.append((step, self._n_acts))
        self._n_acts = 0
        self._reward = 0.0
        self._is_wanted = self.context.is_logged
        self._look(record)

    def _end_step(self, record: StateTrajectoryRecord, env_time: int, is_last: bool) -> None:
        """Record the time, and rewards and ends of single actors if an environment step is finished.

        Args:
            record: Record of the episode.
            env_time: Environment time before the act.
            is_last: Whether the act was the last one of the episode.
        """
        env = self.env
        record.last_env_time = env.get_env_time()
        record.last_actor_id = env.core_env.actor_id()
        if record.last_env_time == env_time and not is_last:
            return
        rewards = env.get_actor_rewards() if self._attributes else None
        if rewards is None:
            record.is_attributed = False
        else:
            following = map(float, rewards)
            for step, n_acts in self._unfinished:
                of_step = list(itertools.islice(following, n_acts))
                step.actor_rewards = of_step if len(of_step) == n_acts else None
        done = {tuple(actor) for actor in env.get_done_actors()} if self._ends_actors else set()
        for step, _ in reversed(self._unfinished):
            if step.actor_id in done:  # its latest act
                step.actor_done = True
                done.remove(step.actor_id)
        self._unfinished = []
        self._n_acts = 0

    def _look(self, record: StateTrajectoryRecord) -> None:
        """Record the state and a frame: of the last step if there is a renderer, else the state."""
        record.last_maze_state = _copied(self.env.get_maze_state())
        renderer = self.get_renderer() if self._has_frames else None
        if renderer is not None and record.steps:
            self._add_frame(record, record.draw(renderer, len(record.steps) - 1))
        elif renderer is None and self._has_frames:
            picture = self.render()
            check_picture(picture, self.env)
            self._add_frame(record, picture)

    def _add_frame(self, record: StateTrajectoryRecord, picture: Any) -> None:
        from PIL import Image

        frame = io.BytesIO()
        Image.fromarray(picture).save(frame, "PNG", compress_level=1)
        record.frames.append(frame.getvalue())

    def state_dict(self) -> dict[str, Any]:
        """Rewards of the running episode, since adaptive wrappers would change them in a replay."""
        steps = self._record.steps if self._record is not None else []
        return {
            "reward": [step.reward for step in steps],
            "actor_rewards": [step.actor_rewards for step in steps],
            "since_decision": self._reward,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; replaying restores everything else."""
        if self._record is None or len(self._record.steps) != len(state["reward"]):
            return
        for step, reward, actor_rewards in zip(
            self._record.steps, state["reward"], state["actor_rewards"], strict=True
        ):
            step.reward = float(reward)
            step.actor_rewards = actor_rewards
        self._reward = float(state["since_decision"])

    def end_episode(self) -> Mapping[StatKey, float | Array]:
        """Complete the record of the episode if one is running."""
        record, self._record = self._record, None
        if record is not None and self._is_wanted:
            if self._has_frames and (renderer := self.get_renderer()) is not None:
                self._add_frame(record, record.draw(renderer, len(record.steps)))
            self._keep(record)
        return {}


def _copied(value: Any) -> Any:
    """Copy a value; a simple one without `copy.deepcopy`, which takes ten times as long."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy(order="K")
    if type(value) is dict and all(type(one) in _SIMPLE for one in value.values()):
        return dict(value)
    return value if type(value) in _SIMPLE else copy.deepcopy(value)
