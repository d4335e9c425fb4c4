"""Gymnasium environments as simulations, with conversions that only give their spaces names."""

import copy
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

from maze_pl.core.spaces import LEAF_SPACES
from maze_pl.envs.contract import check_observation, check_reset, check_spaces, explain_step, name_of
from maze_pl.envs.core_env import ActionConversionInterface, CoreEnv, ObservationConversionInterface, take_over
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import Action, Observation, ResetResult

SEPARATOR = "/"
_HEURISTICS = {"CartPole": "DummyCartPolePolicy", "LunarLander": "LunarLanderHeuristicPolicy"}


class GymCoreEnv(CoreEnv):
    """A gymnasium environment as a simulation: its observations are the states, its actions the actions.

    Args:
        env: The environment, with any of gymnasium's own wrappers.

    Attributes:
        reset_options: What the gymnasium environment is given at the next `reset`.
        reset_info: What it returned beside the observation at the last one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__()
        self.env = env
        self.reset_options: dict[str, Any] | None = None
        self.reset_info: dict[str, Any] = {}
        self._maze_state: Any = None
        self._seed: int | None = None
        self._is_known = False  # whether a first observation has been looked at

    def step(self, maze_action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the gymnasium environment.

        Raises:
            EnvContractError: It returned something else than five values.
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
        """Reset the gymnasium environment, with the seed that was set since the last time, if any.

        Raises:
            EnvContractError: It returned something else than an observation of its space and a dict.
        """
        seed, self._seed = self._seed, None
        if seed is not None:
            self.env.action_space.seed(seed)  # some environments act at random themselves
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

    def close(self) -> None:
        """Close the gymnasium environment."""
        self.env.close()

    def clone_from(self, env: CoreEnv) -> None:
        """Take over a copy of another gymnasium environment.

        Raises:
            TypeError: It cannot be copied: it holds something that is not made of Python objects, such as a window or
                Box2D's world.
        """
        inner = vars(env)["env"]
        if isinstance(inner.unwrapped, EzPickle):
            raise TypeError(f"{name_of(inner)} cannot be copied: its copies start anew (gymnasium.utils.EzPickle)")
        take_over(self.env, inner, (self, env))  # in place, since others may hold on to it
        take_over(self, env, (self.env, inner))

    def get_maze_state(self) -> Any:
        """The last observation, as the gymnasium environment returned it."""
        return self._maze_state


class _NamedParts:
    """The leaves of a gymnasium space by name: one of a given name, or those of a Dict, nested ones joined by a slash.

    Args:
        space: The space.
        name: What its only leaf is called.

    Raises:
        TypeError: A leaf is not a Box, Discrete, MultiDiscrete or MultiBinary.
    """

    def __init__(self, space: spaces.Space[Any], name: str) -> None:
        self._original, self._is_dict = space, isinstance(space, spaces.Dict)
        leaves = _leaves(space, ())
        for path, leaf in leaves.items():
            if not isinstance(leaf, LEAF_SPACES):
                where = f"has at {SEPARATOR.join(path)!r}" if path else "is"
                remedy = "turn it into Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these by a wrapper of"
                remedy += " gymnasium, such as gymnasium.wrappers.FlattenObservation or TransformAction"
                raise TypeError(f"the {name} space {where} {leaf}, which is not supported; {remedy}")
        self._paths = {SEPARATOR.join(path) or name: path for path in leaves}
        if len(self._paths) != len(leaves):
            raise ValueError(f"the {name} space has parts with the same name: {sorted(map(SEPARATOR.join, leaves))}")
        self._space = spaces.Dict(dict(zip(self._paths, copy.deepcopy(list(leaves.values())), strict=True)))

    def space(self) -> spaces.Dict:
        """A Dict of the environment's space, or of its parts."""
        return self._space

    def divided(self, whole: Any) -> dict[str, Any]:
        """The parts of a value of the environment's space, by name."""
        return {name: reduce(getitem, path, whole) for name, path in self._paths.items()}

    def joined(self, parts: Mapping[str, Any]) -> Any:
        """The value of the environment's space that has these parts."""
        return _tree(self._original, (), parts) if self._is_dict else parts[next(iter(self._paths))]


class GymObservationConversion(_NamedParts, ObservationConversionInterface):
    """Gives observations names: `observation`, or the names of a Dict space, nested ones joined by a slash.

    Observations are copied, in the type that their space declares: many environments use the same array again.

    Args:
        space: The gymnasium environment's observation space.

    Raises:
        TypeError: The space, or a part of it, is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "observation")
        self._dtypes = {name: np.dtype(part.dtype or np.float32) for name, part in self._space.items()}
        self._dtype = None if self._is_dict else self._dtypes["observation"]

    def maze_to_space(self, maze_state: Any) -> Observation:
        """The observation under its name, or its parts under theirs."""
        try:
            if self._dtype is not None:
                return {"observation": np.array(maze_state, self._dtype)}
            return {name: np.array(part, self._dtypes[name]) for name, part in self.divided(maze_state).items()}
        except (IndexError, KeyError, TypeError, ValueError):
            check_observation(maze_state, self._original, "the observation that the environment returned")
            raise

    def space_to_maze(self, observation: Observation) -> Any:
        """What the gymnasium environment returned."""
        return self.joined(observation)


class GymActionConversion(_NamedParts, ActionConversionInterface):
    """Gives actions names: `action`, or the names of a Dict space, nested ones joined by a slash.

    Values are passed on unchanged: a `Discrete` that starts at 3 has actions from 3 on. Integers reach the environment
    as Python's own, which also work as keys of dictionaries.

    Args:
        space: The gymnasium environment's action space.

    Raises:
        TypeError: The space, or a part of it, is of an unsupported type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__(space, "action")
        self._choices = {name for name, part in self._space.items() if isinstance(part, spaces.Discrete)}

    def space_to_maze(self, action: Action, maze_state: Any) -> Any:
        """The action as the gymnasium environment expects it."""
        if not self._is_dict:
            return int(action["action"]) if self._choices else action["action"]
        return self.joined({name: int(one) if name in self._choices else one for name, one in action.items()})

    def maze_to_space(self, maze_action: Any) -> Action:
        """The gymnasium environment's action under its name, or its parts under theirs."""
        return self.divided(maze_action)


class GymMazeEnv(MazeEnv):
    """A gymnasium environment, by name or as an instance, as a `MazeEnv`.

    Args:
        env: Its name, such as `CartPole-v1`, or the environment. A version that is gone is replaced by the newest one,
            with a warning.
        kwargs: Passed to `gymnasium.make`, if a name was given.

    Raises:
        TypeError: An instance was given together with keyword arguments, or a space is not supported.
        ValueError: Gymnasium knows no environment of this name.
        ImportError: A package that the environment needs is not installed.
        EnvContractError: The environment declares no spaces.

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
        acts, sees = GymActionConversion(env.action_space), GymObservationConversion(env.observation_space)
        super().__init__(GymCoreEnv(env), {0: acts}, {0: sees})
        self._unchecked = []  # GymCoreEnv has looked, and lets pass what many of gymnasium's environments do
        self.metadata, self.render_mode, self.spec = env.metadata, env.render_mode, env.spec
        heuristic = _HEURISTICS.get(env.spec.name.removesuffix("Continuous")) if env.spec is not None else None
        self.heuristic_policy = heuristic and f"maze_pl.agents.{heuristic}"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the gymnasium environment gets the options, and its information is returned."""
        self.core_env.reset_options = options
        observation, _ = super().reset(seed=seed)
        return observation, self.core_env.reset_info

    def render(self) -> Any:
        """What the gymnasium environment draws in the `render_mode` that it was made with."""
        return self.core_env.env.render()


def make_gym_maze_env(name: str, **kwargs: Any) -> GymMazeEnv:
    """Make a gymnasium environment by name, for configuration files.

    Args:
        name: Its name, such as `CartPole-v1`.
        kwargs: Passed to `gymnasium.make`.
    """
    return GymMazeEnv(name, **kwargs)


def _leaves(space: spaces.Space[Any], path: tuple[str, ...]) -> dict[tuple[str, ...], spaces.Space[Any]]:
    """What a space consists of, with the keys that lead there."""
    if not isinstance(space, spaces.Dict):
        return {path: space}
    return dict(item for key, child in space.spaces.items() for item in _leaves(child, (*path, str(key))).items())


def _tree(space: spaces.Space[Any], path: tuple[str, ...], parts: Mapping[str, Any]) -> Any:
    """The value of a space, which these keys lead to, made of its leaves."""
    if not isinstance(space, spaces.Dict):
        return parts[SEPARATOR.join(path)]
    return {key: _tree(child, (*path, str(key)), parts) for key, child in space.spaces.items()}


def _make(name: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Have gymnasium make an environment, without its layer that refuses steps before a reset, as `MazeEnv` does."""
    spec = gymnasium.registry.get(name)
    try:
        return gymnasium.make(name if spec is None else replace(spec, order_enforce=False), **kwargs)
    except UnregisteredEnv as error:
        raise ValueError(f"gymnasium knows no environment {name!r} (other packages: module:Name): {error}") from error
    except (DependencyNotInstalled, ImportError) as error:
        if spec is None or not str(spec.entry_point).startswith("gymnasium."):
            raise
        hint = str(error).replace("gymnasium[box2d]", "maze-pl[box2d]")
        raise ImportError(f"{name} needs a package that is not installed: {hint}") from error


def _current_id(name: str) -> str:
    """The name itself if it is registered; otherwise the newest version of that environment, if there is one."""
    if name in gymnasium.registry or ":" in name:
        return name
    namespace, base, version = parse_env_id(name)
    newest = find_highest_version(namespace, base)
    if version is None or newest is None or newest < version:
        return name
    current = get_env_id(namespace, base, newest)
    warnings.warn(f"gymnasium has no {name} any more; using {current}", UserWarning, stacklevel=4)
    return current
