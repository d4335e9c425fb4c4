"""Environments that are slow; in a module that workers import quickly."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

from tests.datamodules.drift import Drift


class Slow(Drift):
    """Waits in each step, ten times as long in the first one that is made in a worker if there is a folder to note it.

    Args:
        folder: Where that is noted.
    """

    def __init__(self, folder: str | None) -> None:
        super().__init__()
        self.seconds = 0.001
        if folder is not None and multiprocessing.parent_process() is not None:
            try:
                os.close(os.open(f"{folder}/slow", os.O_CREAT | os.O_EXCL))
                self.seconds = 0.01
            except FileExistsError:
                pass

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


class SlowToMake(Drift):
    """Hangs when it is made for the first time, and leaves a file as a sign of it.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        if not Path(path).exists():
            Path(path).touch()
            time.sleep(1000)
