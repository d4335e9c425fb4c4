"""Arguments of `SpacesTrajectoryRecord.of_acts` from logs; messages name the one that does not fit."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence, Sized
from typing import Any, Final

import numpy as np

from maze_pl.records.acts import Array, as_type

_CLOCK: Final = 10**9
"""Least time of a first act that must be that of a clock: seconds since 1970 have been larger since 2001."""
_ENTRIES: Final = ("step key", "agent id", "environment time", "reward", "actor done", "observation", "action")
_COUNTS: Final = "times count the environment steps completed before, as in 0, 1, 2, not hours or seconds"


def require_acts(acts: Any) -> None:
    """Refuse what is not a list of acts.

    Raises:
        ValueError: It is something else, such as a table, or an act lacks an entry.
    """
    expected = f"{len(_ENTRIES)} entries: {', '.join(_ENTRIES)}"
    if not isinstance(acts, Sequence):
        raise ValueError(f"acts is of type {type(acts).__name__}, expected a list of acts with {expected}")
    for place, act in enumerate(acts):
        if not isinstance(act, Sized) or len(act) != len(_ENTRIES):
            raise ValueError(f"act {place} is {reprlib.repr(act)}, expected {expected}")


def require_id(episode_id: Any) -> None:
    """Refuse an id that is not a text.

    Raises:
        ValueError: It is something else, such as a UUID or a number.
    """
    if not isinstance(episode_id, str):
        raise ValueError(f"episode_id={episode_id!r} must be a text, such as str(uuid.uuid4())")


def flag_of(value: Any, name: str) -> bool:
    """Return a flag as a bool.

    Raises:
        ValueError: It is neither True nor False, such as NaN or a text.
    """
    if not isinstance(value, bool | np.bool_ | int | np.integer) or value not in (0, 1):
        raise ValueError(f"{name}={value!r} must be True or False")
    return bool(value)


def time_of_end(value: Any) -> int:
    """Return the number of environment steps of an episode as an int.

    Raises:
        ValueError: It is not a single whole number.
    """
    number = as_type(value, np.dtype(np.int64), "last_env_time", is_exact=True)
    if number.ndim:
        raise ValueError(f"last_env_time is {reprlib.repr(value)}, expected a single number")
    return int(number)


def rewards_of_actors(values: Any, n_acts: int) -> Array | None:
    """[n_acts] float64 rewards that are attributed to acts; None if there are none.

    Raises:
        ValueError: They are not numbers, or not one for each act.
    """
    if values is None:
        return None
    rewards = as_type(values, np.dtype(np.float64), "actor_reward", is_exact=True)
    if rewards.shape != (n_acts,):
        raise ValueError(f"actor_reward has shape {rewards.shape}, expected ({n_acts},), a number for each act")
    return rewards


def require_counted_times(env_time: Array, last_env_time: int, is_flat: bool) -> None:
    """Refuse times of acts that are those of a clock, or of rows that are there twice.

    Args:
        env_time: [L] times of the acts, ascending.
        last_env_time: Time of the end, not before the last act.
        is_flat: One agent acts once in an environment step, so that each act has another time.

    Raises:
        ValueError: There are such times.
    """
    first = int(env_time[0])
    if first >= _CLOCK:
        raise ValueError(f"the environment time of act 0 is {first:,}; {_COUNTS}")
    if not is_flat:
        return
    is_again = np.diff(env_time) == 0
    if is_again.any():
        place = int(is_again.argmax())
        fault = f"acts {place} and {place + 1} are both at environment time {env_time[place]}"
        raise ValueError(f"{fault}, but the only agent acts once in an environment step; {_COUNTS}")
    if last_env_time == env_time[-1]:
        fault = f"last_env_time={last_env_time} is the environment time of the last act"
        raise ValueError(f"{fault}, which completed a step: pass {last_env_time + 1} or more; {_COUNTS}")
