"""What a run says and keeps of itself: configuration, networks, how far an epoch is, its table, and run.log of it all.

Everything that this process writes to standard output and error while it trains is copied, whoever writes it: tables,
Lightning's messages, warnings, prints of an environment. What only a terminal can show is left out: progress bars,
which are drawn over themselves, and the codes of colours.
"""

import contextlib
import logging
import re
import shlex
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO
from urllib.parse import quote

import pytorch_lightning as pl
import yaml
from pytorch_lightning.callbacks import Callback, TQDMProgressBar
from tqdm import tqdm

from maze_pl.callbacks.loggers import dashboards, log_epoch
from maze_pl.configuration import RUN_CONFIG
from maze_pl.core.output_folder import write_file
from maze_pl.envs.trajectory_record import figure_to_array
from maze_pl.errors import message_of
from maze_pl.events.display import render, require_matplotlib
from maze_pl.loading import CHECKPOINT_KEY
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.perception import drawing

_ESCAPE_CODE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_REDRAW = ("\r", "\x1b[A")
_LIBRARIES = ("pytorch_lightning", "lightning_fabric")  # their messages go where standard error was on import


class EpochTable(Callback):
    """Shows the statistics of each epoch: as a table, and what is no number in the dashboards."""

    _began, _evaluated = 0.0, False

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the time."""
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show those of training, in one table with those of the evaluation if there was one."""
        seconds = time.perf_counter() - self._began
        epoch = trainer.current_epoch + 1
        title = f"epoch {epoch} | {env_steps(pl_module):,} env steps | {seconds:.1f} s"
        shown = {name: table for name, table in _statistics(pl_module).items() if self._evaluated or name == "train"}
        self._evaluated = False
        say(trainer, render(title, epoch, shown))
        _log(trainer, pl_module, of_training=True)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show those of an evaluation; its table here only outside of training."""
        self._evaluated = not trainer.sanity_checking
        if self._evaluated:
            _log(trainer, pl_module, of_training=False)
        if trainer.state.fn == "validate":
            self.on_test_end(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print the table of a test, which is an evaluation too."""
        title = f"evaluation | {env_steps(pl_module):,} env steps of training"
        say(trainer, render(title, 1, _statistics(pl_module)))


class RolloutProgressBar(TQDMProgressBar):
    """Shows env steps per second and the return of the last evaluation behind Lightning's bar."""

    _began_at, _began_with = 0.0, 0

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        """Count from here: the time that evaluation takes is not that of environment steps."""
        super().on_train_epoch_start(trainer, *args)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1}")  # Lightning counts from 0
        self._began_at, self._began_with = time.perf_counter(), env_steps(trainer.lightning_module)

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        """What stands behind the bar."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        elapsed, steps = time.perf_counter() - self._began_at, env_steps(pl_module)
        metrics["env steps"] = f"{steps:,}"
        metrics["env steps/s"] = f"{(steps - self._began_with) / max(elapsed, 1e-9):,.0f}"
        if "eval/return" in trainer.callback_metrics:
            metrics["return"] = f"{float(trainer.callback_metrics['eval/return']):.1f}"
        return metrics


def say(trainer: pl.Trainer, text: str) -> None:
    """Show a text beside a progress bar, should there be one.

    Args:
        trainer: Only its first rank speaks, and only if it shows tables.
        text: One or several lines.
    """
    if trainer.is_global_zero and any(isinstance(one, EpochTable) for one in trainer.callbacks):  # type: ignore[attr-defined]
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()


def _statistics(module: pl.LightningModule) -> Mapping[str, Mapping[str, Any]]:
    return module.epoch_statistics if isinstance(module, AlgorithmModule) else {}


def _log(trainer: pl.Trainer, module: Any, of_training: bool) -> None:
    """Log histograms and plots where a logger takes them, and have all that was logged written to disk."""
    for source, values in _statistics(module).items():
        if (source == "train") == of_training:
            log_epoch(dashboards(trainer), source, values, module.epoch_plots[source], module.env_steps)


def env_steps(module: pl.LightningModule) -> int:
    """Env steps so far; 0 of a module that does not count them."""
    return module.env_steps if isinstance(module, AlgorithmModule) else 0


class RunRecord(Callback):
    """Keeps what a run is: `run.log`, `config.yaml` and `command.txt`; each checkpoint has what `maze_pl.load` needs.

    Configuration and command are shown, too, and given to the dashboards. Before there is a file for it, the console is
    copied by whoever entered a `ConsoleLog`; if nobody has, as in a process that was spawned, it is from then on.

    Args:
        run_dir: The run directory.
        config: The assembled configuration, as YAML.
        command: The command line; a resumed run adds its own to that of the former one.
    """

    def __init__(self, run_dir: str, config: str, command: Sequence[str]) -> None:
        self.run_dir, self.config, self.command = run_dir, config, shlex.join(command)
        self._parsed, self._own = yaml.safe_load(config), contextlib.ExitStack()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write the files, and show them."""
        if stage != "fit" or not trainer.is_global_zero:
            return
        folder = Path(self.run_dir)
        stream: Any = sys.stdout
        write_file(folder / RUN_CONFIG, self.config.encode())
        log = stream.log if isinstance(stream, _Copied) else self._own.enter_context(ConsoleLog())
        log.open(folder / "run.log")
        with (folder / "command.txt").open("a", encoding="utf-8") as file:
            file.write(self.command + "\n")
        say(trainer, f"command: {self.command}\nrun directory: {self.run_dir}\n\n{self.config}")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin, or go on, in the dashboards; a checkpoint has been restored by now."""
        for dashboard in dashboards(trainer):
            dashboard.begin(self.config, self.command, env_steps(pl_module))

    def on_save_checkpoint(self, trainer: pl.Trainer, _: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the configuration of module and data, and the spec."""
        spec = trainer.datamodule.spec.to_dict()  # type: ignore[attr-defined]
        checkpoint[CHECKPOINT_KEY] = {"model": self._parsed["model"], "data": self._parsed["data"], "spec": spec}

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Stop copying, if nobody else does."""
        self._own.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Stop copying, with what went wrong."""
        self._own.__exit__(type(exception), exception, exception.__traceback__)


class NetworkPictures(Callback):
    """Draws policy and critic after the first epoch, as `networks/<name>.svg` and `.png`, and logs the pictures.

    Without matplotlib it says so, and draws nothing.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: str) -> None:
        self._folder: Path | None = Path(run_dir, "networks")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw, when the first epoch ends: importing matplotlib would delay the first step."""
        folder, self._folder = self._folder, None
        if folder is None or not trainer.is_global_zero or not isinstance(pl_module, AlgorithmModule):
            return
        try:
            require_matplotlib("drawing the networks")
            for name, graph in drawing.actor_critic_graphs(pl_module.networks).items():
                figure = drawing.draw(graph, name)
                for form in ("svg", "png"):
                    write_file(folder / f"{quote(name, safe='')}.{form}", drawing.render(figure, form))
                for dashboard in dashboards(trainer):
                    dashboard.log_images({f"networks/{name}": figure_to_array(figure)}, pl_module.env_steps)
        except Exception as error:  # of any kind: a network may be the user's, and learns whether it is drawn or not
            say(trainer, f"no pictures of the networks: {error}")


class ConsoleLog:
    """Copies the console, from entering to leaving a `with` block; kept in memory until there is a file.

    What leaves the block as an exception is written, too, since it is shown only later.
    """

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._early: deque[str] = deque(maxlen=1000)
        self._after_redraw = False
        self._former = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._former.enter_context(contextlib.redirect_stdout(_Copied(sys.stdout, self)))
        self._former.enter_context(contextlib.redirect_stderr(_Copied(sys.stderr, self)))
        for handler in (handler for name in _LIBRARIES for handler in logging.getLogger(name).handlers):
            if isinstance(handler, logging.StreamHandler):
                self._former.callback(handler.setStream, handler.setStream(sys.stderr) or sys.stderr)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None and not isinstance(error, SystemExit):
            message = message_of(error)
            text = "".join(traceback.format_exception(error))
            self.write(text if message is None else f"maze-pl: error: {message}\n")
        self._former.close()
        self._close()

    def open(self, path: str | Path) -> None:
        """Write to this file from now on, behind what it holds, and what was said so far."""
        if self._file is None:
            self._file = Path(path).open("a", buffering=1, encoding="utf-8", errors="replace")  # noqa: SIM115
            self.write("".join(self._early))

    def write(self, text: str) -> None:
        """Add a text to the file alone."""
        if text.startswith(_REDRAW) or (self._after_redraw and not text.strip()):
            self._after_redraw = True  # a line feed behind a redrawn line belongs to it
            return
        self._after_redraw = False
        text = _ESCAPE_CODE.sub("", text)
        if self._file is None:
            self._early.append(text)
            return
        try:
            self._file.write(text)
        except OSError as error:  # the disk is full: what is going on matters more than its log
            self._close()
            sys.stderr.write(f"run.log ends here: {error}\n")

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # of a line that has not ended
                file.close()


class _Copied:
    """A console stream that is also written to a log."""

    def __init__(self, stream: TextIO, log: ConsoleLog) -> None:
        self.stream, self.log = stream, log

    def write(self, text: str) -> int:
        self.log.write(text)
        return self.stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
