"""Options that are a number, or follow a schedule."""

from collections.abc import Callable
from typing import Any

from maze_pl.schedules.schedule import Schedule

Coefficient = float | Schedule | Callable[[float], float]
"""A number, or a function of the progress of the run, from 0 to 1."""

Check = Callable[..., None]
"""Function that takes a number under the name of its option, and raises ValueError if it is out of range."""


def value_at(name: str, coefficient: Coefficient, progress: float, check: Check | None = None) -> float:
    """Return the value of a coefficient at a progress of the run.

    Args:
        name: Name of the option, for messages.
        coefficient: The option.
        progress: Share of the run that is done, in [0, 1].
        check: Function that raises ValueError if the value is out of range.

    Raises:
        TypeError: The option is neither a number nor a function, or its value is not a number.
        ValueError: The value is out of range.
    """
    if isinstance(coefficient, bool | str) or not (callable(coefficient) or _is_number(coefficient)):
        expected = "a number, a schedule such as maze_pl.schedules.Linear, or a function of progress"
        if isinstance(coefficient, str):
            expected += f"; checkpoints hold schedules as text: pass {name}=... to load_from_checkpoint"
        raise TypeError(f"{name}={coefficient!r} must be {expected}")
    if not callable(coefficient):
        value = coefficient
    else:
        value = coefficient(progress)
        if not _is_number(value):
            found = f"returned {value!r} at progress {progress:g}"
            raise TypeError(f"{name}: its schedule {described(coefficient)} {found}, which is not a number")
    if check is not None:
        try:
            check(**{name: value})
        except ValueError as error:
            if not callable(coefficient):
                raise
            origin = f"which its schedule {described(coefficient)} gives at progress {progress:g}"
            if progress == 1.0 and value == 0:
                origin += ", the end of the run: let it end at a small number instead, such as 0.001"
            raise ValueError(f"{error}, {origin}") from None
    return float(value) if callable(coefficient) else value


def described(coefficient: object) -> str:
    """Describe a schedule for messages and logs.

    Args:
        coefficient: A schedule, a function or any other object.
    """
    name = getattr(coefficient, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(coefficient, '__module__', '')}.{name}"
    return repr(coefficient) if isinstance(coefficient, Schedule) else type(coefficient).__qualname__


def _is_number(value: Any) -> bool:
    """True for numbers of Python, NumPy and torch that convert to a float."""
    if isinstance(value, bool | str) or callable(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
