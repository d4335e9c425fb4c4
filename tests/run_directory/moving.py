"""An environment that changes the current folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium


class Moving(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that goes to a folder when it is made, and to another one when it is reset.

    Args:
        folder: Absolute path of the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._go("made")
        super().__init__(gymnasium.make("CartPole-v1"))

    def _go(self, name: str) -> None:
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        os.chdir(self._folder / name)

    def reset(self, **options: Any) -> Any:
        self._go("reset")
        return super().reset(**options)
