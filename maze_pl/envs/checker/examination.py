"""The environment that the doctor examines, and what was recorded while it was played."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

from gymnasium import spaces

from maze_pl.core.seeding import derive_seed
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.arrays.gym_vector_array_env import GymVectorArrayEnv
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.checker.early_events import EarlyEvents
from maze_pl.envs.checker.recorder import Act, LimitedCalls, Recorder
from maze_pl.envs.contract import name_of
from maze_pl.envs.structured_env import Array
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.sample_episodes import sample_episodes
from maze_pl.system.time_limit import time_limit, time_limit_to_make

N_REPLAYED = 500
"""Acts that are replayed."""
_MOST_SAMPLES = 1000  # for the statistics of wrappers


class ObservationHistory(NamedTuple):
    """One observation in all acts of a sub-step.

    Attributes:
        what: Its description.
        space: Its space.
        is_mask: Whether it serves as a mask.
        kept: Its values when they were returned.
        returned: The same arrays as they are now.
    """

    what: str
    space: spaces.Space[Any]
    is_mask: bool
    kept: list[Array]
    returned: list[Array]


class ArrayForm(NamedTuple):
    """An array environment with its wrappers.

    Attributes:
        env: Makes the environment, without wrappers.
        wrappers: Wrap it, the first one innermost.
    """

    env: Callable[[], Any]
    wrappers: list[Callable[[Any], Any]]


class Examination:
    """The environment that is examined, with the acts recorded while it was played at random.

    Args:
        env: The environment, or a factory of it.
        n_steps: Number of acts to play.
        seed: Determines episodes and actions.
        masks: Action head -> observation, in addition to the masks that the environment declares.
        step_timeout: Seconds that a step or a reset may take; no limit if None.
        array_form: The array environment of which an episode is examined; None if there is none.

    Attributes:
        source: The environment or its factory.
        n_steps: Number of acts to play.
        seed: Determines episodes and actions.
        masks: As given.
        step_timeout: As given.
        array_form: As given, or the environments that `source` makes, if they are array environments.
        plays_arrays: Whether the episodes are those of an array environment.
        env: Recorder around the environment, once it is made.
        acts: Its resets and steps.
        observations: Its observations, by sub-step and name.
        is_deterministic: Whether the same seed and actions have given the same episode.
        seconds_alone: Mean duration of a step without wrappers, in seconds; None if it was not measured.
    """

    env: Recorder
    seconds_alone: float | None = None

    def __init__(
        self,
        env: Any,
        n_steps: int,
        seed: int,
        masks: Mapping[str, str],
        step_timeout: float | None,
        array_form: ArrayForm | None = None,
    ) -> None:
        self.source = env
        self.array_form = array_form
        self.n_steps = n_steps
        self.seed = seed
        self.masks = masks
        self.step_timeout = step_timeout
        self.acts: list[Act] = []
        self.observations: list[ObservationHistory] = []
        self.is_deterministic = True
        self.plays_arrays = False
        self._made: list[LogStatsWrapper] = []
        self._wrapper_states: list[dict[str, Any]] = []  # outputs may depend on them

    @property
    def title(self) -> str:
        """Name of the environment, with the number of acts and episodes."""
        name = name_of(self._made[0]) if self._made else "the environment"
        n_episodes = sum(act.action is None for act in self.acts)
        n_acts = len(self.acts) - n_episodes
        acts = "1 act" if n_acts == 1 else f"{n_acts:,} acts"
        return f"{name}: {acts} in {n_episodes} {'episode' if n_episodes == 1 else 'episodes'}"

    @property
    def wrapper_names(self) -> list[str]:
        """Classes of the wrappers, from the outermost inwards."""
        return [type(wrapper).__name__ for wrapper in wrappers_of(self._made[0])]

    def make(self) -> Recorder:
        """Record a new environment if a factory was given, otherwise the same one again."""
        if callable(self.source) or not self._made:
            with time_limit_to_make(self.step_timeout):
                made: Any = make_wrapped(self._make_unwrapped)
            self.plays_arrays = plays_in_arrays(made)
            made.unwrapped._unchecked = []  # the check `steps` looks at all observations
            self._made.append(made)
        return self.recorded(self._made[-1])

    def _make_unwrapped(self) -> Any:
        """Call the factory, or return the environment."""
        if not callable(self.source):
            return self.source
        made = self.source()
        if self.array_form is None and isinstance(made, ArrayEnv) and not isinstance(made.unwrapped, GymVectorArrayEnv):
            self.array_form = ArrayForm(self.source, [])
        return made

    def recorded(self, env: Any) -> Recorder:
        """Return a recorder around an environment."""
        return Recorder(env, self.masks, self.step_timeout)

    def copied(self) -> Recorder:
        """Record a deep copy of the environment that was played."""
        return self.recorded(copy.deepcopy(self._made[0]))

    def play(self) -> None:
        """Estimate the statistics of wrappers, then play the environment at random."""
        made = self._made[0]
        made.context.is_logged = False
        samples_seed = derive_seed(self.seed, "normalization")
        LimitedCalls(made, self.step_timeout).estimate(min(self.n_steps, _MOST_SAMPLES), samples_seed)
        made.context.is_logged = True
        self._wrapper_states = [wrapper.state_dict() for wrapper in wrappers_of(made)]
        sample_episodes(self.env, self.n_steps, self.seed, None)

    def play_again(self, env: Recorder, end: int = N_REPLAYED, with_summaries: bool = False) -> str | None:
        """Repeat the first acts in an environment, and describe the first difference, if any.

        Args:
            env: The environment.
            end: Number of acts.
            with_summaries: Whether the statistics of episodes are compared, too.
        """
        self._restore_wrappers(env.env)
        return env.repeat(self.acts[:end], with_summaries)

    def _restore_wrappers(self, env: Any) -> None:
        # There are no states if the environment could not be played.
        for wrapper, state in zip(wrappers_of(env), self._wrapper_states, strict=False):
            wrapper.load_state_dict(state)

    def close(self, is_stuck: bool = False) -> None:
        """Restore the states of the wrappers, and close the environments that were made here.

        Args:
            is_stuck: Whether a call has failed or not returned, so that closing may fail as well.
        """
        for env in self._made:
            self._restore_wrappers(env)
            for subscriber in env.pubsub.subscribers:
                if type(subscriber) is EarlyEvents:
                    env.pubsub.remove_subscriber(subscriber)
            if callable(self.source):
                with (
                    suppress(Exception) if is_stuck else nullcontext(),
                    time_limit("close", self.step_timeout),
                ):
                    env.close()


def plays_in_arrays(env: Any) -> bool:
    """Return whether an environment plays one episode of an array environment all of whose episodes have seeds.

    Those of a `GymVectorArrayEnv` may start without seeds.

    Args:
        env: The environment with its wrappers.
    """
    played = env.unwrapped
    return isinstance(played, ArrayMazeEnv) and not isinstance(played.array_env.unwrapped, GymVectorArrayEnv)


def make_and_keep(
    env: Callable[[], Any],
    wrappers: Sequence[Callable[[Any], Any]],
    masks: Mapping[str, str] | None,
) -> tuple[LogStatsWrapper, Any]:
    """Make an environment with its wrappers as `make_wrapped` does; return it, and the innermost object.

    Args:
        env: Makes the environment.
        wrappers: Wrap it, the first one innermost.
        masks: Action head -> observation.
    """
    made = env()
    return make_wrapped(lambda: made, wrappers, masks), made
