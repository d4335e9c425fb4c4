"""Contract of environments that keep the state of many episodes in arrays."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.core.episode_batch import StatColumn
from maze_pl.envs.arrays.array_events import ArrayEvents
from maze_pl.envs.arrays.array_places import (
    alike,
    names_in_tuples,
    nested_arrays,
    present_arrays,
    put_options,
    replace_array,
    restore_array,
    saved_options,
)
from maze_pl.envs.arrays.array_step import AnyArray, ArrayStep, EnvIndex
from maze_pl.envs.arrays.nested_arrays import array_types, attributes_of, nested_values, random_streams_of
from maze_pl.envs.arrays.saved_containers import (
    GIVEN,
    SAVED_CONTAINERS,
    described,
    given_containers,
    given_names,
    options_in_place,
    own_containers,
    restore_containers,
    why_not_saved,
)

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
        array_events: The events that were fired.
        heuristic_policy: Class path of a policy that performs reasonably without training; None if
            there is none.
        starts_late: Whether `reset` must wait for the next step of the other environments, if these are running.
        saves_state: Whether `state_dict` holds everything; if not, episodes start again on resuming.
        given_containers: The containers of values that `note_given_arrays` has noted.

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
        self.array_events = ArrayEvents()
        self._given_arrays: dict[str, AnyArray] = {}
        self.given_containers: dict[str, Any] = {}

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
        self.array_events.n_envs = n_envs

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
        for name, array in self._state_arrays().items():
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
        return self.array_events.create_event_topic(topic)

    def numbers_of(self, which: EnvIndex) -> AnyArray:
        """Return the numbers [n] of the environments that act, from the index that `step` gets."""
        return np.arange(self.n_envs) if isinstance(which, slice) else which

    # --------------------------------------------------------------------------------------------- state

    def note_given_arrays(self) -> None:
        """Leave present arrays and containers out of the state, unless the environment replaces them.

        It is called before `allocate`: these arrays were made from the arguments of the
        constructor, and a resumed run has its own arguments. An array that `allocate`, `reset` or
        `step` puts in place of one of them is state. The containers include constants of the class
        and of its module.
        """
        self._given_arrays = present_arrays(self)
        self.given_containers = given_containers(self, ArrayEnv)

    @property
    def given_arrays(self) -> Mapping[str, AnyArray]:
        """The arrays that `note_given_arrays` has noted, by name."""
        return self._given_arrays

    def options(self) -> list[str]:
        """Return the names of arrays that `note_given_arrays` has noted and nothing has replaced."""
        present = present_arrays(self)
        return [name for name, array in self._given_arrays.items() if present.get(name) is array]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all episodes: every array, tensor and `RandomStreams` of this object, by name.

        These are attributes, or lie in lists, tuples, dicts and deques that are attributes. The
        names of the latter have dots, such as `levels.0` for the first entry of a list `levels`. In
        the second place of an array is the name of the first one. Arrays that `note_given_arrays`
        has noted are left out until others replace them; in other places, such as a tuple that
        `allocate` makes, are their names, as `["given", name]`. Containers of numbers and texts are
        part of it, too, under one name; see `described`. Environments whose state has other parts
        extend it. Arrays are not copied.
        """
        state: dict[str, Any] = {}
        first_names: dict[int, str] = {}
        options = given_names(self._given_arrays)
        for name, array in self._state_arrays().items():
            first = first_names.setdefault(id(array), name)
            state[name] = array if first == name else first
            if id(array) in options and name in present_arrays(self):
                state[name] = [GIVEN, options[id(array)]]
        for name, streams in random_streams_of(self).items():
            state[name] = streams.state_dict()
        options_held = options_in_place(self, self.given_containers)
        containers = described(self.saved_containers(), options_held, self.given_containers)
        if containers:
            state[SAVED_CONTAINERS] = containers
        return state

    def saved_containers(self) -> dict[str, Any]:
        """Return the lists, tuples, dicts, deques and sets of the state, by name of the attribute."""
        own = self.own_containers()
        unsaved = why_not_saved(own, self.given_containers)
        return {name: container for name, container in own.items() if name not in unsaved}

    def own_containers(self) -> dict[str, Any]:
        """Return attributes that are containers of numbers and texts, put in place in `allocate` or later."""
        return own_containers(self, self.given_containers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict` in an environment with as many episodes.

        An array whose saved form has another dtype is replaced, as the environment had replaced it.
        An array, or a container of numbers and texts, that `reset` or `step` had made as a new
        attribute becomes one again; a new container with arrays does not. A container that existed
        before `allocate` is put back where nothing had replaced it when the state was saved. Other
        containers of which a state holds nothing stay as they are, with a warning. An array in
        several places becomes one array again, and separate ones become separate.

        Raises:
            ValueError: The state has other arrays, or others that cannot be replaced have another dtype.
        """
        saved = dict(state)
        containers = saved.pop(SAVED_CONTAINERS, {})
        restore_containers(self, containers, self.saved_containers(), self.given_containers)
        first_places = {name: part for name, part in saved.items() if isinstance(part, str) and part in saved}
        saved |= {name: saved[first] for name, first in first_places.items()}
        options = saved_options(self, saved, self._given_arrays)
        saved |= options
        expected = self._expected_names(saved)
        made_later = {name for name in saved.keys() - expected if self._is_new(name, saved[name])}
        self._check_names(saved, expected, made_later)
        self._put_options_back(saved, expected)
        for name in made_later:
            if "." not in name:
                setattr(self, name, copy.deepcopy(saved[name]))
        put_options(self, options)
        parts = {name: saved[name] for name in saved.keys() - made_later - options.keys()}
        self._restore_arrays(parts, first_places)
        for name, streams in random_streams_of(self).items():
            if name in saved:
                streams.load_state_dict(saved[name])

    def _expected_names(self, saved: Mapping[str, Any]) -> set[str]:
        """Return the names that the state has now; states of earlier versions have none of containers."""
        own = set(self.state_dict()) - {SAVED_CONTAINERS}
        nested = own & {part.name for part in nested_values(attributes_of(self))}
        return own if nested & saved.keys() else own - nested

    def _is_new(self, name: str, saved: Any) -> bool:
        """True for a saved array of an attribute that this object does not have."""
        return isinstance(saved, array_types()) and name.partition(".")[0] not in vars(self)

    def _check_names(self, saved: Mapping[str, Any], expected: set[str], made_later: set[str]) -> None:
        """Check that a state has the expected parts, apart from options and attributes made later.

        Raises:
            ValueError: It lacks one, or has another one.
        """
        if (expected ^ saved.keys()) - self._given_arrays.keys() - made_later:
            came = f"{sorted(saved)}, but {type(self).__name__} has {sorted(expected)}"
            raise ValueError(f"the saved state consists of {came}; resume with the code that saved it")

    def _put_options_back(self, saved: Mapping[str, Any], expected: set[str]) -> None:
        """Put options back where the saved state has them, and other arrays where these had replaced options."""
        for name, option in self._given_arrays.items():
            if name in expected and name not in saved:
                replace_array(self, name, option)
            elif name in saved and name not in expected:
                replace_array(self, name, copy.deepcopy(alike(saved[name], option)))

    def _restore_arrays(self, saved: Mapping[str, Any], first_places: Mapping[str, str]) -> None:
        """Restore the arrays of the state, and put an array in its second places again, except in tuples.

        Args:
            saved: Parts of the saved state, by name.
            first_places: Name of a second place -> name of the first one.
        """
        present, fixed = present_arrays(self), names_in_tuples(self)
        joined = {}
        for name, first in first_places.items():
            if name in present and first in present and name not in fixed:
                joined[name] = first
        options = given_names(self._given_arrays)
        owners: dict[int, str] = {}  # id of a present array -> name of the first place that gets it
        for name, array in self._state_arrays().items():
            if name not in saved or name in joined:
                continue
            first = first_places.get(name, name)
            is_of_other_place = id(array) in options or owners.setdefault(id(array), first) != first
            saved_array = alike(saved[name], array)
            if is_of_other_place and name in present:
                replace_array(self, name, copy.deepcopy(saved_array))
            else:
                restore_array(self, name, array, saved_array)
        restored = present_arrays(self)
        for name, first in joined.items():
            replace_array(self, name, restored[first])

    def _arrays(self) -> Iterator[tuple[str, AnyArray]]:
        """Yield the arrays and tensors of the state that this object has as attributes, by name."""
        kinds = array_types()
        for name, value in vars(self).items():
            if isinstance(value, kinds) and value is not self._given_arrays.get(name):
                yield name, value

    def _state_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of the state: those of `_arrays`, and further ones in containers.

        Those in tuples come first: their places are the first ones, as they cannot get other arrays.
        """
        arrays = dict(self._arrays())
        named_otherwise = {id(array) for name, array in arrays.items() if name not in vars(self)}
        in_tuples: dict[str, AnyArray] = {}
        for nested in nested_arrays(self):
            is_option = nested.value is self._given_arrays.get(nested.name)
            if not is_option and id(nested.value) not in named_otherwise:
                chosen = in_tuples if isinstance(nested.container, tuple) else arrays
                chosen[nested.name] = nested.value
        return in_tuples | arrays
