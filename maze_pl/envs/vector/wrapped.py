"""How environments of a vector are made, and what their wrappers have learned.

Apart from all that is heavy, because each of their processes imports it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from maze_pl.envs.contract import describe, name_of
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Env = gymnasium.Env[Any, Any]


def make_wrapped(env: Callable[[], Env], wrappers: Sequence[Callable[..., Env]] = ()) -> LogStatsWrapper:
    """An environment with its wrappers, the first of them innermost, and statistics around them.

    Raises:
        TypeError: The environment is none, or one of the wrappers is no wrapper of ours.
    """
    built: Any = _adapt(env())
    for wrapper in wrappers:
        inner, built = built, wrapper(built)
        if built is not inner and all(layer.env is not inner for layer in wrappers_of(built)):
            made = f"{wrapper!r} in the list of wrappers made {describe(built)}, which is no Wrapper of maze_pl around"
            raise TypeError(f"{made} the environment; gymnasium's own wrappers go inside of GymMazeEnv")
    return built if isinstance(built, LogStatsWrapper) else LogStatsWrapper.wrap(built)


def _adapt(env: Any) -> Any:
    """The environment itself if it speaks our interface, otherwise a bare gymnasium environment made to."""
    if isinstance(env, StructuredEnv):
        return env
    if not isinstance(env, gymnasium.Env):
        came = f"the environment factory returned {describe(env)}, which is no gymnasium environment"
        raise TypeError(f"{came}; return a gymnasium.Env, such as GymMazeEnv('CartPole-v1')")
    if isinstance(env.unwrapped, StructuredEnv):
        remedy = "put gymnasium's wrappers inside of GymMazeEnv, and those of maze_pl.envs.wrappers around it"
        kind = f"gymnasium's {type(env).__name__} around {name_of(env)}"
        raise TypeError(f"{kind} hides its sub-steps, masks and events; {remedy}")
    return GymMazeEnv(env)


def wrapper_stack(env: StructuredEnv) -> dict[str, Wrapper]:
    """The wrappers of an environment from the outermost inwards, named by position and class path."""
    return {f"{i}:{type(one).__module__}.{type(one).__qualname__}": one for i, one in enumerate(wrappers_of(env))}


def shared_states_of(stack: Mapping[str, Wrapper]) -> dict[str, Any]:
    """What the wrappers of a stack have learned, under their names, of those that learn."""
    return {name: state for name, wrapper in stack.items() if (state := wrapper.shared_state())}


def load_shared_states(stack: Mapping[str, Wrapper], state: Mapping[str, Any], freeze: bool = False) -> None:
    """Give the wrappers of a stack what was learned.

    Args:
        stack: Result of `wrapper_stack`.
        state: What was learned, by name.
        freeze: Whether they stop learning.

    Raises:
        ValueError: It was learned by other wrappers.
    """
    if unknown := set(state) - set(stack):
        both = f"there are statistics for wrappers {sorted(unknown)}, but the stack is {list(stack)}"
        raise ValueError(f"{both}; use the same wrappers in the same order")
    for name, wrapper in stack.items():
        if name in state:
            wrapper.load_shared_state(state[name])
        if freeze:
            wrapper.freeze()
