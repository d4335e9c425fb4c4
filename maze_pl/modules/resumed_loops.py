"""Continuation of Lightning's loops from checkpoints with which it leaves out or repeats a part of the run."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loops.evaluation_loop import RestartStage as EvaluationStage
from pytorch_lightning.loops.loop import _Loop
from pytorch_lightning.loops.training_epoch_loop import RestartStage as BatchStage


def continue_loops(trainer: pl.Trainer) -> None:
    """Make a resumed run continue at the point of its checkpoint; called when training starts.

    Lightning leaves out the epoch after a checkpoint of `on_train_epoch_start`. After one of
    `on_train_batch_end`, it leaves out the evaluation that follows the batch, and the end of the
    epoch. An evaluation that has begun is not repeated, and a batch that was interrupted is counted
    twice. With `max_steps`, Lightning takes an epoch that has ended for an unfinished one.

    Args:
        trainer: Trainer whose loops have been restored.
    """
    fit_loop, batches = trainer.fit_loop, trainer.fit_loop.epoch_loop
    epochs: Any = fit_loop.epoch_progress.total
    has_begun = batches.batch_progress.current.ready > 0
    if fit_loop.restarting and not fit_loop.restarted_mid_epoch and epochs.processed == epochs.ready:
        _begin_next_epoch(fit_loop)
    elif fit_loop.restarted_on_epoch_start or (fit_loop.restarted_mid_epoch and not has_begun):
        batches.restarting = False  # after no batch, or those of the previous epoch
    elif fit_loop.restarted_mid_epoch and batches.restarted_on_train_batch_end:
        _finish_batch(fit_loop)
    elif fit_loop.restarted_mid_epoch and batches.restarted_on_last:
        evaluated: Any = batches.val_loop.batch_progress
        if not evaluated.is_last_batch or evaluated.current.completed < evaluated.current.ready:
            _evaluate_if_due(fit_loop)
    elif fit_loop.restarted_mid_epoch:
        _repeat_batch(batches)


def _begin_next_epoch(fit_loop: Any) -> None:
    """Continue after an epoch that has ended."""
    for count in (fit_loop.epoch_progress.total, fit_loop.epoch_progress.current):
        count.completed = count.processed
    restarting: Any = _Loop.restarting
    restarting.fset(fit_loop, False)  # with `max_steps`, the setter of the loop itself ignores this
    fit_loop.reset_restart_stage()
    fit_loop.epoch_loop.reset_restart_stage()


def _repeat_batch(batches: Any) -> None:
    """Forget a batch that was interrupted; another one takes its place."""
    batches.batch_progress.total.reset_on_restart()
    batches.batch_progress.is_last_batch = False
    batches._batches_that_stepped -= 1  # Lightning adds 1


def _finish_batch(fit_loop: Any) -> None:
    """Continue with the evaluation or the end of the epoch if one of them follows the batch."""
    batches, epochs = fit_loop.epoch_loop, fit_loop.epoch_progress
    is_last = batches.batch_progress.is_last_batch
    if is_last:
        for count in (epochs.total, epochs.current):  # Lightning has ended the epoch
            count.processed -= 1
            count.completed -= 1
    is_evaluated = _evaluate_if_due(fit_loop)
    if not is_evaluated and not is_last:
        return  # Lightning continues with the next batch
    batches.batch_progress.increment_completed()
    batches.reset_restart_stage()  # otherwise, the loop would begin the epoch again
    if is_evaluated:
        batches._restart_stage = BatchStage.RESTARTED_ON_LAST  # the batch is counted afterwards
    else:
        fit_loop._data_fetcher.done = True


def _evaluate_if_due(fit_loop: Any) -> bool:
    """Continue with the evaluation after the batch, and return True, if there is one."""
    evaluation = fit_loop.epoch_loop.val_loop
    is_due: bool = fit_loop.epoch_loop._should_check_val_fx(fit_loop._data_fetcher)
    if is_due:
        evaluation.batch_progress.reset_on_run()
        evaluation._restart_stage = EvaluationStage.RESTARTED_MID_EVALUATION
    return is_due
