"""Detection of rewards of several agents that cancel out, so that nothing can be learned from their sum."""

from typing import Any, Final

import numpy as np

ROUNDING: Final = 1e-6
"""Share of the size of rewards below which their sum counts as 0: numbers of 32 bits have seven digits."""


def cancel_out(sums: Any, sizes: Any) -> bool:
    """Return whether agents are paid, but the sums of their rewards are all 0, up to rounding.

    Args:
        sums: [n] sums of rewards, such as returns of episodes.
        sizes: [n] sums of the absolute values of the rewards that are attributed to acts, 0 for team rewards.

    Example:
        >>> cancel_out([0.1 + 0.2 - 0.3], [0.6]), cancel_out([0.0], [0.0]), cancel_out([0.0, 0.5], [2.0, 0.5])
        (True, False, False)
    """
    limits = ROUNDING * np.asarray(sizes, np.float64)
    return bool((limits > 0).any() and (np.abs(sums) <= limits).all())
