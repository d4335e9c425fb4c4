"""States of array environments with their wrappers, and exchange of statistics with the form of single episodes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper import ArrayWrapper


def array_wrappers_of(env: ArrayEnv) -> Iterator[ArrayWrapper]:
    """Yield the wrappers around an array environment, from the outermost inwards."""
    while isinstance(env, ArrayWrapper):
        yield env
        env = env.env


def shared_states_of(env: ArrayEnv) -> list[dict[str, Any]]:
    """Return the statistics of wrappers that have any, by name, for each of the environments."""
    states: list[dict[str, Any]] = [{} for _ in range(env.n_envs)]
    for wrapper in array_wrappers_of(env):
        for state, own in zip(states, wrapper.shared_states(), strict=True):
            if own:
                state[wrapper.statistics_name] = own
    return states


def load_shared_states(env: ArrayEnv, state: Mapping[str, Any], freeze: bool) -> None:
    """Load statistics into the wrappers.

    Args:
        env: The environment with its wrappers.
        state: Statistics, by name.
        freeze: Whether the wrappers stop updating their statistics.

    Raises:
        ValueError: The statistics are for other wrappers, or those of a wrapper are missing.
    """
    wrappers = {wrapper.statistics_name: wrapper for wrapper in array_wrappers_of(env)}
    unknown = sorted(set(state) - set(wrappers))
    if unknown:
        both = f"there are statistics of wrappers {unknown}, but those of the array environment are {list(wrappers)}"
        raise ValueError(f"{both}; use the same wrappers")
    for name, wrapper in wrappers.items():
        if name in state:
            wrapper.load_shared_state(state[name])
        elif wrapper.shared_states()[0]:
            raise ValueError(f"there are no statistics for the wrapper {name}, but for {sorted(state)}")
        if freeze:
            wrapper.freeze()


def array_states_of(env: ArrayEnv) -> dict[str, Any]:
    """Return the state of an array environment (`array_env`), and those of its wrappers by name (`array_wrappers`)."""
    wrapper_states, state = _unnested(env.state_dict())
    return {"array_env": state, "array_wrappers": dict(zip(_names_of(env), wrapper_states, strict=True))}


def load_array_states(env: ArrayEnv, states: Mapping[str, Any]) -> None:
    """Restore the result of `array_states_of`; a wrapper without a saved state keeps the one that it has.

    Args:
        env: The environment with its wrappers.
        states: The saved states. Without `array_wrappers`, those of the wrappers are around `array_env`, and include
            options, as in checkpoints of earlier versions.

    Raises:
        ValueError: A state is that of other arrays, or the checkpoint is old and has another number of wrappers.
    """
    names = _names_of(env)
    state: Mapping[str, Any] = states["array_env"]
    if "array_wrappers" in states:
        saved = states["array_wrappers"]
    else:
        unnamed, state = _unnested(state)
        if len(unnamed) != len(names):
            both = f"the checkpoint holds {len(unnamed)} wrappers without their names, but now there are {names}"
            raise ValueError(f"{both}; resume this run with the wrappers that it had")
        state = _without_options(state, env.unwrapped)
        saved = {}
        for name, part, wrapper in zip(names, unnamed, array_wrappers_of(env), strict=True):
            saved[name] = _without_options(part, wrapper)
    current, _ = _unnested(env.state_dict())
    for name, own in zip(reversed(names), reversed(current), strict=True):  # the innermost wrapper first
        state = {"env": state, **saved.get(name, own)}
    env.load_state_dict(state)


class FirstWrapperStates:
    """Copies of the states of all wrappers before their first episodes.

    Args:
        env: The environment with its wrappers, not yet reset.
    """

    def __init__(self, env: ArrayEnv) -> None:
        self._env = env
        self._states: dict[str, Any] = copy.deepcopy(array_states_of(env)["array_wrappers"])
        self._options = [wrapper.options() for wrapper in array_wrappers_of(env)]

    def load(self) -> None:
        """Load the states; arrays that wrappers have made since then stay as they are."""
        if not self._states:
            return
        states = copy.deepcopy(array_states_of(self._env))
        current = states["array_wrappers"]
        for name, options in zip(self._states, self._options, strict=True):
            later = {part: array for part, array in current[name].items() if part not in options}
            current[name] = {**later, **self._states[name]}
        load_array_states(self._env, states)


def _without_options(state: Mapping[str, Any], env: ArrayEnv) -> dict[str, Any]:
    """Leave the options of an environment, or of a wrapper, out of its state."""
    options = env.options()
    return {name: part for name, part in state.items() if name not in options}


def _names_of(env: ArrayEnv) -> list[str]:
    """Names of the wrappers, from the outermost inwards: their classes, numbered from the innermost if repeated."""
    names: list[str] = []
    for wrapper in reversed(list(array_wrappers_of(env))):
        name = type(wrapper).__name__
        count = sum(other.split()[0] == name for other in names)
        names.append(f"{name} {count + 1}" if count else name)
    return names[::-1]


def _unnested(state: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Take apart a state in which that of each wrapper holds the one of what it wraps, as `env`.

    Returns:
        States of the wrappers, from the outermost inwards, and that of the environment.
    """
    wrapper_states = []
    inner = dict(state)
    while isinstance(inner.get("env"), Mapping):
        following = inner.pop("env")
        wrapper_states.append(inner)
        inner = dict(following)
    return wrapper_states, inner
