"""The command line: LightningCLI with run directories, and with what a reinforcement-learning run keeps and shows."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import Namespace
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.callbacks import Callback, ProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher
from pytorch_lightning.utilities import rank_zero_info
from torch.multiprocessing.spawn import ProcessExitedException

from maze_pl.callbacks import (
    BestCheckpoint,
    CheckpointConfiguration,
    Distributions,
    EarlyStopping,
    EpochTable,
    FinalEvaluation,
    LastCheckpoint,
    MetricsFile,
    ProgressLines,
    RolloutProgressBar,
    RunLog,
    RunRecord,
    RunSummary,
    StopAtReturn,
    StopOnSignal,
    TensorBoardLog,
    WandbLog,
    WandbOptions,
)
from maze_pl.callbacks.run_log import ConsoleLog
from maze_pl.configuration import ConfigurationError, checkpoint_path
from maze_pl.datamodules import RolloutDataModule
from maze_pl.errors import explain, writers_told
from maze_pl.instantiation import with_factories
from maze_pl.loading import check_fit, read_checkpoint, warm_start
from maze_pl.modules import PPO, AlgorithmModule
from maze_pl.modules.options import count_minibatches
from maze_pl.run_directory import claimed
from maze_pl.search_path import suggestion
from maze_pl.signals import StopSignals

RUN_DIR_VARIABLE = "MAZE_PL_RUN_DIR"
_OUTPUTS = "outputs"
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


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run a command whose names have been resolved.

    Args:
        arguments: What `configuration.prepare` made of the command line.
        command: The command line as the user gave it, to be kept with the run.
        signals: Has taken the signals that stop a command.

    Returns:
        The exit status: 0, or 1 if a wanted return was not reached.
    """
    with warnings.catch_warnings(), _without_advertisements(), ConsoleLog(), writers_told():
        for message in _KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        try:
            return MazeCLI(list(arguments), command, signals).status
        except ProcessExitedException as error:  # of a process that was spawned to train
            if error.exit_code in (130, 143) or signals.received:
                return error.exit_code
            raise
        finally:
            _remove_if_empty(Path(os.environ.get(RUN_DIR_VARIABLE, "")))


class MazeArgumentParser(LightningArgumentParser):
    """Says what is wrong in one message, without the list of all options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise what the user has to be told, or what jsonargparse itself wants to catch."""
        if not self.exit_on_error:
            super().error(message, ex)
        raise ParsingError(message) from ex


class _DroppedArguments(logging.Handler):
    """Says once which arguments of a class are dropped because the one that takes its place does not have them."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Pick that message out of all that jsonargparse has to say."""
        text = str(record.msg)
        if text.startswith("Due to class_path change") and text not in self._said and _rank() == 0:
            self._said.add(text)
            sys.stderr.write(f"maze-pl: {text[0].lower()}{text[1:]}\n")


def _parsing_logger() -> logging.Logger:
    logger = logging.getLogger("maze_pl.parsing")  # by name: jsonargparse copies its parsers, and this with them
    logger.setLevel(logging.DEBUG)
    logger.propagate, logger.handlers = False, [_DroppedArguments()]
    return logger


class ParsingError(ConfigurationError):
    """jsonargparse's own words about what it cannot take."""


class MazeCLI(LightningCLI):
    """Builds data and module from configuration, with everything that a run keeps and shows, and runs the command.

    Args:
        arguments: Command and options, without names.
        command: The command line as the user gave it.
        signals: Has taken the signals that stop a command; if None, they are taken while training only.

    Attributes:
        status: Exit status of the command.
    """

    def __init__(self, arguments: list[str], command: Sequence[str], signals: StopSignals | None = None) -> None:
        self.status = 0
        self._signals = signals
        self._given = arguments[0]
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
            parser_kwargs={"prog": "maze-pl", "allow_abbrev": False, "logger": _parsing_logger()},
            parser_class=MazeArgumentParser,
            args=["--wandb=true" if _is_bare(arguments, i, "--wandb") else one for i, one in enumerate(arguments)],
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    # ------------------------------------------------------------------------------------------------- parsing

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The command that was given, with the arguments of the trainer's method that configuration does not hold.

        Parsers of the others would be made for nothing, which takes 0.07 s each.
        """
        skipped = {"model", "dataloaders", "datamodule", "weights_only"}
        loaders = {"train_dataloaders", "val_dataloaders"}
        return {self._given: skipped | loaders if self._given == "fit" else skipped}

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
        parser.add_argument(
            "--wandb",
            type=bool | WandbOptions,
            default=False,
            help="Log to Weights & Biases as well: `--wandb`, or where to, such as `--wandb.project mine`.",
        )
        for name, callback in _DEFAULT_CALLBACKS.items():
            parser.add_class_arguments(callback, name)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what was given to the constructor, whatever the process was called with."""
        try:
            self.config = parser.parse_args(args)
        except ParsingError as error:
            known = {key for one in self._subcommand_parsers.values() for key in one.get_defaults().keys()}  # noqa: SIM118
            raise ConfigurationError(explain(str(error), known)) from error

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
        if trainer is None:
            raise ConfigurationError("trainer: null has no meaning: leave it out, or give options of the trainer")
        _check_trainer(trainer)
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
            options.ckpt_path = _last_checkpoint(options.resume)
        self._run_dir = _run_directory(options)
        if trainer.default_root_dir is None:
            trainer.default_root_dir = str(self._run_dir)

    def instantiate_classes(self) -> None:
        """Make data, module and trainer."""
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
        added.append(StopOnSignal(self._signals, str(self._run_dir) if self._run_dir is not None else None))
        kinds = tuple(type(callback) for callback in given)
        config["callbacks"] = [*given, *(callback for callback in added if not isinstance(callback, kinds))]
        if any(isinstance(callback, ProgressBar) for callback in given):
            config["callbacks"] = [one for one in config["callbacks"] if not isinstance(one, RolloutProgressBar)]
        if self._run_dir is not None:
            config["callbacks"].insert(0, RunLog(str(self._run_dir / "run.log")))
        config["logger"] = self._loggers(config["logger"])
        return pl.Trainer(**config)

    def _shown(self, progress_bar: bool) -> list[Callback]:
        return [EpochTable(), RolloutProgressBar() if progress_bar else ProgressLines()]

    def _kept(self) -> list[Callback]:
        text = self._config_text
        config = yaml.safe_load(text)
        defaults = [self.config_init[self.subcommand][name] for name in _DEFAULT_CALLBACKS]
        usual = self._subcommand_parsers[str(self.subcommand)].get_defaults(skip_validation=True).as_dict()
        record = RunRecord(str(self._run_dir), text, self._command, usual)
        ending = [FinalEvaluation(), RunSummary(str(self._run_dir))]
        return [record, CheckpointConfiguration(config), Distributions(), *defaults, *ending]

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
        run_dir, options = str(self._run_dir), self.config_init[self.subcommand]["wandb"]
        if given is True:
            given = TensorBoardLog(run_dir)
        loggers = list(given) if isinstance(given, list | tuple) else [given]
        if options is not False:
            loggers.append(WandbLog(run_dir, WandbOptions() if options is True else options))
        if not any(isinstance(logger, MetricsFile) for logger in loggers):
            loggers.append(MetricsFile(run_dir))
        return loggers

    # ------------------------------------------------------------------------------------------------- running

    def _run_subcommand(self, subcommand: str) -> None:
        if self._run_dir is None or _rank() != 0:
            super()._run_subcommand(subcommand)
            return
        with claimed(self._run_dir):
            super()._run_subcommand(subcommand)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    def before_fit(self) -> None:
        """Refuse what does not fit together before anything is written; then take over what a warm start asks for."""
        options = self._options
        if self._signals is not None:
            self._signals.deferred = True
            self._signals.is_passed_on = isinstance(self.trainer.strategy.launcher, _MultiProcessingLauncher)
            if isinstance(self.trainer.strategy.launcher, _SubprocessScriptLauncher):
                self._signals.hold()
        if isinstance(self.model, PPO) and isinstance(self.datamodule, RolloutDataModule):
            count_minibatches(self.model.batch_size, self.datamodule.n_envs, self.datamodule.n_rollout_steps)
        self._check_monitors()
        self._check_checkpoint()
        if options.ckpt_path is not None and Path(options.ckpt_path).is_file():
            name = type(self.datamodule).__qualname__
            if isinstance(self.datamodule, RolloutDataModule) and name not in read_checkpoint(options.ckpt_path):
                raise ConfigurationError(
                    f"the checkpoint {options.ckpt_path} holds no state of a {name}: resume with the class of data "
                    "module that wrote it, or take its weights into a new run by --warm-start"
                )
        if options.warm_start is not None and options.ckpt_path is None:
            warm_start(options.warm_start, self.model, self.datamodule)

    def before_validate(self) -> None:
        """Refuse a checkpoint that does not fit."""
        self._check_checkpoint()

    def before_test(self) -> None:
        """As in validation."""
        self._check_checkpoint()

    def _check_checkpoint(self) -> None:
        path, data = self._options.ckpt_path, self.datamodule
        if path is not None and isinstance(self.model, AlgorithmModule) and isinstance(data, RolloutDataModule):
            check_fit(path, self.model, data.spec)

    def _check_monitors(self) -> None:
        """Refuse to wait for results of evaluators that do not exist."""
        names = ["train", *getattr(self.datamodule, "evaluators", {})]
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            monitor = getattr(callback, "monitor", None) or ""
            if len(names) > 1 and "/" in monitor and monitor.partition("/")[0] not in names:
                raise ConfigurationError(
                    f"{type(callback).__name__}(monitor={monitor!r}) needs an evaluator {monitor.partition('/')[0]!r}; "
                    f"there are {names[1:]} in data.evaluators{suggestion(monitor.partition('/')[0], names)}"
                )

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


def _check_trainer(trainer: Namespace) -> None:
    """Refuse values that Lightning takes, and then fails with."""
    for name in ("check_val_every_n_epoch", "val_check_interval"):
        value = trainer[name]
        if isinstance(value, int | float) and value <= 0:
            raise ConfigurationError(f"trainer.{name}={value} must be greater than 0")


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
        try:
            count = int(devices)
        except ValueError as error:
            raise ConfigurationError(
                f"trainer.devices: {devices!r} is neither a number, nor a list of numbers, nor auto"
            ) from error
    return max(count, 1) * int(trainer.num_nodes)


def _is_bare(arguments: Sequence[str], index: int, flag: str) -> bool:
    """Whether the argument is this flag, without a value."""
    return arguments[index] == flag and all(following.startswith("-") for following in arguments[index + 1 : index + 2])


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
    path = Path(options.run_dir or _new_directory(Path(_OUTPUTS, options.experiment or "run")))
    if _rank() == 0:
        if path.is_dir() and any(path.iterdir()):
            raise ConfigurationError(
                f"the run directory {path} already holds something: name another one, or go on with the run in it by "
                f"`maze-pl fit --resume {path}`"
            )
        os.environ[RUN_DIR_VARIABLE] = str(path)
    return path


def _new_directory(experiment: Path) -> Path:
    """A directory named after this second, made at once so that no other run that begins in it takes the same one."""
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    if _rank() != 0:
        return experiment / now  # of a node that does not know the first rank's, and writes nothing
    for name in itertools.chain([now], (f"{now}-{number}" for number in itertools.count(2))):
        try:
            (experiment / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigurationError(f"the run directory {experiment / name} cannot be made: {error}") from error
        break
    return experiment / name


def _remove_if_empty(run_dir: Path) -> None:
    """Remove a directory that `_new_directory` has made, if the run has failed before it wrote anything."""
    if run_dir.parts[:1] == (_OUTPUTS,):
        with contextlib.suppress(OSError):
            for folder in (run_dir, *run_dir.parents[:2]):
                folder.rmdir()


def _last_checkpoint(run_dir: str) -> str | None:
    """The checkpoint from which a run goes on; None if it ended before there was any, so that it starts once more."""
    try:
        return str(checkpoint_path(run_dir, ("last",)))
    except ConfigurationError:
        if any(Path(run_dir).rglob("*.ckpt")):
            raise
        rank_zero_info(f"{run_dir} holds no checkpoint yet: the run starts from the beginning")
        return None


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
    message = record.getMessage()
    return "Tip:" not in message and not message.startswith("TPU available")
