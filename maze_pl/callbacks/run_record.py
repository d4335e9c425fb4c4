"""Files that describe a run: `run.log`, `config.yaml`, `command.txt` and `provenance.json`."""

import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import Callback

from maze_pl.callbacks.console_log import ConsoleLog, CopiedStream
from maze_pl.callbacks.epoch_table import env_steps, say, step_unit
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.trust import SOURCE_FOLDERS, source_folders
from maze_pl.core.checkpoint_content import RunConfiguration, add_to_checkpoint
from maze_pl.core.provenance import Provenance
from maze_pl.loggers.dashboard import dashboards
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.runs.provenance import append_provenance, collect_provenance
from maze_pl.system.atomic_files import write_file


class RunRecord(Callback):
    """Writes `run.log`, `config.yaml`, `command.txt`, `provenance.json`, and entries of checkpoints.

    The console shows the command and its changes; the whole configuration goes to the files and the
    dashboards. `config.yaml` is the configuration of the checkpoints next to it: a run that
    continues from a checkpoint replaces it when it writes its first checkpoint.
    Each checkpoint holds the configuration, for `maze_pl.load`, and the provenance of this command.
    `source_folders.txt` lists the folders of imported classes that are not in installed packages.
    An active `ConsoleLog` has copied the console from the start; without one, as in a spawned
    process, copying begins in `setup`.

    Args:
        run_dir: The run directory.
        config: The assembled configuration, as YAML.
        command: The command line; a resumed run appends its command to the previous one.
        summary: The configuration in a few lines, for the console.
        provenance: Provenance of the command; None collects it.
    """

    def __init__(
        self,
        run_dir: str,
        config: str,
        command: Sequence[str],
        summary: str = "",
        provenance: Provenance | None = None,
    ) -> None:
        self.run_dir = run_dir
        self._folder = Path(run_dir).absolute()
        self.config = config
        self.command = shlex.join(command)
        self.summary = summary
        self._parsed = yaml.safe_load(config)
        self._provenance = provenance
        self._console = contextlib.ExitStack()
        self._is_kept = False

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the files, and print the command and the summary."""
        if stage != "fit" or not trainer.is_global_zero:
            return
        folder = self._folder
        stream: Any = sys.stdout
        if not (folder / RUN_CONFIG).exists():
            self._keep_configuration(trainer)
        log = stream.log if isinstance(stream, CopiedStream) else None
        if log is None:
            log = self._console.enter_context(ConsoleLog())
        log.open(folder / "run.log")
        with (folder / "command.txt").open("a", encoding="utf-8") as file:
            file.write(self.command + "\n")
        append_provenance(folder, self._described(trainer))
        summary = f"{self.summary}\n" if self.summary else ""
        files = f"run directory: {self.run_dir}\n{summary}all options: {Path(self.run_dir, RUN_CONFIG)}\n"
        say(trainer, f"command: {self.command}\n{files}")
        log.write(f"\n{self.config}\n")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin or continue the dashboards; a checkpoint has been restored by now."""
        if trainer.ckpt_path is None:
            self._keep_configuration(trainer)
        for dashboard in dashboards(trainer):
            dashboard.begin(self.config, self.command, env_steps(pl_module))
            if isinstance(pl_module, AlgorithmModule):
                dashboard.describe_statistics(pl_module.described_statistics())

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the configuration of module and data."""
        config: RunConfiguration = {"model": self._parsed["model"], "data": self._parsed["data"]}
        add_to_checkpoint(checkpoint, config=config, provenance=self._described(trainer))
        self._keep_configuration(trainer)

    def _described(self, trainer: pl.Trainer) -> Provenance:
        """Return the provenance of this command, with the devices and the unit of steps that it uses."""
        if self._provenance is None:
            seed = self._parsed.get("seed_everything")
            self._provenance = collect_provenance(self.command, seed, self.config, self.summary)
        device = trainer.strategy.root_device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        machine = {**self._provenance.get("machine", {}), "devices": f"{trainer.world_size} x {name}"}
        return {**self._provenance, "machine": machine, "step_unit": step_unit(trainer.lightning_module)}

    def _keep_configuration(self, trainer: pl.Trainer) -> None:
        """Write the configuration of this run, once."""
        if trainer.is_global_zero and not self._is_kept:
            write_file(self._folder / RUN_CONFIG, self.config.encode())
            if folders := source_folders(self._parsed):
                text = "".join(f"{path}\n" for path in folders)
                write_file(self._folder / SOURCE_FOLDERS, text.encode())
            else:  # a run that failed in this directory may have had some
                (self._folder / SOURCE_FOLDERS).unlink(missing_ok=True)
            self._is_kept = True

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop copying the console, if this callback started it."""
        self._console.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop copying the console, after writing the exception."""
        self._console.__exit__(type(exception), exception, exception.__traceback__)
