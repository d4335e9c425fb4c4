"""What a run was: its configuration and command line, on standard output, in the run directory and in the loggers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import TensorBoardLogger

from maze_pl.configuration import RUN_CONFIG


class RunRecord(Callback):
    """Writes `config.yaml` and `command.txt` before the first epoch.

    Args:
        run_dir: The run directory.
        config: The assembled configuration, as YAML.
        command: The command line; a resumed run adds its own to that of the former one.
    """

    def __init__(self, run_dir: str, config: str, command: Sequence[str]) -> None:
        self.run_dir, self.config, self.command = run_dir, config, shlex.join(command)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the files, and print the same."""
        if stage != "fit" or not trainer.is_global_zero:
            return
        folder = Path(self.run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUN_CONFIG).write_text(self.config, encoding="utf-8")
        with (folder / "command.txt").open("a", encoding="utf-8") as file:
            file.write(self.command + "\n")
        sys.stdout.write(f"{self.config}\ncommand: {self.command}\nrun directory: {self.run_dir}\n")
        sys.stdout.flush()
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("configuration", f"```yaml\n{self.config}\n```")
                logger.experiment.add_text("command", f"`{self.command}`")
