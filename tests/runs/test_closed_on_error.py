"""Environments that are closed if a block raises."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.runs.closed_on_error import closed_on_error


class Counting(GymMazeEnv):
    """Counts how often it is closed."""

    n_closed = 0

    def close(self) -> None:
        self.n_closed += 1
        super().close()


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("error", [None, ValueError("refused"), KeyboardInterrupt()])
def test_only_an_error_closes_an_environment_that_was_made(error: Any, is_given: bool) -> None:
    env = Counting("CartPole-v1")
    with suppress(ValueError, KeyboardInterrupt), closed_on_error(env, is_given):
        if error is not None:
            raise error
    assert env.n_closed == (error is not None and not is_given)


class Unclosable(GymMazeEnv):
    """Cannot be closed."""

    def close(self) -> None:
        raise OSError("still in use")


def test_an_environment_that_cannot_be_closed_does_not_hide_the_error() -> None:
    with pytest.raises(ValueError, match=r"^refused") as found, closed_on_error(Unclosable("CartPole-v1"), False):
        raise ValueError("refused")
    assert found.value.__notes__ == ["Closing the environment failed, too: OSError: still in use"]
