"""Short names of paths in tables, by which they can still be told apart."""

import os
from collections.abc import Collection
from pathlib import Path


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
