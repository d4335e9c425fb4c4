"""Contract of environments that keep the state of many episodes in arrays."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_events import ArrayEvents
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.random_streams import RandomStreams

Topic = TypeVar("Topic")


class ArrayEnv(ABC):
    """N episodes of one problem, whose state lies in arrays and which step together.

    The arrays are NumPy's, or torch tensors on any device. An array environment has the same
    sub-steps, spaces, agents and masks as the environment of single episodes that it stands for
    (`StructuredEnv`), and in each episode the same numbers. Its environments may be at different
    actors at the same time. The arrays of the state have the environments on their first axis.

    An instance is made with the parameters of the problem only; `allocate` then makes the arrays.
    A subclass implements the two spaces, `allocate`, `reset` and `step`; everything else has a
    default. `reset` and `step` compute all chosen environments at once, without a loop over them.

    The next episode is not started here: whoever steps the environments calls `reset` for those
    that have ended.

    Attributes:
        n_envs: Number of environments N; 0 before `allocate`.
        first_env_index: Number of the first environment across all ranks and workers, for messages.
        events: The events that were fired.
        heuristic_policy: Class path of a policy that performs reasonably without training; None if
            there is none.
        starts_late: Whether `reset` must wait for the next step of the other environments, if these are running.
        saves_state: Whether `state_dict` holds everything; if not, episodes start again on resuming.

    Example:
        >>> from maze_pl.envs import CartPoleArrayEnv
        >>> env = CartPoleArrayEnv()
        >>> env.allocate(3)
        >>> _ = env.reset(np.arange(3), seeds=np.array([5, 6, 7]))
        >>> result = env.step({0: {"action": np.array([0, 1, 1])}}, slice(None))
        >>> result.reward.tolist()
        [1.0, 1.0, 1.0]
    """

    heuristic_policy: str | None = None
    starts_late: bool = False
    saves_state: bool = True

    def __init__(self) -> None:
        self.n_envs = 0
        self.first_env_index = 0
        self.events = ArrayEvents()
        self._given_arrays: dict[str, AnyArray] = {}

    # --------------------------------------------------------------------------------- to implement

    @property
    @abstractmethod
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step, for one environment."""

    @property
    @abstractmethod
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step, for one environment."""

    @abstractmethod
    def allocate(self, n_envs: int) -> None:
        """Make the arrays; called once, before the first `reset`. Overriding methods call it first.

        Args:
            n_envs: Number of environments.
        """
        self.n_envs = n_envs
        self.events.n_envs = n_envs

    @abstractmethod
    def reset(self, which: AnyArray, seeds: AnyArray) -> ArrayStep:
        """Start an episode in some environments.

        Args:
            which: [n] int64, the environments, ascending.
            seeds: [n] int64, seed of each episode, which determines all its randomness; see `RandomStreams`.

        Returns:
            The first actors with their observations. Events fired here count in the first step.
        """

    @abstractmethod
    def step(self, actions: Mapping[StepKey, Mapping[str, AnyArray]], which: EnvIndex) -> ArrayStep:
        """Perform one act in some environments; the others stay as they are.

        Args:
            actions: Step key -> head -> [N, ...], valid for the environments `which` whose actor has
                this key. They are overwritten later: copy what is kept. Bounded actions lie within
                their bounds.
            which: The environments, as an index of arrays [N, ...]: `slice(None)` for all, or [n] int64,
                ascending; see `numbers_of`.

        Returns:
            The results of the act, and the next actors with their observations; after an episode
            has ended, its final observation.
        """

    # ------------------------------------------------------------------------------ further declarations

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step, -1 where it changes during an episode; 1 by default."""
        return dict.fromkeys(self.observation_spaces_dict, 1)

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Step key -> action head -> name of its mask, an observation; no masks by default."""
        return {}

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs of an episode; none by default."""
        return ()

    def kpis(self, which: AnyArray) -> Mapping[str, AnyArray]:
        """Return the KPIs of episodes that have just ended, before the next ones start.

        Args:
            which: [n] int64, their environments.

        Returns:
            KPI -> [n] float64; NaN where an episode has no value.
        """
        return {}

    def end_episodes(self, which: AnyArray) -> Mapping[StatKey, StatColumn]:
        """Return further statistics of episodes that have just ended, before the next ones start; none by default.

        Args:
            which: [n] int64, their environments.

        Returns:
            Values of the statistics, by positions in `which`.
        """
        return {}

    def get_renderer(self) -> Any:
        """Return the renderer of the states that `maze_state` returns, None if there is none."""
        return None

    @property
    def unwrapped(self) -> ArrayEnv:
        """The innermost environment, without wrappers; this one."""
        return self

    def maze_state(self, env: int) -> Any:
        """Return the state of one environment for rules, recording and rendering.

        By default, this is a copy of its entry of each array.

        Args:
            env: Number of the environment.
        """
        state = {}
        for name, array in self._arrays():
            if array.shape[:1] == (self.n_envs,):
                entry = array[env]
                if isinstance(entry, np.ndarray):
                    entry = entry.copy()
                elif hasattr(entry, "detach"):
                    entry = entry.clone()
                state[name] = entry
        return state

    def close(self) -> None:  # noqa: B027
        """Release resources; safe to call twice."""

    # -------------------------------------------------------------------------------------------- events

    def create_event_topic(self, topic: type[Topic]) -> Topic:
        """Return an object that fires the events of a topic; see `ArrayEvents.create_event_topic`.

        Args:
            topic: The topic class.
        """
        return self.events.create_event_topic(topic)

    def numbers_of(self, which: EnvIndex) -> AnyArray:
        """Return the numbers [n] of the environments that act, from the index that `step` gets."""
        return np.arange(self.n_envs) if isinstance(which, slice) else which

    # --------------------------------------------------------------------------------------------- state

    def note_given_arrays(self) -> None:
        """Leave the arrays that exist now out of the state, unless the environment replaces them.

        It is called before `allocate`: these arrays were made from the arguments of the constructor, and a resumed
        run has its own arguments. An array that `allocate`, `reset` or `step` puts in place of one of them is state.
        """
        self._given_arrays = dict(ArrayEnv._arrays(self))

    def options(self) -> list[str]:
        """Return the names of the arrays that `note_given_arrays` has noted and that nothing has replaced since."""
        return [name for name, array in self._given_arrays.items() if vars(self).get(name) is array]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all episodes: every array, tensor and `RandomStreams` of this object, by name.

        Arrays that `note_given_arrays` has noted are left out until others replace them. Environments whose state has
        other parts extend it. Arrays are not copied.
        """
        state: dict[str, Any] = dict(self._arrays())
        for name, streams in vars(self).items():
            if isinstance(streams, RandomStreams):
                state[name] = streams.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict` in an environment with as many episodes.

        An attribute whose saved array has another dtype is replaced, as the environment had replaced it.

        Raises:
            ValueError: The state has other arrays, or others that are not attributes have another dtype.
        """
        own = self.state_dict()
        if (own.keys() ^ state.keys()) - self._given_arrays.keys():
            came = f"{sorted(state)}, but {type(self).__name__} has {sorted(own)}"
            raise ValueError(f"the saved state consists of {came}; resume with the code that saved it")
        for name, array in self._given_arrays.items():
            if name in own and name not in state:
                setattr(self, name, array)  # not replaced when the state was saved
            elif name in state and name not in own:
                setattr(self, name, copy.deepcopy(_alike(state[name], array)))
        for name, array in list(self._arrays()):
            if name in state:
                self._restore(name, array, _alike(state[name], array))
        for name, streams in vars(self).items():
            if isinstance(streams, RandomStreams):
                streams.load_state_dict(state[name])

    def _restore(self, name: str, array: AnyArray, saved: AnyArray) -> None:
        """Copy a saved array of the same kind into one of the state, or replace the attribute if the dtypes differ."""
        came = f"the saved array {name!r} of {type(self).__name__} has"
        if tuple(array.shape) != tuple(saved.shape):
            raise ValueError(f"{came} shape {tuple(saved.shape)}, expected {tuple(array.shape)}")
        if array.dtype == saved.dtype:
            array[...] = saved
        elif vars(self).get(name) is array:
            setattr(self, name, copy.deepcopy(saved))
        else:
            remedy = "give it the same type in `allocate` as in later steps, or resume with the code that saved it"
            raise ValueError(f"{came} type {saved.dtype}, expected {array.dtype}; {remedy}")

    def _arrays(self) -> Iterator[tuple[str, AnyArray]]:
        """Yield the arrays and tensors of the state that this object has as attributes, by name."""
        torch = sys.modules.get("torch")
        kinds: tuple[type, ...] = (np.ndarray,) if torch is None else (np.ndarray, torch.Tensor)
        for name, value in vars(self).items():
            if isinstance(value, kinds) and value is not self._given_arrays.get(name):
                yield name, value


def _alike(saved: AnyArray, array: AnyArray) -> AnyArray:
    """Return a saved array as a tensor on the device of another one, or as an array if that is one; not copied."""
    if isinstance(array, np.ndarray):
        return as_numpy(saved)
    return sys.modules["torch"].as_tensor(saved, device=array.device)
