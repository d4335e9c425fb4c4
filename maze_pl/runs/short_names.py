"""Names and paths that are shortened for tables and progress bars."""

import os
import re
from collections.abc import Collection
from pathlib import Path


def shortened(name: str, most: int) -> str:
    """Return the end of a long name behind an ellipsis, from a separator on if there is one near.

    Args:
        name: A path, a class path, or another name.
        most: Largest number of characters.

    Example:
        >>> shortened("outputs/experiments/ppo_cartpole/checkpoints/best.ckpt", 30)
        '…/checkpoints/best.ckpt'
        >>> shortened("outputs/ppo", 30)
        'outputs/ppo'
    """
    if len(name) <= most:
        return name
    end = name[-(most - 1) :]
    separator = re.search(r"[/.]", end[: most // 2])
    return f"…{end if separator is None else end[separator.start() :]}"


def shortest_ending(path: str, others: Collection[str], n_parts: int = 1) -> str:
    """Return the last parts of a path, as few as tell it from other paths.

    Args:
        path: The path.
        others: The other paths, without this one.
        n_parts: Smallest number of parts, at least 1.

    Returns:
        The parts; the whole path if all of its endings are also endings of another path.
    """
    parts = Path(path).parts
    for n in range(n_parts, len(parts)):
        short = os.path.join(*parts[-n:])
        if not any(other == short or other.endswith(f"{os.sep}{short}") for other in others):
            return short
    return path
