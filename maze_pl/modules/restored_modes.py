"""Training and evaluation modes of modules after an evaluation that failed."""

from __future__ import annotations

from typing import Any, Self


class RestoredModes:
    """Lets a `LightningModule` return to its modes from before an evaluation that fails.

    Lightning does so only after others. The next run would train without dropout.
    """

    def cpu(self) -> Self:
        """Restore the modes, and move to the CPU, as the trainer does however a run ends."""
        module: Any = self
        trainer = module._trainer
        if trainer is not None and trainer.interrupted and trainer.evaluating:
            modes = getattr(trainer._evaluation_loop, "_module_mode", None)  # None in other versions of Lightning
            if modes is not None:
                modes.restore(self)
                modes.mode.clear()  # a later call is not by the trainer
        moved: Any = super()
        moved.cpu()
        return self
