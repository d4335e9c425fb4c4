"""A game with images as observations whose optimum is known, to train on images without downloading anything."""

from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.envs.structured_env import Array

CELLS: Final = 7
"""Cells of a frame from left to right and from top to bottom; the paddle is three of them wide."""

_BACKGROUND, _BALL, _PADDLE = (16, 24, 48), (255, 208, 64), (96, 224, 160)


class CatchEnv(gymnasium.Env[Array, Any]):
    """Balls fall one after the other, and a paddle at the bottom must be under them when they land.

    A ball falls one cell a step and drifts up to two cells a step to the side, bouncing off the walls. A
    single frame does not show the drift, so a policy needs several frames (`ObservationStackWrapper`). Actions move the
    paddle one cell to the left (0), leave it (1), or move it to the right (2).

    A caught ball is worth 1, a missed one -1. A ball lands after 6 steps and the paddle needs 4 at most, so every
    ball can be caught, even after waiting for a second frame: the optimum is a return of `n_balls`. Balls land equally
    often in each column, so a policy that ignores the frames gets -1/7 per ball.

    Args:
        size: Height and width of the frames in pixels.
        n_balls: Balls of an episode, each of which takes 6 steps.
        render_mode: None, or `rgb_array` for `render` to return the frame.

    Raises:
        ValueError: A frame has fewer pixels than cells, there are no balls, or frames cannot be rendered like that.

    Example:
        >>> env = CatchEnv(size=84)
        >>> frame, _ = env.reset(seed=0)
        >>> frame.shape, frame.dtype
        ((84, 84, 3), dtype('uint8'))
    """

    def __init__(self, size: int = 84, n_balls: int = 5, render_mode: str | None = None) -> None:
        if size < CELLS or n_balls < 1 or render_mode not in (None, "rgb_array"):
            expected = f"size must be at least {CELLS}, n_balls at least 1, and render_mode None or 'rgb_array'"
            raise ValueError(f"CatchEnv: {expected}, but {size=}, {n_balls=}, {render_mode=}")
        self.n_balls, self.render_mode = n_balls, render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 8}
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(3)
        self._background = np.full((size, size, 3), _BACKGROUND, np.uint8)
        self._edges = [size * cell // CELLS for cell in range(CELLS + 1)]  # pixels at which cells begin
        self._row = self._column = self._drift = self._balls = 0
        self._paddle = CELLS // 2  # the column of its middle

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Put the paddle somewhere and drop the first ball."""
        super().reset(seed=seed)
        self._balls, self._paddle = self.n_balls, int(self.np_random.integers(1, CELLS - 1))
        self._drop()
        return self._frame(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move the paddle, then the ball; the next one appears in the step in which one lands."""
        self._paddle = min(max(self._paddle + int(action) - 1, 1), CELLS - 2)
        self._row, column = self._row + 1, self._column + self._drift
        self._column = -column if column < 0 else min(column, 2 * (CELLS - 1) - column)
        if self._column != column:
            self._drift = -self._drift
        reward = 0.0
        if self._row == CELLS - 1:
            reward = 1.0 if abs(self._column - self._paddle) <= 1 else -1.0
            self._balls -= 1
            if self._balls:
                self._drop()
        return self._frame(), reward, not self._balls, False, {}

    def render(self) -> Array | None:
        """The frame, if that is the render mode."""
        return self._frame() if self.render_mode else None

    def _drop(self) -> None:
        """A ball appears at the top."""
        self._row, self._column = 0, int(self.np_random.integers(CELLS))
        self._drift = int(self.np_random.integers(-2, 3))

    def _frame(self) -> Array:
        """[size, size, 3] what is to be seen."""
        frame, edges = self._background.copy(), self._edges
        frame[edges[-2] :, edges[self._paddle - 1] : edges[self._paddle + 2]] = _PADDLE
        row, column = self._row, self._column
        frame[edges[row] : edges[row + 1], edges[column] : edges[column + 1]] = _BALL
        return frame
