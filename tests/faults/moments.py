"""A signal or an error at a certain moment of training."""

from __future__ import annotations

import os
import time
from typing import Any

import pytorch_lightning as pl

from maze_pl.system import deferred_files


class SignalAt(pl.Callback):
    """Sends a signal to this process when a hook is called.

    Args:
        hook: Name of the hook.
        count: How many calls of it come before.
        number: The signal.
        rank: The only rank in which this happens; all of them if None.
    """

    def __init__(self, hook: str, count: int = 0, number: int = 15, rank: int | None = None) -> None:
        self._hook, self._left, self._number, self._rank = hook, count, number, rank

    def _at(self, hook: str) -> None:
        is_meant = self._rank is None or os.environ.get("LOCAL_RANK", "0") == str(self._rank)
        if hook == self._hook and is_meant:
            self._left -= 1
            if self._left == -1:
                self._act()

    def _act(self) -> None:
        os.kill(os.getpid(), self._number)

    def setup(self, *_: Any, **__: Any) -> None:
        self._at("setup")

    def on_train_start(self, *_: Any) -> None:
        self._at("train_start")

    def on_train_epoch_start(self, *_: Any) -> None:
        self._at("epoch_start")

    def on_train_batch_start(self, *_: Any) -> None:
        self._at("batch_start")

    def on_before_optimizer_step(self, *_: Any) -> None:
        self._at("optimizer_step")

    def on_train_batch_end(self, *_: Any) -> None:
        self._at("batch_end")

    def on_validation_start(self, *_: Any) -> None:
        self._at("validation_start")

    def on_validation_end(self, *_: Any) -> None:
        self._at("validation_end")

    def on_save_checkpoint(self, *_: Any) -> None:
        self._at("save")

    def on_train_epoch_end(self, *_: Any) -> None:
        self._at("epoch_end")

    def on_train_end(self, *_: Any) -> None:
        self._at("train_end")


class FailAt(SignalAt):
    """Raises an error instead."""

    def _act(self) -> None:
        raise ZeroDivisionError("a mistake in a callback")


class SlowDisk(pl.Callback):
    """Delays the renaming of files that are written in the background, as on a slow disk."""

    def setup(self, *_: Any, **__: Any) -> None:
        rename = deferred_files.put_in_place_together

        def rename_late(files: Any) -> None:
            time.sleep(0.02 * len(files))
            rename(files)

        deferred_files.put_in_place_together = rename_late  # type: ignore[assignment]
