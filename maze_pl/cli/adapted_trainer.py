"""Lightning's trainer, as `maze-pl` runs it."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loops.fit_loop import _FitLoop
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from maze_pl.core.unsuitable_features import refuse_timed_evaluations
from maze_pl.system.rank_processes import WatchedLauncher
from maze_pl.system.signals import StopSignals


class _EndingFitLoop(_FitLoop):
    """Training that also ends if a resumed run has nothing left to train.

    Lightning's loop is skipped then. But the run may have been killed after its last epoch, before or
    in what callbacks do at the end, such as the final evaluation.
    """

    @property
    def skip(self) -> bool:
        """False for a resumed run: it calls `on_train_start` and `on_train_end` in any case."""
        has_batches = self.max_batches != 0 and self.trainer.limit_train_batches != 0
        return super().skip if self.trainer.ckpt_path is None or not has_batches else False


def adapted_trainer(config: dict[str, Any], signals: StopSignals) -> pl.Trainer:
    """Return a trainer that watches the ranks it launches, and that ends a resumed run in any case.

    Args:
        config: Arguments of the trainer.
        signals: Handler of the signals that stop a command.
    """
    trainer = pl.Trainer(**config)
    refuse_timed_evaluations(trainer)
    strategy: Any = trainer.strategy
    if isinstance(strategy.launcher, _SubprocessScriptLauncher):
        processes = (strategy.num_processes, strategy.num_nodes)
        strategy._launcher = WatchedLauncher(signals, strategy.cluster_environment, *processes)
    if config["strategy"] == "auto" and isinstance(strategy, DDPStrategy):
        strategy._ddp_kwargs["find_unused_parameters"] = True
    loop = _EndingFitLoop(trainer, trainer.min_epochs, trainer.max_epochs)
    loop.epoch_loop = trainer.fit_loop.epoch_loop
    trainer.fit_loop = loop
    return trainer
