"""The environments of a data module: their description, and how to make them one by one or as vectors."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, cast

import cloudpickle  # type: ignore[import-untyped]
import gymnasium

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import definer_of
from maze_pl.core.spec import Spec
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.arrays import ArrayEnv, ArrayVectorEnv
from maze_pl.envs.arrays.gym_vector_array_env import require_seeds
from maze_pl.envs.arrays.native_form import make_native_array_env, single_form
from maze_pl.envs.building import load_shared_states, make_wrapped, wrapper_stack
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import TensorEnv
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.vector.made_environments import MadeEnvironments
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import (
    ObservationNormalizationWrapper,
    configured_statistics_of,
)
from maze_pl.system.time_limit import time_limit_to_make

Env = gymnasium.Env[Any, Any] | ArrayEnv
MakeEnv = Callable[[], LogStatsWrapper]
AnyVector = SequentialVectorEnv | SubprocVectorEnv

SINGLE: Final = "use the form of the environment for single episodes"
_BY_VALUE: Final = ("_env", "_env_wrappers", "_description")


def require_callables(env: Any, wrappers: Any, owner: str = "") -> None:
    """Refuse an environment or wrappers that cannot be called.

    Args:
        env: Builds one environment; None if there is none.
        wrappers: Callables that wrap the environment; None if there are none.
        owner: Owner of the options, such as " of an evaluator".

    Raises:
        TypeError: The environment or a wrapper is not callable, or the wrappers are not in a list.
    """
    if not isinstance(wrappers, Iterable | None):
        raise TypeError(f"wrappers={wrappers!r}{owner} must be a list; write wrappers=[...], also for one wrapper")
    if not (env is None or callable(env)) or not all(map(callable, wrappers or [])):
        came = f"env={env!r} and wrappers={wrappers!r}{owner} must be callables that make and wrap an environment"
        raise TypeError(f"{came}; write env=lambda: GymMazeEnv('CartPole-v1'), for example")


class Description(NamedTuple):
    """Facts about an environment, read from a temporary one.

    Attributes:
        spec: Spaces of its agents.
        wrappers: Classes of its wrappers by name, from the outermost inwards; see `wrapper_stack`.
        kpi_names: Names of the KPIs of an episode; None if they are not declared.
        is_array: Whether it keeps its episodes in arrays, unlike an `ArrayMazeEnv`, which is a single episode.
        configured_statistics: Wrapper -> observation -> statistics that the options of the wrapper state.
        log_folders: Folders of the event logs that its wrappers write; see `EventLogWriter.write_pending`.
        with_statistics: Names of the wrappers that have statistics, or estimate some.
    """

    spec: Spec
    wrappers: dict[str, type[Wrapper]]
    kpi_names: tuple[str, ...] | None
    is_array: bool
    configured_statistics: dict[str, dict[str, Any]]
    log_folders: tuple[str, ...] = ()
    with_statistics: tuple[str, ...] = ()


class EnvironmentMaker:
    """Makes the environments of a data module, for training and for evaluation.

    It can be sent to spawned processes, also if environments are made by lambdas or local classes.

    Args:
        env: Builds one environment; None if there is none.
        wrappers: Callables that wrap the environment, the first one innermost.
        action_masks: Action head -> observation that masks it; see `make_wrapped`.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        check: Validation of environment returns in each step, `fast` or `full`.
        step_timeout: Seconds after which a step is given up; None means never.
        owner: Class name of the data module.

    Attributes:
        action_masks: As given.
        vectorization: `sequential` or `subprocess`: where single environments of a vector are stepped.

    Raises:
        TypeError: The environment or a wrapper is not callable, or options are of another type.
    """

    def __init__(
        self,
        env: Callable[[], Env] | None,
        wrappers: Sequence[Callable[[Any], Env]] | None,
        action_masks: Mapping[str, str] | None,
        max_agents: Mapping[StepKey, int] | None,
        check: str,
        step_timeout: float | None,
        owner: str,
    ) -> None:
        require_callables(env, wrappers)
        if not isinstance(action_masks, Mapping | None):
            example = "action_masks={'action': 'action_mask'}, for example"
            raise TypeError(f"action_masks={action_masks!r} must be a dict, head -> observation; write {example}")
        self.vectorization = "sequential"
        self._env = env
        self._made = MadeEnvironments()
        self._env_wrappers = list(wrappers or [])
        self.action_masks = action_masks
        self._max_agents = max_agents
        self._check = check
        self._step_timeout = step_timeout
        self._owner = owner
        self._description: Description | None = None  # once it is known

    # --------------------------------------------------------------------------------------------- description

    @property
    def has_env(self) -> bool:
        """True unless there is no environment."""
        return self._env is not None

    def use_native_form(self) -> None:
        """Make the vector form that the environment was registered with, if there is an environment."""
        if self._env is not None:
            self._env = partial(make_native_array_env, self._env)

    def with_others(
        self, env: Callable[[], Env] | None, wrappers: Sequence[Callable[[Any], Env]] | None
    ) -> "EnvironmentMaker":
        """Return a maker of other environments with the same options.

        Args:
            env: Builds one environment; None means the same as here.
            wrappers: Callables that wrap it, the first one innermost; None means the same as here.
        """
        other = EnvironmentMaker(
            self._env if env is None else env,
            self._env_wrappers if wrappers is None else wrappers,
            self.action_masks,
            self._max_agents,
            check=self._check,
            step_timeout=self._step_timeout,
            owner=self._owner,
        )
        other.vectorization = self.vectorization
        if env is None:
            other._made = self._made
        elif single_form(self._env) is not self._env:
            other.use_native_form()
        return other

    def describe_as(self, spec: Spec) -> None:
        """Take spaces that are known otherwise, where there is no environment.

        Args:
            spec: Spaces of the agents.
        """
        self._description = Description(spec, wrappers={}, kpi_names=None, is_array=False, configured_statistics={})

    @property
    def is_described(self) -> bool:
        """True once `description` is known."""
        return self._description is not None

    @property
    def description(self) -> Description:
        """Facts about the environment; the first time, a temporary one is made."""
        if self._description is None:
            self._description = self._describe()
        return self._description

    def _describe(self) -> Description:
        """Read facts from a temporary environment."""
        make_env = self._required_env()
        made: list[Env] = []  # before it is adapted and wrapped

        def noted() -> Env:
            made.append(make_env())
            return made[0]

        with time_limit_to_make(self._step_timeout), chdir(os.getcwd()):  # which environments may change
            env = make_wrapped(noted, self._env_wrappers, self.action_masks)
        with closing(env):
            stack = wrapper_stack(env)
            wrappers = {name: type(wrapper) for name, wrapper in stack.items()}
            written = [wrapper.write_pending() for wrapper in stack.values()]
            log_folders = tuple(folder for folder in written if folder is not None)
            calculator = env.get_kpi_calculator()
            declared = () if calculator is None else calculator.kpi_names
            kpi_names = None if declared is None else tuple(declared)
            spec = Spec.of(env, self._max_agents)
            is_array = isinstance(made[0], ArrayEnv)
            with_statistics = tuple(name for name, wrapper in stack.items() if _has_statistics(wrapper))
            configured = configured_statistics_of(stack)
            return Description(spec, wrappers, kpi_names, is_array, configured, log_folders, with_statistics)

    @property
    def rollout_options(self) -> dict[str, Any]:
        """Environment for single episodes, wrappers, action masks and numbers of agents, as arguments of `rollout`."""
        single, masks = (None, None) if self._env is None else (single_form(self._env), self.action_masks)
        wrappers = self._env_wrappers
        return {"env": single, "wrappers": wrappers, "action_masks": masks, "max_agents": self._max_agents}

    # -------------------------------------------------------------------------------------------- environments

    def factory(self, *inner: Callable[[Any], Env]) -> MakeEnv:
        """Return a factory of wrapped environments.

        Args:
            inner: Additional wrappers, inside of the others.

        Raises:
            ValueError: There is no environment.
        """
        return partial(make_wrapped, self._required_env(), [*inner, *self._env_wrappers], self.action_masks)

    def array_factory(self, *inner: Callable[[Any], Env]) -> Callable[[], ArrayEnv]:
        """Return a factory of array environments, with the array forms of the wrappers.

        Args:
            inner: Additional wrappers, inside of the others.
        """
        env: Any = self._required_env()
        return partial(make_wrapped_arrays, env, [*inner, *self._env_wrappers], self.action_masks)

    def tensor_factory(self) -> Callable[[], TensorEnv | None]:
        """Return a factory of environments in tensors with their wrappers; see `make_wrapped_tensors`."""
        env: Any = self._required_env()
        return partial(make_wrapped_tensors, env, self._env_wrappers, self.action_masks)

    def _required_env(self) -> Callable[[], Env]:
        """Return a function that makes the environment, and refuses one that was made before.

        Raises:
            ValueError: There is none.
        """
        if self._env is None:
            raise ValueError(f"this {self._owner} has no environment: give one as env")
        return partial(self._made.new, self._env)

    def require_loadable(self, wrapper_statistics: Mapping[str, Any]) -> None:
        """Make one environment with these statistics, and close it.

        Args:
            wrapper_statistics: State of each wrapper that has statistics, by name.

        Raises:
            ValueError: They are for other wrappers, or some are missing.
        """
        with self._temporary(self.factory()) as env:
            load_shared_states(wrapper_stack(env), wrapper_statistics, freeze=True)

    def require_makeable(self, *inner: Callable[[Any], Env]) -> None:
        """Make one environment, and close it.

        Args:
            inner: Additional wrappers, inside of the others.
        """
        with self._temporary(self.factory(*inner)):
            pass

    @contextmanager
    def _temporary(self, make: MakeEnv) -> Iterator[LogStatsWrapper]:
        """Make an environment within the time limit, close it, and keep the current folder, which it may change."""
        with time_limit_to_make(self._step_timeout), chdir(os.getcwd()):
            env = make()
            with closing(env):
                yield env

    # ------------------------------------------------------------------------------------------------- vectors

    def vector(self, n_envs: int, **options: Any) -> Callable[[], VectorEnv]:
        """Return a factory of a vector of environments.

        Args:
            n_envs: Number of environments.
            options: Options of the class of vectors.
        """
        if self.description.is_array:
            return self.array_vector(n_envs, **options)
        return self.vector_of([self.factory()] * n_envs, **options)

    def array_vector(
        self, n_envs: int, *inner: Callable[[Any], Env], same_starts: str | None = None, **options: Any
    ) -> Callable[[], ArrayVectorEnv]:
        """Return a factory of a vector of environments in arrays.

        Args:
            n_envs: Number of environments.
            inner: Additional wrappers, inside of the others.
            same_starts: What needs episodes that begin equally, if anything does.
            options: Options of `ArrayVectorEnv`.

        Raises:
            ValueError: A wrapper has no array form, an option has no meaning in arrays, or the environment cannot
                begin episodes equally.
        """
        if self.vectorization == "subprocess":
            raise ValueError("vectorization=subprocess has no use for an array environment: leave it out")
        if self._step_timeout is not None:
            raise ValueError(f"step_timeout cannot interrupt an array environment: leave it out, or {SINGLE}")
        make = self.array_factory(*inner)
        n_same_starts = options.get("n_same_starts", 1)
        with closing(make()) as sample:  # fails now if a wrapper has no array form
            if n_same_starts > 1:
                require_seeds(sample, f"n_same_starts={n_same_starts}", all_episodes=True)
            elif same_starts is not None:
                require_seeds(sample, same_starts)
        return partial(ArrayVectorEnv, make, n_envs, spec=self.description.spec, **{"check": self._check, **options})

    def vector_of(self, factories: Sequence[MakeEnv], **options: Any) -> Callable[[], AnyVector]:
        """Return a factory of a vector of single environments; it uses subprocesses if there is a step timeout.

        Args:
            factories: Factory of each environment.
            options: Options of the class of vectors.
        """
        options = {"spec": self.description.spec, "check": self._check, **options}
        if self.vectorization == "subprocess":
            return partial(SubprocVectorEnv, factories, step_timeout=self._step_timeout, **options)
        if self._step_timeout is not None:
            return partial(SubprocVectorEnv, factories, step_timeout=self._step_timeout, n_workers=1, **options)
        return partial(SequentialVectorEnv, factories, **options)

    # ----------------------------------------------------------------------------------------------- processes

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for spawned processes."""
        return {**self.__dict__, **{name: cloudpickle.dumps(vars(self)[name]) for name in _BY_VALUE}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: cloudpickle.loads(state[name]) for name in _BY_VALUE})


def _has_statistics(wrapper: Wrapper) -> bool:
    """True if a wrapper has statistics to share, or must estimate some before the first episode."""
    kind = type(wrapper)
    if issubclass(kind, ObservationNormalizationWrapper):
        is_complete = not cast(ObservationNormalizationWrapper, wrapper).missing_statistics
        return not is_complete or bool(wrapper.shared_state())
    is_shared = definer_of(kind, "shared_state") is not Wrapper
    definers = [definer_of(kind, name) for name in ("estimate", "estimate_within")]
    if is_shared and any(definer is not Wrapper for definer in definers):
        return True  # there may be nothing to share yet
    return bool(wrapper.shared_state())
