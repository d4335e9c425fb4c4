"""Command line for training: LightningCLI with run directories, records and console output."""

import contextlib
import logging
import re
import sys
import threading
import warnings
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, ProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher
from torch.multiprocessing.spawn import ProcessExitedException

from maze_pl import callbacks
from maze_pl.callbacks.console_log import ConsoleLog
from maze_pl.config.assembling import Prepared, names_configuration, options_of, summarize
from maze_pl.config.factories import with_factories
from maze_pl.config.lightning_features import refuse_unsuitable
from maze_pl.config.messages import explain, tell_writer
from maze_pl.config.option_types import refuse_nulls, refuse_nulls_of
from maze_pl.config.search_path import SUFFIXES, ConfigurationError, suggestion
from maze_pl.config.trust import foreign_names
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.modules import AlgorithmModule
from maze_pl.perception.drawing import table
from maze_pl.perception.network_graph import actor_critic_graphs
from maze_pl.runs.checkpoint import best_or_last, checkpoint_path, require_intact
from maze_pl.runs.compatibility import require_compatible
from maze_pl.runs.run_directory import claimed, is_first_rank, last_checkpoint, run_directory
from maze_pl.runs.warm_start import warm_start
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.rank_processes import WatchedLauncher, how_it_ended, naming_lost_ranks
from maze_pl.system.signals import StopSignals

_CLASS_CHANGE = re.compile(
    r"Due to class_path change from '([^']*)' to '([^']*)', discarding init_args: \{(.*)\}", re.DOTALL
)
_DEFAULT_CALLBACKS = {
    "best_checkpoint": callbacks.BestCheckpoint,
    "last_checkpoint": callbacks.LastCheckpoint,
    "early_stopping": callbacks.EarlyStopping,
    "stop_at_return": callbacks.StopAtReturn,
}


def run(arguments: Prepared, command: Sequence[str], signals: StopSignals) -> int:
    """Run a command whose names have been resolved.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.
        command: The command line as the user gave it, to be saved with the run.
        signals: Handler of the signals that stop a command.

    Returns:
        The exit status: 0, or 1 if a required return was not reached.
    """
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_is_no_tip)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it reports ending the other ranks
    with warnings.catch_warnings(), contextlib.ExitStack() as undo, ConsoleLog():
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)")  # Lightning with torch 2.13
        warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`, callbacks")  # they were for training
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")  # no evaluators, as requested
        former, threading.excepthook = threading.excepthook, tell_writer
        try:
            return MazeCLI(arguments, command, signals, undo).status
        except ProcessExitedException as error:  # of a spawned training process
            if error.exit_code in (130, 143) or signals.received:
                return error.exit_code
            how = how_it_ended(error.exit_code)
            raise LostProcessError(f"rank {error.error_index} {how}; all other ranks were stopped") from None
        finally:
            threading.excepthook = former


def _parsing_logger(arguments: Sequence[str]) -> logging.Logger:
    """Make a logger for jsonargparse that reports options lost when the user replaces a class.

    Each replacement is reported once.

    Args:
        arguments: Command and options, without names. Components that files replace are not
            reported: the author of the file meant it.
    """
    said: set[str] = set()
    replaced = "\n".join(map(_value_of, arguments[1:]))

    def tell(record: logging.LogRecord) -> bool:
        change = _CLASS_CHANGE.match(str(record.msg))
        if change is not None and change[2] in replaced and change[0] not in said and is_first_rank():
            said.add(change[0])
            former, present = (path.rpartition(".")[2] for path in (change[1], change[2]))
            sys.stderr.write(f"maze-pl: {present} replaces {former}, whose options are dropped: {change[3]}\n")
        return False  # drop jsonargparse's other messages

    logger = logging.getLogger("maze_pl.parsing")  # by name, as jsonargparse copies its parsers with the logger
    logger.setLevel(logging.DEBUG)
    logger.filters = [tell]
    return logger


def _value_of(argument: str) -> str:
    """Return an option's value or the text of the file that it names; empty for `--config`."""
    name, _, value = argument.partition("=")
    if name in ("--config", "-c"):
        return ""
    return Path(value).read_text(encoding="utf-8") if value.endswith(SUFFIXES) and Path(value).is_file() else value


class MazeCLI(LightningCLI):
    """Builds data, module and trainer from configuration, and runs the command.

    Args:
        arguments: Command and options, without names, and the classes that they may instantiate.
        command: The command line as the user gave it.
        signals: Handler of the signals that stop a command.
        undo: On closing, removes directories that were made and are still empty.

    Attributes:
        status: Exit status of the command.
    """

    def __init__(
        self, arguments: Prepared, command: Sequence[str], signals: StopSignals, undo: contextlib.ExitStack
    ) -> None:
        self.status = 0
        self._trust = arguments.trust
        self._given, self._command = arguments[0], ["maze-pl", *command]
        self._signals, self._undo = signals, undo
        self._run_dir: str | None = None
        trainer = {"max_epochs": -1, "log_every_n_steps": 1, "num_sanity_val_steps": 0}
        trainer |= {"use_distributed_sampler": False, "enable_model_summary": False}
        parser = {
            "prog": "maze-pl",
            "allow_abbrev": False,
            "exit_on_error": False,
            "logger": _parsing_logger(arguments),
        }
        options: dict[str, Any] = {"datamodule_class": pl.LightningDataModule, "subclass_mode_data": True}
        options |= {"save_config_callback": None, "seed_everything_default": 0, "trainer_defaults": trainer}
        options |= {"auto_configure_optimizers": False, "load_from_checkpoint_support": False}
        super().__init__(args=list(arguments), parser_kwargs=parser, **options)

    # ------------------------------------------------------------------------------------------------- parsing

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the given command, with arguments of its Trainer method that are not options.

        Parsers of the other commands are not needed, and would take 0.07 s each.
        """
        loaders = {"train_dataloaders", "val_dataloaders", "dataloaders"}
        return {self._given: loaders | {"model", "datamodule", "weights_only"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of a run besides model, data and trainer."""
        parser.add_argument("--experiment", type=str | None, default=None, help="Folder under outputs/ for this run.")
        parser.add_argument("--run_dir", type=str | None, default=None, help="The run directory.")
        parser.add_argument("--resume", type=str | None, default=None, help="Run directory to continue (fit).")
        parser.add_argument("--warm_start", type=str | None, default=None, help="Run directory to start from (fit).")
        parser.add_argument("--run", type=str | None, default=None, help="Run directory of the agent to evaluate.")
        trusted = "Allow a run directory or checkpoint to name any class, and thereby to execute any code."
        parser.add_argument("--trust", type=bool | None, nargs="?", const=True, default=None, help=trusted)
        parser.add_argument("--wandb", type=bool, nargs="?", const=True, default=False, help="Log to Weights & Biases.")
        shown = "Print the networks as tables of their blocks, and exit."
        parser.add_argument("--print_model", type=bool | None, nargs="?", const=True, default=None, help=shown)
        for name, callback in _DEFAULT_CALLBACKS.items():
            parser.add_class_arguments(callback, name)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments of the constructor, not those of the process."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            known = {key for one in self._subcommand_parsers.values() for key in one.get_defaults().keys()}  # noqa: SIM118
            raise ConfigurationError(explain(str(error), known)) from error

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the current configuration takes precedence over the checkpoint's."""

    # ------------------------------------------------------------------------------------------- instantiation

    @property
    def _options(self) -> Namespace:
        return self.config[self.subcommand]  # type: ignore[no-any-return]

    def before_instantiate_classes(self) -> None:
        """Determine the run directory and all else that depends on several options."""
        options = self._options
        shown = options.clone()  # the assembled configuration as requested
        for name in ("config", "resume", "run_dir", "run", "warm_start", "ckpt_path", "print_model", "trust"):
            shown[name] = None  # only concerns this call
        plain = _with_plain_values(shown)
        self._config_text = str(self._parser(self.subcommand).dump(plain, skip_unset=False, skip_validation=True))
        trainer = options.trainer
        if trainer is None:
            raise ConfigurationError("trainer: null is not allowed: omit it, or give options of the trainer")
        for name in ("check_val_every_n_epoch", "val_check_interval"):  # Lightning accepts them, and fails later
            if isinstance(trainer[name], int | float) and trainer[name] <= 0:
                raise ConfigurationError(f"trainer.{name}={trainer[name]} must be greater than 0")
        trainer.max_epochs = -1 if trainer.max_epochs == 0 else trainer.max_epochs  # 0 means no limit
        data: Any = options.data.get("init_args") or {}
        if "dataset" in data and (data.get("env") is None or data.get("evaluators") == {}):  # nothing is played
            # Not in the saved text, as a run that starts from this one may play episodes.
            for callback in (options.best_checkpoint, options.early_stopping):
                if callback.monitor == "eval/return":
                    callback.monitor, callback.mode = "eval/loss", "min"
        if self.subcommand != "fit" and options.run is not None and options.ckpt_path is None:
            options.ckpt_path = str(best_or_last(options.run))
        if self.subcommand != "fit" or options.print_model:
            return
        if options.resume is not None and options.ckpt_path is None:
            options.ckpt_path = last_checkpoint(options.resume, options.last_checkpoint.dirpath)
        self._run_dir = run_directory(options.resume, options.run_dir, options.experiment, self._undo)
        if trainer.default_root_dir is None:
            trainer.default_root_dir = self._run_dir

    def instantiate_classes(self) -> None:
        """Make data, module and trainer.

        Raises:
            ConfigurationError: A class is not trusted, or an option that needs a value is null.
        """
        options = self._options
        self._trust.require_classes(self.config, str(options.resume or options.warm_start or options.run))
        refuse_nulls({name: options.get(name) for name in ("data", "model")})
        for name, callback in _DEFAULT_CALLBACKS.items():
            refuse_nulls_of(callback, options[name], name)
        refuse_nulls_of(pl.Trainer.__init__, options.trainer, "trainer")
        refuse_nulls(options.trainer, "trainer")
        self.config_init = self.parser.instantiate(with_factories(self.config))
        self.datamodule, self.model = (self._get(self.config_init, name) for name in ("data", "model"))
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Make the trainer, with default callbacks and loggers where the configuration has none."""
        config: dict[str, Any] = {**vars(self._get(self.config_init, "trainer")), **kwargs}
        refuse_unsuitable(config)
        given = _as_list(config["callbacks"])
        if config["enable_progress_bar"] is None:
            has_bar = any(isinstance(callback, ProgressBar) for callback in given)
            config["enable_progress_bar"] = has_bar or sys.stdout.isatty()
        bars = [callbacks.RolloutProgressBar()] if config["enable_progress_bar"] else []
        needs_trust = self._run_dir is not None and bool(self._foreign_names())
        kept = self._kept(self._run_dir, needs_trust) if self._run_dir is not None else []
        stop = callbacks.StopOnSignal(self._signals, self._run_dir, needs_trust)
        added = [callbacks.EpochTable(), *bars, *kept, stop]
        replacing = [callback for callback in given if type(callback) is not ModelCheckpoint]  # it has its own files
        kinds = tuple(ProgressBar if isinstance(one, ProgressBar) else type(one) for one in replacing)
        config["callbacks"] = [*given, *(callback for callback in added if not isinstance(callback, kinds))]
        config["logger"] = self._loggers(config["logger"])
        if config["enable_checkpointing"] is False and not any(isinstance(one, ModelCheckpoint) for one in given):
            kinds = (callbacks.BestCheckpoint, callbacks.LastCheckpoint)
            config["callbacks"] = [one for one in config["callbacks"] if not isinstance(one, kinds)]
            config["enable_checkpointing"] = None  # to Lightning, StopOnSignal writes checkpoints
        trainer = pl.Trainer(**config)
        strategy: Any = trainer.strategy
        if isinstance(strategy.launcher, _SubprocessScriptLauncher):
            of_ranks = (strategy.cluster_environment, strategy.num_processes, strategy.num_nodes)
            strategy._launcher = WatchedLauncher(self._signals, *of_ranks)
        if config["strategy"] == "auto" and isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy._ddp_kwargs["find_unused_parameters"] = True
        return trainer

    def _kept(self, run_dir: str, needs_trust: bool) -> list[Callback]:
        defaults = [self._get(self.config_init, name) for name in _DEFAULT_CALLBACKS]
        summary = str(summarize(self._command[1:]))
        record = callbacks.RunRecord(run_dir, self._config_text, self._command, summary)
        ending = [callbacks.FinalEvaluation(), callbacks.RunSummary(run_dir, needs_trust)]
        return [record, *defaults, callbacks.EvaluationCheck(), *ending, callbacks.NetworkPictures(run_dir)]

    def _foreign_names(self) -> list[str]:
        """Return the names in the configuration for which later commands need `--trust`."""
        return foreign_names(yaml.safe_load(self._config_text))

    def _loggers(self, given: Any) -> list[Logger] | bool:
        if given is False or self._run_dir is None:
            return False
        loggers = [callbacks.TensorBoardLog(self._run_dir)] if given is None or given is True else _as_list(given)
        loggers += [callbacks.WandbLog(self._run_dir)] if self._options.wandb else []
        has_metrics = any(isinstance(logger, callbacks.MetricsFile) for logger in loggers)
        return loggers if has_metrics else [*loggers, callbacks.MetricsFile(self._run_dir)]

    # ------------------------------------------------------------------------------------------------- running

    def _run_subcommand(self, subcommand: str) -> None:
        if self._options.print_model:
            if not isinstance(self.model, AlgorithmModule):
                raise ConfigurationError(f"--print_model shows policies and critics; {type(self.model)} has none")
            sys.stdout.write(f"{table(actor_critic_graphs(self.model.networks))}\n")
            return
        path, data = self._options.ckpt_path, self.datamodule
        if path is not None and isinstance(self.model, AlgorithmModule) and isinstance(data, EnvironmentDataModule):
            names = None if self._options.trust else self._foreign_names()
            require_compatible(path, self.model, data, names)
        elif path is not None and Path(path).is_file():
            require_intact(Path(path))
        is_claimed = self.trainer.is_global_zero and self._run_dir is not None
        claim = claimed(Path(str(self._run_dir))) if is_claimed else contextlib.nullcontext()
        with claim, naming_lost_ranks(self.trainer.strategy.launcher):
            super()._run_subcommand(subcommand)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    def before_fit(self) -> None:
        """Refuse incompatible parts before anything is written; then apply a warm start."""
        options = self._options
        self._signals.deferred = True
        self._signals.is_passed_on = isinstance(self.trainer.strategy.launcher, _MultiProcessingLauncher)
        if isinstance(self.trainer.strategy.launcher, _SubprocessScriptLauncher):
            self._signals.hold()
        if isinstance(self.model, AlgorithmModule):
            self.model.check_data_module(self.datamodule)
        self._check_monitors()
        if options.warm_start is not None and options.ckpt_path is None:
            warm_start(options.warm_start, self.model, self.datamodule)
            if self.trainer.is_global_zero:
                sys.stderr.write(f"maze-pl: {self._taken_over(options.warm_start)}\n")

    def _taken_over(self, run: str) -> str:
        """Describe what this run takes from the run that it starts from."""
        taken = f"weights and wrapper statistics are those of {checkpoint_path(run)}"
        if names_configuration(self._command):
            return f"{taken}; the configuration is that of --config"
        others = [option for option in options_of(self._command) if option not in ("--warm-start", "--warm_start")]
        except_for = f", except for {', '.join(others)}" if others else ""
        return f"{taken}; so is the configuration{except_for}: use --config for another one"

    def _check_monitors(self) -> None:
        """Refuse to monitor evaluators that do not exist."""
        names = ["train", *getattr(self.datamodule, "evaluators", {})]
        names += ["eval"] * bool(getattr(self.datamodule, "validation_percentage", 0))  # held-out episodes
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            follows = isinstance(callback, callbacks.EarlyStopping) and callback.follows_best
            monitor = "" if follows else getattr(callback, "monitor", None) or ""
            name, slash, _ = monitor.partition("/")
            if len(names) > 1 and slash and name not in names and not name.startswith(tuple(f"{n}_" for n in names)):
                known = f"{names[1:]} in data.evaluators{suggestion(name, names)}"
                raise ConfigurationError(f"{type(callback).__name__}(monitor={monitor!r}) needs {name!r}, not {known}")

    def after_fit(self) -> None:
        """Set the exit status to 1 if the required return was not reached."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, callbacks.StopAtReturn):
                callback.take(self.trainer)
                self.status = int(callback.missed)
                if callback.missed and self.trainer.is_global_zero:
                    reached = f"{callback.monitor} reached {callback.best:.1f}, not {callback.threshold}"
                    sys.stderr.write(f"maze-pl: {reached}\n")


def _with_plain_values(node: Any) -> Any:
    """Replace enumerations and devices, used by Lightning's callbacks, by plain values."""
    if isinstance(node, Enum):
        return node.value
    if isinstance(node, torch.device):
        return str(node)
    if isinstance(node, list | tuple):
        return [_with_plain_values(item) for item in node]
    if isinstance(node, dict):
        return {key: _with_plain_values(item) for key, item in node.items()}
    if isinstance(node, Namespace):
        copy = node.clone()
        for key, value in list(vars(copy).items()):
            copy[key] = _with_plain_values(value)
        return copy
    return node


def _as_list(given: Any) -> list[Any]:
    """Return a list of callbacks or loggers, from None, one or several."""
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def _is_no_tip(record: logging.LogRecord) -> bool:
    """Filter out Lightning's tips to install other products."""
    return "Tip:" not in record.getMessage() and not record.getMessage().startswith("TPU available")
