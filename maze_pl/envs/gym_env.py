"""Gymnasium environments, by name or as instances."""

import re
import warnings
from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from gymnasium.error import DependencyNotInstalled, UnregisteredEnv

from maze_pl.envs.contract import check_spaces
from maze_pl.envs.gym_action_conversion import GymActionConversion
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.envs.gym_observation_conversion import GymObservationConversion
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.structured_env import ResetResult

_REPLACEMENTS = {
    gymnasium.wrappers.NormalizeObservation: "RunningObservationNormalizationWrapper",
    gymnasium.wrappers.NormalizeReward: "ReturnNormalizationRewardWrapper, which also keeps logged returns as they are",
}
"""Wrappers of gymnasium with running statistics, and the wrappers to use instead."""
_HEURISTICS = {"CartPole": "DummyCartPolePolicy", "LunarLander": "LunarLanderHeuristicPolicy"}


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
        if isinstance(env, type):
            remedy = f"pass an environment, as in {type(self).__name__}({env.__name__}())"
            raise TypeError(f"{type(self).__name__} wraps environments, but got the class {env.__name__}: {remedy}")
        check_spaces(env)
        _warn_of_running_statistics(env)
        action_conversion = GymActionConversion(env.action_space)
        observation_conversion = GymObservationConversion(env.observation_space)
        super().__init__(GymCoreEnv(env), {0: action_conversion}, {0: observation_conversion})
        self._unchecked = []  # GymCoreEnv checks less strictly, as many gymnasium environments need
        self.metadata = env.metadata
        self.render_mode = env.render_mode
        self.spec = env.spec
        name = "" if env.spec is None else env.spec.name.removesuffix("Continuous")
        if self.heuristic_policy is None and name in _HEURISTICS:
            self.heuristic_policy = f"maze_pl.agents.{_HEURISTICS[name]}"

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


def _warn_of_running_statistics(env: gymnasium.Env[Any, Any]) -> None:
    """Warn of wrappers of gymnasium whose statistics each environment gathers for itself."""
    while isinstance(env, gymnasium.Wrapper):
        replacement = _REPLACEMENTS.get(type(env))
        layer: Any = env
        if replacement is not None and layer.update_running_mean:
            fact = f"{type(layer).__name__} of gymnasium gathers statistics that are in no checkpoint"
            effect = "evaluations and resumed runs begin without them"
            remedy = f"use maze_pl.envs.wrappers.{replacement}"
            warnings.warn(f"{fact}, so that {effect}: {remedy}", UserWarning, stacklevel=3)
        env = env.env


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
