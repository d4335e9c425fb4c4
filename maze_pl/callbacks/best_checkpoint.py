"""Checkpoint with the best evaluation."""

import math
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import callbacks

from maze_pl.callbacks.epoch_table import say
from maze_pl.callbacks.last_checkpoint import (
    checkpoint_folder,
    is_within_epoch,
    keep_first,
    keep_last,
)
from maze_pl.callbacks.monitor_errors import unknown_value
from maze_pl.core.checkpoint_content import callback_state
from maze_pl.core.run_starts import is_first_fit
from maze_pl.events.display import format_value
from maze_pl.modules.published_values import awaits_training, current_metrics, is_of_training
from maze_pl.runs.checkpoint_files import read_checkpoint, write_checkpoint


class BestCheckpoint(callbacks.ModelCheckpoint):
    """Keeps the checkpoint with the best evaluation as `best.ckpt`.

    A resumed run reads the score to beat from the file itself. So the score is known even if the
    run was moved or copied, if its path is spelled differently, or if it was killed between writing
    `best.ckpt` and `last.ckpt`. A run that continues from an earlier checkpoint has to beat it, too.

    Of equal values, the first one counts. If several evaluations had the same value throughout, as in
    zero-sum games between agents that share a policy, the end of training says so, unless the run was
    resumed.

    Args:
        monitor: Value to compare after each evaluation: `eval/return`, `eval/kpi/<name>`, or any
            other logged value. Columns of training (`train_...`) are compared at the end of an
            epoch with an evaluation.
        mode: Whether higher (`max`) or lower (`min`) is better.
        dirpath: Folder; None means `checkpoints` in the run directory.
    """

    def __init__(self, monitor: str = "eval/return", mode: str = "max", dirpath: str | None = None) -> None:
        # after the evaluation at the end of an epoch, so that resuming from it is exact
        when: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}
        super().__init__(dirpath, "best", monitor, mode=mode, **when)
        self._given_dirpath: Any = None
        self._folder: str | None = None  # that was determined
        self._evaluated = False
        self._n_evaluations = 0
        self._has_differed = False  # an evaluation from the best score until then

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Determine the folder, without Lightning's warning about a non-empty one on resuming."""
        if self.dirpath != self._folder:  # it was set since then
            self._given_dirpath = self.dirpath
        self.dirpath = self._folder = checkpoint_folder(trainer, stage, self._given_dirpath)
        self._evaluated = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget an earlier run; read the score to beat from `best.ckpt` of a resumed one; all ranks must call it."""
        super().on_train_start(trainer, pl_module)
        is_resumed = trainer.ckpt_path is not None
        if is_resumed or is_first_fit(trainer):  # otherwise, the same trainer trains on
            self._start_run(trainer, is_resumed=is_resumed)

    def _start_run(self, trainer: pl.Trainer, *, is_resumed: bool) -> None:
        """Begin with the score of the file if the run was resumed, otherwise without any."""
        self.best_k_models = {}
        self.best_model_path = self.kth_best_model_path = ""
        self.best_model_score = self.current_score = None
        self._last_global_step_saved = 0  # otherwise, an equal step of this run would count as saved
        self._n_evaluations = 0
        self._has_differed = is_resumed  # the evaluations before are unknown
        path = Path(str(self.dirpath), f"{self.filename}{self.FILE_EXTENSION}")
        score = None
        if is_resumed and trainer.is_global_zero and path.is_file():
            score = callback_state(read_checkpoint(path), self.state_key).get("best_model_score")
            if score is None:
                reason = f"{path} was not selected by {self.monitor}"
                say(trainer, f"{reason}: the next evaluation replaces it")
        score = trainer.strategy.broadcast(score)  # some ranks may have no access to the file
        if score is not None:
            self.best_k_models = {str(path): score}
            self.best_model_path = self.kth_best_model_path = str(path)
            self.best_model_score = self.current_score = self.kth_value = score

    def state_dict(self) -> dict[str, Any]:
        """Return the score, and whether an evaluation awaits the end of its epoch."""
        return {**super().state_dict(), "evaluated": self._evaluated}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore whether a score of training is to be compared; `best.ckpt` itself holds the best one."""
        self._evaluated = is_of_training(str(self.monitor)) and state_dict.get("evaluated", False)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin an epoch without an evaluation."""
        self._evaluated = False

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that there is a score, before `LastCheckpoint` may write a checkpoint."""
        self._evaluated = not trainer.sanity_checking

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the score at once if the epoch continues, unless it is of training."""
        is_due = not trainer.is_last_batch and not is_of_training(str(self.monitor))
        if trainer.state.fn == "fit" and is_due:
            self.on_train_epoch_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the checkpoint if the evaluation of this epoch is the best."""
        if is_of_training(str(self.monitor)) and is_within_epoch(trainer):
            return  # a resumed run finishes the epoch
        metrics = current_metrics(trainer)
        if self._evaluated and awaits_training(trainer, str(self.monitor)):
            reason = f"no training episode has ended in this epoch, which has no {self.monitor}"
            say(trainer, f"{reason}: best.ckpt stays as it is; longer epochs have more episodes")
        elif self._evaluated:
            if self.monitor not in metrics:
                keep_last(trainer)
                is_known = self.best_model_score is not None
                raise unknown_value(self, str(self.monitor), metrics, has_been_known=is_known)
            known = self.best_model_score
            super().on_train_epoch_end(trainer, pl_module)
            self._n_evaluations += 1
            self._has_differed |= known is not None and bool(metrics[str(self.monitor)] != known)
        self._evaluated = False

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell the user if evaluations did not distinguish policies."""
        super().on_train_end(trainer, pl_module)
        if self._n_evaluations > 2 and not self._has_differed and self.best_model_score is not None:
            score = format_value(float(self.best_model_score))
            value = f"{self.monitor} was {score} in all {self._n_evaluations}"
            remedy = "use last.ckpt, or monitor another value"
            say(trainer, f"{value} evaluations: best.ckpt is the first of them; {remedy}")

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        write_checkpoint(trainer, filepath)
        keep_first(trainer)  # without last.ckpt, a run could not be resumed when it has trained on
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath
        score = trainer.callback_metrics[str(self.monitor)].item()
        say(trainer, f"-> new best {self.monitor} {_score_text(score)}!")


def _score_text(score: float) -> str:
    """Format a score with the seven digits that Lightning keeps of it."""
    size = abs(score)
    if not 10_000 <= size < 1e7 or score.is_integer():
        return format_value(score)
    return f"{score:,.{6 - int(math.log10(size))}f}"
