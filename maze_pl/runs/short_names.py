"""Names of policies for places with little room, such as progress bars."""

import re


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
