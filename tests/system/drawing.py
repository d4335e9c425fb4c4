"""An object for worker processes to serve, which draws from the global generators."""

from __future__ import annotations

import random

import numpy as np


def draw() -> tuple[float, float]:
    """The next numbers of the global generators of Python and NumPy."""
    return random.random(), float(np.random.rand())


class Drawing:
    """Draws when it is made and whenever it is asked."""

    def __init__(self) -> None:
        self.drawn = [draw()]

    def numbers(self) -> list[tuple[float, float]]:
        self.drawn.append(draw())
        return self.drawn

    def close(self) -> None:
        pass
