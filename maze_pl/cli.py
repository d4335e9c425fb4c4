"""The command line: LightningCLI with run directories, and with what a reinforcement-learning run keeps and shows."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import Namespace
from lightning_fabric.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.callbacks import Callback, ProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger, TensorBoardLogger

from maze_pl.callbacks import (
    BestCheckpoint,
    CheckpointConfiguration,
    EarlyStopping,
    EpochTable,
    FinalEvaluation,
    LastCheckpoint,
    MetricsFile,
    RolloutProgressBar,
    RunRecord,
    StopAtReturn,
)
from maze_pl.configuration import ConfigurationError, checkpoint_path
from maze_pl.datamodules import RolloutDataModule
from maze_pl.instantiation import with_factories
from maze_pl.loading import read_checkpoint, warm_start
from maze_pl.modules import PPO
from maze_pl.modules.options import count_minibatches

RUN_DIR_VARIABLE = "MAZE_PL_RUN_DIR"
_DEFAULT_CALLBACKS = {
    "best_checkpoint": BestCheckpoint,
    "last_checkpoint": LastCheckpoint,
    "early_stopping": EarlyStopping,
    "stop_at_return": StopAtReturn,
}
_KNOWN_WARNINGS = (
    r".*isinstance\(treespec, LeafSpec\)",  # Lightning with torch 2.13
    "Be aware that when using `ckpt_path`, callbacks",  # those of training, when an agent is evaluated
    "Total length of `list` across ranks is zero",  # no evaluators, as asked for
)
_LIBRARIES = ("maze_pl", "pytorch_lightning", "lightning_fabric", "jsonargparse", "gymnasium", "torch")


def run(arguments: Sequence[str], command: Sequence[str]) -> int:
    """Run a command whose names have been resolved.

    Args:
        arguments: What `configuration.prepare` made of the command line.
        command: The command line as the user gave it, to be kept with the run.

    Returns:
        The exit status: 0, or 1 if a wanted return was not reached.
    """
    with warnings.catch_warnings(), _without_advertisements():
        for message in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        return MazeCLI(list(arguments), command).status


class MazeArgumentParser(LightningArgumentParser):
    """Says what is wrong in one message, without the list of all options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise what the user has to be told, or what jsonargparse itself wants to catch."""
        if not self.exit_on_error:
            super().error(message, ex)
        raise ConfigurationError(_without_alternatives(message)) from ex


def _without_alternatives(message: str) -> str:
    """jsonargparse's message without the alternatives of a type that nobody meant, such as None."""
    lines = message.split("  Given value type: ")[0].splitlines()
    noise = ("Does not validate against", "Subtypes:", "Errors:", "- Expected a <class 'NoneType'>")
    return "\n".join(line for line in lines if line.strip() and not line.strip().startswith(noise))


class MazeCLI(LightningCLI):
    """Builds data and module from configuration, with everything that a run keeps and shows, and runs the command.

    Args:
        arguments: Command and options, without names.
        command: The command line as the user gave it.

    Attributes:
        status: Exit status of the command.
    """

    def __init__(self, arguments: list[str], command: Sequence[str]) -> None:
        self.status = 0
        self._command = ["maze-pl", *command]
        self._config_text = ""
        self._run_dir: Path | None = None
        super().__init__(
            datamodule_class=pl.LightningDataModule,
            subclass_mode_data=True,
            save_config_callback=None,
            trainer_defaults={
                "max_epochs": -1,
                "log_every_n_steps": 1,
                "num_sanity_val_steps": 0,
                "use_distributed_sampler": False,
                "enable_model_summary": False,
            },
            seed_everything_default=0,
            parser_kwargs={"prog": "maze-pl"},
            parser_class=MazeArgumentParser,
            args=arguments,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    # ------------------------------------------------------------------------------------------------- parsing

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The commands, with the arguments of the trainer's method that configuration does not hold."""
        skipped = {"model", "dataloaders", "datamodule", "weights_only"}
        return {"fit": {*skipped, "train_dataloaders", "val_dataloaders"}, "validate": skipped, "test": skipped}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what a run has beside model, data and trainer."""
        parser.add_argument("--experiment", type=str | None, default=None, help="Folder of the run under outputs/.")
        parser.add_argument("--run_dir", type=str | None, default=None, help="The run directory itself.")
        parser.add_argument("--resume", type=str | None, default=None, help="Run directory in which to go on (fit).")
        parser.add_argument(
            "--warm_start",
            type=str | None,
            default=None,
            help="Run whose weights and statistics to begin with.",
        )
        parser.add_argument("--run", type=str | None, default=None, help="Run directory of the agent to evaluate.")
        for name, callback in _DEFAULT_CALLBACKS.items():
            parser.add_class_arguments(callback, name)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what was given to the constructor, whatever the process was called with."""
        self.config = parser.parse_args(args)

    def _parse_ckpt_path(self) -> None:
        """Leave the configuration alone: what is asked for now wins over what a checkpoint was made with."""

    # ------------------------------------------------------------------------------------------- instantiation

    @property
    def _options(self) -> Namespace:
        options: Namespace = self.config[self.subcommand]
        return options

    def before_instantiate_classes(self) -> None:
        """Decide on the run directory and what else depends on several options."""
        options = self._options
        self._config_text = self._dump(options)
        trainer = options.trainer
        if trainer.max_epochs == 0:  # without limit
            trainer.max_epochs = -1
        if trainer.strategy == "auto" and _n_processes(trainer) > 1:
            trainer.strategy = "ddp_find_unused_parameters_true"
        if trainer.logger is None:
            trainer.logger = True
        if self.subcommand != "fit":
            if options.run is not None and options.ckpt_path is None:
                options.ckpt_path = str(checkpoint_path(options.run))
            return
        if options.resume is not None and options.ckpt_path is None:
            options.ckpt_path = str(checkpoint_path(options.resume, ("last",)))
        self._run_dir = _run_directory(options)
        if trainer.default_root_dir is None:
            trainer.default_root_dir = str(self._run_dir)

    def instantiate_classes(self) -> None:
        """Make data, module and trainer; what the user got wrong ends the command with one message."""
        with _users_errors(_LIBRARIES):
            self.config_init = self.parser.instantiate(with_factories(self.config))
            self.datamodule = self.config_init[self.subcommand]["data"]
            self.model = self.config_init[self.subcommand]["model"]
            self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Make the trainer, with default callbacks and loggers where the configuration has none of their kind."""
        config: dict[str, Any] = {**vars(self.config_init[self.subcommand]["trainer"]), **kwargs}
        given = config["callbacks"] or []
        given = list(given) if isinstance(given, list | tuple) else [given]
        if config["enable_progress_bar"] is None:
            config["enable_progress_bar"] = sys.stdout.isatty()
        added = [*self._shown(config["enable_progress_bar"]), *(self._kept() if self.subcommand == "fit" else [])]
        kinds = tuple(type(callback) for callback in given)
        config["callbacks"] = [*given, *(callback for callback in added if not isinstance(callback, kinds))]
        if any(isinstance(callback, ProgressBar) for callback in given):
            config["callbacks"] = [one for one in config["callbacks"] if not isinstance(one, RolloutProgressBar)]
        config["logger"] = self._loggers(config["logger"])
        return pl.Trainer(**config)

    def _shown(self, progress_bar: bool) -> list[Callback]:
        table = EpochTable(str(self._run_dir / "run.log") if self._run_dir is not None else None)
        return [table, RolloutProgressBar()] if progress_bar else [table]

    def _kept(self) -> list[Callback]:
        text = self._config_text
        config = yaml.safe_load(text)
        defaults = [self.config_init[self.subcommand][name] for name in _DEFAULT_CALLBACKS]
        record = RunRecord(str(self._run_dir), text, self._command)
        return [record, CheckpointConfiguration(config), *defaults, FinalEvaluation()]

    def _dump(self, options: Namespace) -> str:
        """The assembled configuration as it was asked for, without what concerns only this call."""
        options = options.clone()
        for name in ("config", "resume", "run_dir", "run", "warm_start", "ckpt_path"):
            options[name] = None
        parser = self._subcommand_parsers[str(self.subcommand)]
        return str(parser.dump(options, skip_unset=False, skip_validation=True))

    def _loggers(self, given: Any) -> list[Logger] | bool:
        if given is False or self._run_dir is None:
            return False
        metrics_file = MetricsFile(str(self._run_dir))
        if given is True:
            return [
                TensorBoardLogger(str(self._run_dir), name="", version="tensorboard", default_hp_metric=False),
                metrics_file,
            ]
        loggers = list(given) if isinstance(given, list | tuple) else [given]
        return loggers if any(isinstance(logger, MetricsFile) for logger in loggers) else [*loggers, metrics_file]

    # ------------------------------------------------------------------------------------------------- running

    def _run_subcommand(self, subcommand: str) -> None:
        with _users_errors(("maze_pl",)):
            super()._run_subcommand(subcommand)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    def before_fit(self) -> None:
        """Refuse what does not fit together before anything is written; then take over what a warm start asks for."""
        options = self._options
        if isinstance(self.model, PPO) and isinstance(self.datamodule, RolloutDataModule):
            count_minibatches(self.model.batch_size, self.datamodule.n_envs, self.datamodule.n_rollout_steps)
        if options.ckpt_path is not None and Path(options.ckpt_path).is_file():
            name = type(self.datamodule).__qualname__
            if isinstance(self.datamodule, RolloutDataModule) and name not in read_checkpoint(options.ckpt_path):
                raise ConfigurationError(
                    f"the checkpoint {options.ckpt_path} holds no state of a {name}: resume with the class of data "
                    "module that wrote it, or take its weights into a new run by --warm-start"
                )
        if options.warm_start is not None and options.ckpt_path is None:
            warm_start(options.warm_start, self.model, self.datamodule)

    def after_fit(self) -> None:
        """Fail if a return that had to be reached was not."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if not isinstance(callback, StopAtReturn):
                continue
            callback.take(self.trainer)
            if callback.missed:
                self.status = 1
                if self.trainer.is_global_zero:
                    message = f"{callback.monitor} reached {callback.best:.1f}, not {callback.threshold}"
                    sys.stderr.write(f"maze-pl: {message}\n")


def _n_processes(trainer: Namespace) -> int:
    """Processes that the trainer's options ask for, over all nodes."""
    devices = trainer.devices
    if isinstance(devices, list | tuple):
        count = len(devices)
    elif devices in ("auto", -1, "-1"):
        gpu = trainer.accelerator in ("auto", "gpu", "cuda")
        count = torch.cuda.device_count() if gpu else 1
    elif isinstance(devices, str) and "," in devices:
        count = len([device for device in devices.split(",") if device.strip()])
    else:
        count = int(devices)
    return max(count, 1) * int(trainer.num_nodes)


def _rank() -> int:
    return int(getattr(rank_zero_only, "rank", 0))


def _run_directory(options: Namespace) -> Path:
    """The directory of this run, the same in all processes of this machine.

    Raises:
        ConfigurationError: A new run would write into a directory that already holds something.
    """
    if options.resume is not None:
        return Path(options.resume)
    if _rank() != 0 and RUN_DIR_VARIABLE in os.environ:
        return Path(os.environ[RUN_DIR_VARIABLE])
    experiment = options.experiment or "run"
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    path = Path(options.run_dir or Path("outputs", experiment, now))
    if _rank() == 0:
        if path.is_dir() and any(path.iterdir()):
            raise ConfigurationError(
                f"the run directory {path} already holds something: name another one, or go on with the run in it by "
                f"`maze-pl fit --resume {path}`"
            )
        os.environ[RUN_DIR_VARIABLE] = str(path)
    return path


@contextlib.contextmanager
def _without_advertisements() -> Iterator[None]:
    """Keep Lightning's tips to install other products off the console."""
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    logger.addFilter(_is_no_tip)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_tip)


def _is_no_tip(record: logging.LogRecord) -> bool:
    return "Tip:" not in record.getMessage()


@contextlib.contextmanager
def _users_errors(origins: tuple[str, ...]) -> Iterator[None]:
    """Turn refusals of these packages into one message; errors of other code, such as the user's, keep their trace."""
    try:
        yield
    except ConfigurationError:
        raise
    except (ValueError, TypeError, ImportError, MisconfigurationException, gymnasium.error.Error) as error:
        frames = list(traceback.walk_tb(error.__traceback__))
        origin = str(frames[-1][0].f_globals.get("__name__", ""))
        if origin.partition(".")[0] not in origins:
            raise
        raise ConfigurationError(str(error)) from error
