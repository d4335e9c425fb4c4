"""An environment that fails when it has made a number of steps."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any, Literal

import gymnasium

from maze_pl.envs import GymVectorArrayEnv


class Faulty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that raises, or does not return any more.

    Args:
        after: Steps that go well.
        how: What happens then; before it hangs it leaves a file named `hangs` in the working directory. With
            `helper` it hangs until a process that it has started is ended, and raises.
        rank: The only rank on which it happens; on all if None.
    """

    def __init__(
        self, after: int = 50, how: Literal["raise", "hang", "helper"] = "raise", rank: int | None = None
    ) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._left, self._how = after, how
        self._helper = subprocess.Popen(["sleep", "600"]) if how == "helper" else None
        self._is_sound = rank is not None and int(os.environ.get("LOCAL_RANK", "0")) != rank

    def step(self, action: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._is_sound:
            self.fail()
        return super().step(action)

    def fail(self) -> None:
        if self._how == "raise":
            raise ZeroDivisionError("a mistake of the user")
        Path("hangs").touch()
        if self._helper is not None:
            self._helper.wait()
            raise ConnectionError("the helper has ended")
        while True:
            time.sleep(0.1)

    def close(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()
        super().close()


def forked() -> GymVectorArrayEnv:
    """CartPole, each environment in a process that is forked from the one that steps it."""
    return GymVectorArrayEnv("CartPole-v1", vectorization_mode="async")
