"""Building of environments with their wrappers, and exchange of the wrappers' statistics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import gymnasium

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_maze_env import ArrayMazeEnv
from maze_pl.envs.contract import describe, name_of
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.structured_env import StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of
from maze_pl.envs.wrappers.action_masks_wrapper import require_used, with_action_masks
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Env = gymnasium.Env[Any, Any] | ArrayEnv
_SAME_WRAPPERS: Final = "use the wrappers with which these were estimated"


def make_wrapped(
    env: Callable[[], Env],
    wrappers: Sequence[Callable[..., Env]] = (),
    action_masks: Mapping[str, str] | None = None,
) -> LogStatsWrapper:
    """Make an environment with its wrappers, the first one innermost, and statistics outermost.

    Args:
        env: Makes the environment.
        wrappers: Each wraps the result of the one before it.
        action_masks: Action head -> observation, in addition to the masks that the environment and
            the wrappers declare; see `ActionMasksWrapper`.

    Raises:
        TypeError: The factory does not make an environment, or a wrapper is not a `Wrapper` of
            maze_pl.
        ValueError: An action mask does not match any sub-step.
    """
    masks = action_masks or {}
    built: Any = with_action_masks(adapted(env()), masks)
    for wrapper in wrappers:
        built = with_wrapper(built, wrapper, masks)
    require_used(built, masks)
    return with_statistics(built)


def with_wrapper(env: Any, wrapper: Callable[..., Any], action_masks: Mapping[str, str]) -> Any:
    """Wrap an environment, and declare the action masks that exist from there on.

    Args:
        env: The environment, with some wrappers.
        wrapper: Wraps it.
        action_masks: Action head -> observation.

    Raises:
        TypeError: The result is not a `Wrapper` of maze_pl around the environment.
    """
    built = wrapper(env)
    if built is not env and all(layer.env is not env for layer in wrappers_of(built)):
        made = f"{wrapper!r} in the list of wrappers made {describe(built)}, which is not a Wrapper of maze_pl"
        raise TypeError(f"{made} around the environment; gymnasium's own wrappers go inside of GymMazeEnv")
    return with_action_masks(built, action_masks)


def with_statistics(env: Any) -> LogStatsWrapper:
    """Return an environment with statistics outermost."""
    return env if issubclass(type(env), LogStatsWrapper) else LogStatsWrapper.wrap(env)


def adapted(env: Any) -> Any:
    """Return a `StructuredEnv` as it is; adapt a gymnasium environment, or one episode of an array environment."""
    if isinstance(env, StructuredEnv):
        return env
    if isinstance(env, ArrayEnv):
        return ArrayMazeEnv(env)
    if not isinstance(env, gymnasium.Env):
        came = f"the environment factory returned {describe(env)}, which is not a gymnasium environment"
        raise TypeError(f"{came}; {_remedy_for(env)}")
    if isinstance(env.unwrapped, StructuredEnv):
        remedy = "put gymnasium's wrappers inside of GymMazeEnv, and those of maze_pl.envs.wrappers around it"
        kind = f"gymnasium's {type(env).__name__} around {name_of(env)}"
        raise TypeError(f"{kind} hides its sub-steps, masks and events; {remedy}")
    return GymMazeEnv(env)


def _remedy_for(value: Any) -> str:
    """Return the remedy where a factory of environments has made something else."""
    if isinstance(value, gymnasium.vector.VectorEnv):
        kind = type(value.unwrapped).__name__
        return f"return GymVectorArrayEnv(lambda n_envs: {kind}(n_envs)), for example"
    if any(one.__module__.startswith("pettingzoo.") for one in type(value).__mro__):
        return f"return PettingZooMazeEnv({type(value).__name__}()), for example"
    return "return a gymnasium.Env, such as GymMazeEnv('CartPole-v1')"


def wrapper_stack(env: StructuredEnv) -> dict[str, Wrapper]:
    """Return the wrappers of an environment by name, from the outermost inwards.

    Their statistics are saved under these names. A name is the class path. If a class occurs
    several times, its position among these follows, counted from the inside as in a list of
    wrappers: `path (1 of 2)`. Thus a name does not depend on wrappers of other classes.
    """
    wrappers = list(wrappers_of(env))
    paths = [f"{type(wrapper).__module__}.{type(wrapper).__qualname__}" for wrapper in wrappers]
    names = []
    for place, path in enumerate(paths):
        n, number = paths.count(path), paths[place:].count(path)
        names.append(path if n == 1 else f"{path} ({number} of {n})")
    return dict(zip(names, wrappers, strict=True))


def class_of(name: str) -> str:
    """Return the class path in a wrapper's name from `wrapper_stack`."""
    return name.partition(" (")[0]


def shared_states_of(stack: Mapping[str, Wrapper]) -> dict[str, Any]:
    """Return the statistics of the wrappers that have any, by name."""
    return {name: state for name, wrapper in stack.items() if (state := wrapper.shared_state())}


def states_of(stack: Mapping[str, Wrapper]) -> dict[str, Any]:
    """Return the full states of the wrappers that have any, by name."""
    return {name: state for name, wrapper in stack.items() if (state := wrapper.state_dict())}


def estimate_shared_states(
    env: Wrapper, stack: dict[str, Wrapper], n_samples: int, seed: int, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the wrappers of an environment estimate the statistics that they need.

    Args:
        env: The environment, which plays episodes.
        stack: Its wrappers; see `wrapper_stack`.
        n_samples: Number of observations to estimate from.
        seed: Determines the episodes and the actions.
        known: Statistics that some wrappers already have, by name; these wrappers are not estimated.

    Returns:
        Statistics of all wrappers, by name.
    """
    for name, state in known.items():
        stack[name].load_shared_state(state)
    for name, wrapper in reversed(stack.items()):  # inner first, as outer ones see their output
        if name not in known:
            wrapper.estimate_within(env, n_samples, seed)
    return shared_states_of(stack)


def load_shared_states(stack: Mapping[str, Wrapper], state: Mapping[str, Any], freeze: bool = False) -> None:
    """Load statistics into the wrappers of a stack.

    Args:
        stack: Result of `wrapper_stack`.
        state: Statistics, by name.
        freeze: Whether the wrappers stop updating their statistics.

    Raises:
        ValueError: The statistics are for other wrappers, or those of a wrapper are missing.
    """
    if unknown := set(state) - set(stack):
        both = f"there are statistics for wrappers {sorted(unknown)}, but the stack is {list(stack)}"
        raise ValueError(f"{both}; use the same wrappers")
    for name, wrapper in stack.items():
        if name in state:
            wrapper.load_shared_state(state[name])
        elif wrapper.shared_state():
            raise ValueError(
                f"there are no statistics for the wrapper {name}, but for {sorted(state)}; {_SAME_WRAPPERS}"
            )
        if freeze:
            wrapper.freeze()


def make_frozen(factory: Callable[[], LogStatsWrapper], wrapper_statistics: Mapping[str, Any]) -> LogStatsWrapper:
    """Make an environment with the given wrapper statistics, frozen."""
    env = factory()
    load_shared_states(wrapper_stack(env), wrapper_statistics, freeze=True)
    return env
