"""Gymnasium environments as simulations, with conversions that only name the parts of spaces."""

import copy
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from gymnasium.error import DependencyNotInstalled, UnregisteredEnv
from gymnasium.utils import EzPickle

from maze_pl.core.spaces import LEAF_SPACES, is_text
from maze_pl.envs.contract import (
    check_observation,
    check_reset,
    check_spaces,
    explain_step,
    name_of,
)
from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface, take_over
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, Array, Observation, ResetResult

SEPARATOR = "/"
_COMPOSED = (spaces.Dict, spaces.Tuple)
_HEURISTICS = {"CartPole": "DummyCartPolePolicy", "LunarLander": "LunarLanderHeuristicPolicy"}


class GymCoreEnv(CoreEnv):
    """A gymnasium environment as a simulation: states are its observations, actions its actions.

    Args:
        env: The environment, possibly with gymnasium's wrappers.

    Attributes:
        reset_options: Options for the gymnasium environment at the next `reset`.
        reset_info: Info that the gymnasium environment returned at the last `reset`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__()
        self.env = env
        self.reset_options: dict[str, Any] | None = None
        self.reset_info: dict[str, Any] = {}
        self._maze_state: Any = None
        self._seed: int | None = None
        self._is_known = False  # True once a first observation was checked

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the gymnasium environment.

        Raises:
            EnvContractError: The environment did not return five values.
        """
        result: Any = ...
        try:
            result = self.env.step(maze_action)
            self._maze_state = result[0]
        except Exception as error:
            explain_step(error, result, self.env)
            raise
        return result  # type: ignore[no-any-return]

    def reset(self) -> Any:
        """Reset the gymnasium environment, with the seed set since the last reset, if any.

        Raises:
            EnvContractError: The environment did not return an observation of its space and a dict.
        """
        seed, self._seed = self._seed, None
        if seed is not None:
            self.env.action_space.seed(seed)  # some environments sample actions themselves
        result = self.env.reset(seed=seed, options=self.reset_options)
        check_reset(result, self.env)
        self._maze_state, self.reset_info = result
        if not self._is_known:
            name = f"the observation that reset of {name_of(self.env)} returned"
            check_observation(self._maze_state, self.env.observation_space, name)
            self._is_known = True
        return self._maze_state

    def seed(self, seed: int) -> None:
        """Set the seed of the next `reset`."""
        self._seed = seed

    def reseed(self, seed: int) -> None:
        """Give the running episode of the gymnasium environment a new generator of random numbers."""
        self.env.unwrapped.np_random = np.random.default_rng(seed)

    def close(self) -> None:
        """Close the gymnasium environment."""
        self.env.close()

    def clone_from(self, env: CoreEnv) -> None:
        """Copy the state of another gymnasium environment.

        Raises:
            TypeError: The environment cannot be copied, because it holds something other than
                Python objects, such as a window or Box2D's world.
        """
        inner = vars(env)["env"]
        if isinstance(inner.unwrapped, EzPickle):
            reason = "its copies start from the beginning (gymnasium.utils.EzPickle)"
            raise TypeError(f"{name_of(inner)} cannot be copied: {reason}")
        take_over(self.env, inner, (self, env))  # in place, since other objects may refer to it
        take_over(self, env, (self.env, inner))

    def get_maze_state(self) -> Any:
        """Return the last observation, as the gymnasium environment returned it."""
        return self._maze_state


class _NamedParts:
    """Leaves of a gymnasium space by name.

    The names are the keys of a Dict and the places in a Tuple, joined by slashes if nested. The
    first part of the name of a leaf in an outermost Tuple is `<name>_<place>`; a space that is
    neither Dict nor Tuple is a single leaf with the given name.

    Args:
        space: The space.
        name: Name of the only leaf of a space that is not composed of others.
        omits_text: Whether leaves of text are left out, with a warning.

    Raises:
        TypeError: A leaf is not a Box, Discrete, MultiDiscrete or MultiBinary, or all leaves are text.
        ValueError: Two leaves have the same name.
    """

    def __init__(self, space: spaces.Space[Any], name: str, omits_text: bool = False) -> None:
        self._original = space
        self._is_composed = isinstance(space, _COMPOSED)
        self._name = name
        leaves = _leaves(space, ())
        omitted = [path for path, leaf in leaves.items() if omits_text and is_text(leaf)]
        if 0 < len(omitted) < len(leaves):
            names = [self._name_of(path) for path in omitted]
            message = f"the {name} space has text at {names}, which is left out: networks take numbers only"
            warnings.warn(message, UserWarning, stacklevel=2)
            leaves = {path: leaf for path, leaf in leaves.items() if path not in omitted}
        for path, leaf in leaves.items():
            if not isinstance(leaf, LEAF_SPACES):
                where = f"has at {self._name_of(path)!r}" if path else "is"
                remedy = "turn it into Box, Discrete, MultiDiscrete, MultiBinary or a Dict or Tuple of these with a"
                remedy += " gymnasium wrapper, such as gymnasium.wrappers.FlattenObservation or TransformAction"
                raise TypeError(f"the {name} space {where} {leaf}, which is not supported; {remedy}")
        self._paths = {self._name_of(path): path for path in leaves}
        if len(self._paths) != len(leaves):
            names = sorted(self._name_of(path) for path in leaves)
            raise ValueError(f"the {name} space has parts with the same name: {names}")
        self._space = spaces.Dict(dict(zip(self._paths, copy.deepcopy(list(leaves.values())), strict=True)))

    def space(self) -> spaces.Dict:
        """Return the flat Dict of the leaves."""
        return self._space

    def divided(self, whole: Any) -> dict[str, Any]:
        """Return the parts of a value of the environment's space, by name."""
        return {name: reduce(getitem, path, whole) for name, path in self._paths.items()}

    def joined(self, parts: Mapping[str, Any]) -> Any:
        """Join parts to a value of the environment's space; text that was left out is empty."""
        return self._tree(self._original, (), parts) if self._is_composed else parts[self._name]

    def _name_of(self, path: tuple[Any, ...]) -> str:
        """Return the name of the leaf at a path of keys and places."""
        joined = SEPARATOR.join(map(str, path))
        if isinstance(self._original, spaces.Tuple):
            return f"{self._name}_{joined}"
        return joined or self._name

    def _tree(self, space: spaces.Space[Any], path: tuple[Any, ...], parts: Mapping[str, Any]) -> Any:
        """Build a value of the space at a path from its leaves."""
        if isinstance(space, spaces.Dict):
            return {key: self._tree(child, (*path, key), parts) for key, child in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._tree(child, (*path, place), parts) for place, child in enumerate(space.spaces))
        name = self._name_of(path)
        return parts[name] if name in self._paths else ""


class GymObservationConversion(_NamedParts, ObservationConversionInterface):
    """Names observations: `observation`, or the parts of a Dict or Tuple space.

    The parts of a Dict are named by their keys, joined by slashes if nested; those of a Tuple
    `observation_0`, `observation_1` and so on. Text is left out, with a warning.

    Observations are copied, in the dtype that their space declares: many environments reuse the
    same array.

    Args:
        space: The gymnasium environment's observation space.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "observation", omits_text=True)
        self._dtypes = {name: np.dtype(part.dtype or np.float32) for name, part in self._space.items()}
        self._dtype = None if self._is_composed else self._dtypes["observation"]

    def maze_to_space(self, maze_state: Any) -> Observation:
        """Return the observation, or its parts, by name."""
        try:
            if self._dtype is not None:
                array = np.array(maze_state)
                return {"observation": array if array.dtype is self._dtype else _real(array, self._dtype)}
            parts = self.divided(maze_state).items()
            return {name: _real(np.array(part), self._dtypes[name]) for name, part in parts}
        except (IndexError, KeyError, TypeError, ValueError):
            check_observation(maze_state, self._original, "the observation that the environment returned")
            raise

    def space_to_maze(self, observation: Observation) -> Any:
        """Return the observation in the gymnasium environment's format."""
        return self.joined(observation)


def _real(array: Array, dtype: np.dtype[Any]) -> Array:
    """Convert numbers to another dtype.

    Raises:
        TypeError: The values are not real numbers, although NumPy could convert them.
    """
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{array.dtype} is not a type of real numbers")
    return array.astype(dtype, copy=False)


class GymActionConversion(_NamedParts, ActionConversionInterface):
    """Names actions: `action`, or the parts of a Dict or Tuple space.

    The parts of a Dict are named by their keys, joined by slashes if nested; those of a Tuple
    `action_0`, `action_1` and so on.

    Values are passed on unchanged: a `Discrete` that starts at 3 has actions from 3 on. `Discrete`
    actions reach the environment as Python's `int`, which also works as a dictionary key.

    Args:
        space: The gymnasium environment's action space.

    Raises:
        TypeError: The space or a part of it is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "action")
        self._choices = {name for name, part in self._space.items() if isinstance(part, spaces.Discrete)}

    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """Return the action in the gymnasium environment's format."""
        if not self._is_composed:
            return int(action["action"]) if self._choices else action["action"]
        return self.joined({name: int(one) if name in self._choices else one for name, one in action.items()})

    def maze_to_space(self, maze_action: Any) -> Action:
        """Return the gymnasium environment's action, or its parts, by name."""
        return self.divided(maze_action)


class GymMazeEnv(MazeEnv):
    """A gymnasium environment as a `MazeEnv`, from its name or an instance.

    Args:
        env: The environment, or its name, such as `CartPole-v1`. A version that was removed is
            replaced by the newest one, with a warning.
        kwargs: Passed to `gymnasium.make`, if a name was given.

    Raises:
        TypeError: An instance was given together with keyword arguments, or a space is not supported.
        ValueError: Gymnasium does not know an environment of this name.
        ImportError: A package that the environment needs is not installed.
        EnvContractError: The environment does not declare its spaces.

    Example:
        >>> env = GymMazeEnv("CartPole-v1")
        >>> observation, info = env.reset(seed=1)
        >>> observation["observation"].shape
        (4,)
    """

    core_env: GymCoreEnv

    def __init__(self, env: str | gymnasium.Env[Any, Any], **kwargs: Any) -> None:
        if isinstance(env, str):
            env = _make(_current_id(env), {"disable_env_checker": True, **kwargs})
        elif kwargs:
            raise TypeError(f"{sorted(kwargs)} are arguments for making an environment by name, but {env} was given")
        check_spaces(env)
        acts, sees = (
            GymActionConversion(env.action_space),
            GymObservationConversion(env.observation_space),
        )
        super().__init__(GymCoreEnv(env), {0: acts}, {0: sees})
        self._unchecked = []  # GymCoreEnv checks less strictly, as many gymnasium environments need
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self.spec = env.spec
        heuristic = _HEURISTICS.get(env.spec.name.removesuffix("Continuous")) if env.spec is not None else None
        self.heuristic_policy = heuristic and f"maze_pl.agents.{heuristic}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the options go to the gymnasium environment, whose info is returned."""
        self.core_env.reset_options = options
        observation, _ = super().reset(seed=seed)
        return observation, self.core_env.reset_info

    def render(self) -> Any:
        """Render the gymnasium environment in the `render_mode` that it was made with."""
        return self.core_env.env.render()


def make_gym_maze_env(name: str, **kwargs: Any) -> GymMazeEnv:
    """Make a gymnasium environment by name, for configuration files.

    Args:
        name: Its name, such as `CartPole-v1`.
        kwargs: Passed to `gymnasium.make`.
    """
    return GymMazeEnv(name, **kwargs)


def _leaves(space: spaces.Space[Any], path: tuple[Any, ...]) -> dict[tuple[Any, ...], spaces.Space[Any]]:
    """Return the leaves of a space by their path of keys, which need not be strings, and places."""
    children: list[tuple[Any, spaces.Space[Any]]]
    if isinstance(space, spaces.Dict):
        children = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        children = list(enumerate(space.spaces))
    else:
        return {path: space}
    leaves: dict[tuple[Any, ...], spaces.Space[Any]] = {}
    for key, child in children:
        leaves |= _leaves(child, (*path, key))
    return leaves


def _make(name: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make a gymnasium environment without `OrderEnforcing`, as `MazeEnv` does its job."""
    spec = gymnasium.registry.get(name)
    try:
        return gymnasium.make(name if spec is None else replace(spec, order_enforce=False), **kwargs)
    except UnregisteredEnv as error:
        raise ValueError(f"gymnasium knows no environment {name!r} (other packages: module:Name): {error}") from error
    except (DependencyNotInstalled, ImportError) as error:
        if spec is None or not str(spec.entry_point).startswith("gymnasium."):
            raise
        hint = re.sub(r"gymnasium\[(box2d|mujoco)\]", r"maze-pl[\1]", str(error))
        raise ImportError(f"{name} needs a package that is not installed: {hint}") from error


def _current_id(name: str) -> str:
    """Return the name if it is registered, otherwise the environment's newest version, if any."""
    if name in gymnasium.registry or ":" in name:
        return name
    namespace, base, version = parse_env_id(name)
    newest = find_highest_version(namespace, base)
    if version is None or newest is None or newest < version:
        return name
    current = get_env_id(namespace, base, newest)
    warnings.warn(f"gymnasium no longer has {name}; using {current}", UserWarning, stacklevel=4)
    return current
