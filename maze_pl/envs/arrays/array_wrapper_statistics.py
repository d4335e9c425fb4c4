"""Exchange of the statistics of wrappers of array environments, in the form of those of single episodes."""

from __future__ import annotations

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
