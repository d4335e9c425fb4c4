"""Names of the reward wrappers of a run."""

from collections.abc import Callable, Sequence
from typing import Any

from maze_pl.envs.wrapper import RewardWrapper
from maze_pl.runs.recorders import class_made_by


def reward_wrappers_in(wrappers: Sequence[Callable[..., Any]] | None) -> list[str]:
    """Return the names of wrappers' classes that extend `RewardWrapper`, the innermost first.

    Other wrappers may change rewards as well.

    Args:
        wrappers: Callables that wrap an environment; functions do not tell what they make, and are left out.

    Example:
        >>> from maze_pl.envs.wrappers import RewardClippingWrapper, TimeLimitWrapper
        >>> reward_wrappers_in([TimeLimitWrapper, RewardClippingWrapper])
        ['RewardClippingWrapper']
    """
    kinds = [class_made_by(wrapper) for wrapper in wrappers or ()]
    return [kind.__name__ for kind in kinds if kind is not None and issubclass(kind, RewardWrapper)]
