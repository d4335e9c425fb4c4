"""Checks of what environments return, with messages that name the environment and the fault.

Nothing here but `finite_rewards` runs in a step that went well. The code that steps environments
calls it with the exception that a malformed result caused, or with the first results of an
environment, which are checked in full.
"""

import inspect
import linecache
import traceback
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from numbers import Number
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.exact_numbers import overflow_of
from maze_pl.core.spaces import is_text
from maze_pl.envs.structured_env import EnvMeta
from maze_pl.system.lost_process import LostProcessError

_STEP = "(observation, reward, terminated, truncated, info)"
_OLD_STEP = "; four values are gym's old interface, whose `done` is now terminated and truncated"


MAX_ACTS_PER_ENV_STEP = 10_000
"""Acts in a row that need not complete an environment step."""
NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.float16, np.int64, np.int32, np.bool_})
"""Usual types of rewards; other types are checked."""
FLAGS = frozenset({bool, np.bool_})
"""Usual types of `terminated` and `truncated`; other types are checked."""
NO_RESULT: Final[Any] = object()
"""Stands for the result of a call that has not returned."""


class EnvContractError(ValueError):
    """An environment broke its contract; names the environment, the value and the expectation."""


def portable_error(error: BaseException) -> EnvContractError | LostProcessError | str:
    """Convert an exception to a form that can be sent to another process.

    An error that maze_pl raised on purpose keeps its message only, as that says everything; any
    other exception becomes text with its traceback.
    """
    if isinstance(error, LostProcessError):
        return error
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    is_ours = str(frame.f_globals.get("__name__")).startswith("maze_pl.")
    is_raised = linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise ")
    if is_ours and is_raised and isinstance(error, ValueError | TypeError):
        return EnvContractError(str(error))
    return "".join(traceback.format_exception(error))


def name_of(env: Any) -> str:
    """Return an environment's name for messages: its id, or the class name of its simulation."""
    inner = getattr(env, "unwrapped", env)
    simulation = getattr(inner, "core_env", inner)
    inner = getattr(getattr(simulation, "env", simulation), "unwrapped", simulation)
    spec = getattr(inner, "spec", None)
    return type(inner).__name__ if spec is None else str(spec.id)


def makers_of(env: Any, *methods: str) -> str:
    """Name an environment, and the wrappers of users around it that define any of some methods.

    Args:
        env: The environment with its wrappers.
        methods: Names of the methods.
    """
    names: list[str] = []
    layer = env
    while issubclass(type(type(layer)), EnvMeta) and "env" in vars(layer):
        own = [kind for kind in type(layer).__mro__ if not kind.__module__.startswith(("maze_pl.", "gymnasium."))]
        if any(method in vars(kind) for kind in own for method in methods):
            names.append(type(layer).__name__)
        layer = vars(layer)["env"]
    return f"{name_of(env)} or of {' or '.join(names)} around it" if names else name_of(env)


def describe(value: Any) -> str:
    """Describe a value briefly, by its type and some of its content."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} values"
    if isinstance(value, dict):
        return f"a dict with {sorted(map(str, value))}"
    return "None" if value is None else f"{str(value)[:40]!r} of type {type(value).__name__}"


def check_reset(result: Any, env: Any) -> None:
    """Refuse a malformed result of `reset`; its observation is not checked."""
    is_pair = isinstance(result, tuple) and len(result) == 2
    if not is_pair or not isinstance(result[1], dict):
        came = f"{describe(result)} with {describe(result[1])} instead of info" if is_pair else describe(result)
        old = "; the observation alone is gym's old interface" if isinstance(result, np.ndarray) else ""
        maker = makers_of(env, "reset", "observation")
        raise EnvContractError(f"reset of {maker} returned {came}{old}; expected (observation, info dict)")


def check_step(result: Any, env: Any) -> None:
    """Refuse a malformed result of `step`; its observation is not checked."""
    came, expected = describe(result), _STEP
    if isinstance(result, tuple) and len(result) == 4:
        expected += _OLD_STEP
    if isinstance(result, tuple | list) and len(result) == 5:
        _, reward, terminated, truncated, info = result
        if not _is_number(reward, "biuf"):
            came, expected = f"{describe(reward)} as reward", "one number"
        elif not _is_number(terminated, "biu"):
            came, expected = f"terminated={describe(terminated)}", "True or False"
        elif not _is_number(truncated, "biu"):
            came, expected = f"truncated={describe(truncated)}", "True or False"
        elif not isinstance(info, dict):
            came, expected = f"{describe(info)} as info", "a dict"
        else:
            return
    maker = makers_of(env, "step", "step_in_parts", "observation", "action", "reward")
    raise EnvContractError(f"step of {maker} returned {came}; expected {expected}")


def check_actor_rewards(actor_rewards: Any, n_acts: int | None, is_attributed: bool | None, env: Any) -> None:
    """Refuse rewards that cannot be attributed to the acts of an environment step.

    Args:
        actor_rewards: Result of `get_actor_rewards` at the end of the environment step.
        n_acts: Number of its acts; None if it is not known.
        is_attributed: Whether rewards were attributed before; None if it is not known.
        env: The environment, for the message.
    """
    came = f"get_actor_rewards() of {name_of(env)} returned"
    if is_attributed is not None and is_attributed != (actor_rewards is not None):
        kind = "None" if actor_rewards is None else "an array"
        remedy = "attribute rewards in every environment step or in none"
        raise EnvContractError(f"{came} {kind} after the opposite before; {remedy}")
    shape = np.shape(actor_rewards)
    if actor_rewards is not None and n_acts is not None and shape != (n_acts,):
        remedy = "return one reward for each act of the environment step, in order"
        raise EnvContractError(f"{came} shape {shape} for {n_acts} acts; {remedy}")


def finite_rewards(actor_rewards: Any, env: Any) -> Any:
    """Return rewards of single acts before a wrapper changes them, for example by clipping, if they are finite.

    Args:
        actor_rewards: [L] rewards of the acts of an environment step, or None.
        env: The environment, for the message.

    Raises:
        EnvContractError: A reward is not finite.
    """
    if actor_rewards is None:
        return None
    for reward in actor_rewards:
        if not isfinite(reward):
            came = f"get_actor_rewards() of {name_of(env)} returned the reward {reward}"
            raise EnvContractError(f"{came}, which is not finite")
    return actor_rewards


def _is_number(value: Any, kinds: str) -> bool:
    """True if a value is a single Python or NumPy number of one of NumPy's dtype `kinds`."""
    is_one = isinstance(value, bool | int | float | np.generic | np.ndarray) and np.ndim(value) == 0
    return is_one and np.asarray(value).dtype.kind in kinds


def check_spaces(env: Any) -> None:
    """Refuse a gymnasium environment that does not declare both its spaces."""
    for what in ("observation_space", "action_space"):
        space = getattr(env, what, None)
        if not isinstance(space, spaces.Space):
            raise EnvContractError(f"{name_of(env)} has {what} {describe(space)}; set it to a gymnasium space")


def check_observation(observation: Any, space: spaces.Space[Any], what: str, exactly: bool = False) -> None:
    """Refuse an observation that is not numeric, that does not match the keys or shape of its space, or that overflows.

    It overflows if it holds numbers that the integer type of its space cannot hold, which NumPy
    would wrap around in silence.

    Args:
        observation: Observation that the environment returned.
        space: Space that the environment declared.
        what: Description of the observation and its origin, for the message.
        exactly: Also refuse values out of bounds and fractions for integers; gymnasium's
            environments return both.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or set(observation) != set(space.spaces):
            raise EnvContractError(f"{what} is {describe(observation)}; its space has {sorted(map(str, space.spaces))}")
        for key, child in space.spaces.items():
            check_observation(observation[key], child, f"entry {key!r} of {what}", exactly)
        return
    if isinstance(space, spaces.Tuple):
        n = len(space.spaces)
        if not isinstance(observation, tuple | list) or len(observation) != n:
            raise EnvContractError(f"{what} is {describe(observation)}; its space is a tuple of {n}")
        for place, child in enumerate(space.spaces):
            check_observation(observation[place], child, f"entry {place} of {what}", exactly)
        return
    if is_text(space):  # which is left out of observations
        return
    try:
        array = np.asarray(observation)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        came = f"{describe(observation)}{_among(observation)}"
        raise EnvContractError(f"{what} is {came}; its space expects {space.dtype}")
    if array.shape != space.shape:
        raise EnvContractError(f"{what} has shape {array.shape}; its space has {space.shape}")
    dtype = np.dtype(space.dtype)
    if exactly and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise EnvContractError(f"{what} has type {array.dtype}; its space has {dtype}")
    if array.dtype != dtype and (fault := overflow_of(array, dtype)) is not None:
        raise EnvContractError(f"{what} {fault}")
    if exactly:
        _check_bounds(array, space, what)


def _among(values: Any) -> str:
    """Name the first of several values that is not a number; empty for a single value, or if a type says it."""
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return ""
    with suppress(ValueError):  # rows of different lengths
        if np.ndim(values):
            for value in np.asarray(values, object).ravel():
                if not isinstance(value, Number | np.bool_):
                    return f", one of which is {value!r:.40}"
    return ""


def _check_bounds(array: np.ndarray, space: spaces.Space[Any], what: str) -> None:
    """Refuse values out of the bounds of a space; its dtype can hold them."""
    low, high = bounds(space)
    array = array.astype(space.dtype)  # as stored, so that rounding makes no difference
    outside = (array < low) | (array > high)
    if outside.any():
        at = tuple(np.argwhere(outside)[0])
        low, high = np.broadcast_to(low, array.shape)[at], np.broadcast_to(high, array.shape)[at]
        raise EnvContractError(f"{what} holds {array[at]}; its space allows {low} to {high} there")


def bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Return the lowest and highest values of a Box, Discrete, MultiDiscrete or MultiBinary."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def explain_step(error: Exception, result: Any, env: Any) -> None:
    """Raise `EnvContractError` if the result of `step` caused an exception, and not `step` itself.

    Args:
        error: The exception, caught in the frame that called `step`.
        result: Result of that call, or of an earlier call of another environment; `NO_RESULT` if
            there is none.
        env: The environment, for the message.
    """
    frame = list(traceback.walk_tb(error.__traceback__))[-1][0]
    if error.__traceback__ is not None and error.__traceback__.tb_next is None:
        if result is not NO_RESULT:
            check_step(result, env)
    elif "unpack" in str(error) and str(frame.f_globals.get("__name__")).startswith("gymnasium.wrappers"):
        hint = _OLD_STEP if "got 4" in str(error) else ""
        raise EnvContractError(f"step of {name_of(env)} did not return five values ({error}); expected {_STEP}{hint}")


def explain_reset(error: Exception, env: Any) -> None:
    """Raise `EnvContractError` if `reset` of an environment, or of a wrapper around it, takes no seed or no options.

    Args:
        error: The exception, caught in the frame that called `reset` with both.
        env: The gymnasium environment, possibly with gymnasium's wrappers.
    """
    if not isinstance(error, TypeError):
        return
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    for layer in layers:
        if missing := _refused_names(layer.reset, ("seed", "options")):
            name = type(layer).__name__ if layer is not layers[-1] else name_of(env)
            came = f"reset of {name} takes no {' and no '.join(missing)}, as in gym's old interface"
            raise EnvContractError(f"{came}; expected reset(self, *, seed=None, options=None)") from error


def _refused_names(function: Callable[..., Any], names: tuple[str, ...]) -> list[str]:
    """Return the names that a function does not take as keyword arguments; none if its signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a compiled function
        return []
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return []
    taken = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return [name for name in names if name not in taken]


def check_picture(picture: Any, env: Any) -> None:
    """Refuse a result of `render` that is not a picture.

    Args:
        picture: Result of `render`.
        env: The environment, for the message.
    """
    is_array = isinstance(picture, np.ndarray) and picture.ndim in (2, 3) and picture.dtype == np.uint8
    if not is_array or (picture.ndim == 3 and picture.shape[2] not in (3, 4)):
        came = f"render of {makers_of(env, 'render')} returned {describe(picture)}"
        raise EnvContractError(f"{came}; expected an array [height, width, 3] of bytes")
