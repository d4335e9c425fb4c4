"""The command line: LightningCLI with run directories, and with what a reinforcement-learning run keeps and shows."""

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.callbacks import Callback, ProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import Logger
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher
from torch.multiprocessing.spawn import ProcessExitedException

from maze_pl import callbacks
from maze_pl.callbacks.console import ConsoleLog
from maze_pl.datamodules import ReplayDataModule, RolloutDataModule, TrajectoryDataModule
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.errors import explain, tell_writer
from maze_pl.instantiation import with_factories
from maze_pl.loading import check_fit, checkpoint_path, warm_start
from maze_pl.modules import A2C, PPO, AlgorithmModule
from maze_pl.modules.options import count_minibatches
from maze_pl.perception.drawing import actor_critic_graphs, table
from maze_pl.run_directory import claimed, is_first_rank, last_checkpoint, remove_if_empty, run_directory
from maze_pl.search_path import ConfigurationError, suggestion
from maze_pl.signals import StopSignals

_DEFAULT_CALLBACKS = {
    "best_checkpoint": callbacks.BestCheckpoint,
    "last_checkpoint": callbacks.LastCheckpoint,
    "early_stopping": callbacks.EarlyStopping,
    "stop_at_return": callbacks.StopAtReturn,
}


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run a command whose names have been resolved.

    Args:
        arguments: What `configuration.prepare` made of the command line.
        command: The command line as the user gave it, to be kept with the run.
        signals: Has taken the signals that stop a command.

    Returns:
        The exit status: 0, or 1 if a wanted return was not reached.
    """
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_is_no_tip)
    with warnings.catch_warnings(), ConsoleLog():
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)")  # Lightning with torch 2.13
        warnings.filterwarnings("ignore", "Be aware that when using `ckpt_path`, callbacks")  # which were for training
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")  # no evaluators, as asked for
        former, threading.excepthook = threading.excepthook, tell_writer
        try:
            return MazeCLI(list(arguments), command, signals).status
        except ProcessExitedException as error:  # of a process that was spawned to train
            if error.exit_code in (130, 143) or signals.received:
                return error.exit_code
            raise
        finally:
            threading.excepthook = former
            remove_if_empty()


def _parsing_logger() -> logging.Logger:
    """Says once which arguments of a class are dropped because the one that takes its place does not have them."""
    said: set[str] = set()

    def tell(record: logging.LogRecord) -> bool:
        text = str(record.msg)
        if text.startswith("Due to class_path change") and text not in said and is_first_rank():
            said.add(text)
            sys.stderr.write(f"maze-pl: {text[0].lower()}{text[1:]}\n")
        return False  # nothing else of all that jsonargparse has to say

    logger = logging.getLogger("maze_pl.parsing")  # by name: jsonargparse copies its parsers, and this with them
    logger.setLevel(logging.DEBUG)
    logger.filters = [tell]
    return logger


class MazeCLI(LightningCLI):
    """Builds data and module from configuration, with everything that a run keeps and shows, and runs the command.

    Args:
        arguments: Command and options, without names.
        command: The command line as the user gave it.
        signals: Has taken the signals that stop a command.

    Attributes:
        status: Exit status of the command.
    """

    def __init__(self, arguments: list[str], command: Sequence[str], signals: StopSignals) -> None:
        self.status, self._signals, self._given, self._command = 0, signals, arguments[0], ["maze-pl", *command]
        self._run_dir: str | None = None
        trainer = {"max_epochs": -1, "log_every_n_steps": 1, "num_sanity_val_steps": 0}
        trainer |= {"use_distributed_sampler": False, "enable_model_summary": False}
        parser = {"prog": "maze-pl", "allow_abbrev": False, "exit_on_error": False, "logger": _parsing_logger()}
        options: dict[str, Any] = {"datamodule_class": pl.LightningDataModule, "subclass_mode_data": True}
        options |= {"save_config_callback": None, "seed_everything_default": 0, "trainer_defaults": trainer}
        options |= {"auto_configure_optimizers": False, "load_from_checkpoint_support": False}
        super().__init__(args=arguments, parser_kwargs=parser, **options)

    # ------------------------------------------------------------------------------------------------- parsing

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The command that was given, with the arguments of the trainer's method that configuration does not hold.

        Parsers of the others would be made for nothing, which takes 0.07 s each.
        """
        loaders = {"train_dataloaders", "val_dataloaders", "dataloaders"}
        return {self._given: loaders | {"model", "datamodule", "weights_only"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what a run has beside model, data and trainer."""
        parser.add_argument("--experiment", type=str | None, default=None, help="Folder of the run under outputs/.")
        parser.add_argument("--run_dir", type=str | None, default=None, help="The run directory itself.")
        parser.add_argument("--resume", type=str | None, default=None, help="Run directory in which to go on (fit).")
        parser.add_argument("--warm_start", type=str | None, default=None, help="Run directory from which to begin.")
        parser.add_argument("--run", type=str | None, default=None, help="Run directory of the agent to evaluate.")
        parser.add_argument("--wandb", type=bool, nargs="?", const=True, default=False, help="Log to Weights & Biases.")
        shown = "Show the networks as tables of their blocks, and nothing else."
        parser.add_argument("--print_model", type=bool | None, nargs="?", const=True, default=None, help=shown)
        for name, callback in _DEFAULT_CALLBACKS.items():
            parser.add_class_arguments(callback, name)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse what was given to the constructor, whatever the process was called with."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            known = {key for one in self._subcommand_parsers.values() for key in one.get_defaults().keys()}  # noqa: SIM118
            raise ConfigurationError(explain(str(error), known)) from error

    def _parse_ckpt_path(self) -> None:
        """Leave the configuration alone: what is asked for now wins over what a checkpoint was made with."""

    # ------------------------------------------------------------------------------------------- instantiation

    @property
    def _options(self) -> Namespace:
        return self.config[self.subcommand]  # type: ignore[no-any-return]

    def before_instantiate_classes(self) -> None:
        """Decide on the run directory and what else depends on several options."""
        options = self._options
        shown = options.clone()  # the assembled configuration as it was asked for
        for name in ("config", "resume", "run_dir", "run", "warm_start", "ckpt_path", "print_model"):
            shown[name] = None  # which concerns only this call
        self._config_text = str(self._parser(self.subcommand).dump(shown, skip_unset=False, skip_validation=True))
        trainer = options.trainer
        if trainer is None:
            raise ConfigurationError("trainer: null has no meaning: leave it out, or give options of the trainer")
        for name in ("check_val_every_n_epoch", "val_check_interval"):  # Lightning takes them, and then fails
            if isinstance(trainer[name], int | float) and trainer[name] <= 0:
                raise ConfigurationError(f"trainer.{name}={trainer[name]} must be greater than 0")
        trainer.max_epochs = -1 if trainer.max_epochs == 0 else trainer.max_epochs  # 0 is without limit
        data: Any = options.data.get("init_args") or {}
        if "dataset" in data and (data.get("env") is None or data.get("evaluators") == {}):  # nothing is played
            # This is not in the text, as a run that begins with this one may play episodes.
            for callback in (options.best_checkpoint, options.early_stopping):
                if callback.monitor == "eval/return":
                    callback.monitor, callback.mode = "eval/loss", "min"
        if self.subcommand != "fit" and options.run is not None and options.ckpt_path is None:
            options.ckpt_path = str(checkpoint_path(options.run))
        if self.subcommand != "fit" or options.print_model:
            return
        if options.resume is not None and options.ckpt_path is None:
            options.ckpt_path = last_checkpoint(options.resume)
        self._run_dir = run_directory(options.resume, options.run_dir, options.experiment)
        if trainer.default_root_dir is None:
            trainer.default_root_dir = self._run_dir

    def instantiate_classes(self) -> None:
        """Make data, module and trainer."""
        self.config_init = self.parser.instantiate(with_factories(self.config))
        self.datamodule, self.model = (self._get(self.config_init, name) for name in ("data", "model"))
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Make the trainer, with default callbacks and loggers where the configuration has none of their kind."""
        config: dict[str, Any] = {**vars(self._get(self.config_init, "trainer")), **kwargs}
        given = _as_list(config["callbacks"])
        if config["enable_progress_bar"] is None:
            config["enable_progress_bar"] = sys.stdout.isatty()
        bars = [callbacks.RolloutProgressBar()] if config["enable_progress_bar"] else []
        kept = self._kept(self._run_dir) if self._run_dir is not None else []
        added = [callbacks.EpochTable(), *bars, *kept, callbacks.StopOnSignal(self._signals, self._run_dir)]
        kinds = tuple(ProgressBar if isinstance(callback, ProgressBar) else type(callback) for callback in given)
        config["callbacks"] = [*given, *(callback for callback in added if not isinstance(callback, kinds))]
        config["logger"] = self._loggers(config["logger"])
        trainer = pl.Trainer(**config)
        if config["strategy"] == "auto" and isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy._ddp_kwargs["find_unused_parameters"] = True
        return trainer

    def _kept(self, run_dir: str) -> list[Callback]:
        defaults = [self._get(self.config_init, name) for name in _DEFAULT_CALLBACKS]
        record = callbacks.RunRecord(run_dir, self._config_text, self._command)
        ending = [callbacks.FinalEvaluation(), callbacks.RunSummary(run_dir), callbacks.NetworkPictures(run_dir)]
        return [record, *defaults, *ending]

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
            check_fit(path, self.model, data.spec)
        is_claimed = self.trainer.is_global_zero and self._run_dir is not None
        with claimed(Path(str(self._run_dir))) if is_claimed else contextlib.nullcontext():
            super()._run_subcommand(subcommand)

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    def before_fit(self) -> None:
        """Refuse what does not fit together before anything is written; then take over what a warm start asks for."""
        options = self._options
        self._signals.deferred = True
        self._signals.is_passed_on = isinstance(self.trainer.strategy.launcher, _MultiProcessingLauncher)
        if isinstance(self.trainer.strategy.launcher, _SubprocessScriptLauncher):
            self._signals.hold()
        if isinstance(self.model, A2C | PPO) and isinstance(self.datamodule, TrajectoryDataModule | ReplayDataModule):
            raise ConfigurationError("PPO and A2C learn from rollouts: use a RolloutDataModule; or BC to clone, or SAC")
        if isinstance(self.model, PPO) and isinstance(self.datamodule, RolloutDataModule):
            count_minibatches(self.model.batch_size, self.datamodule.n_envs, self.datamodule.n_rollout_steps)
        self._check_monitors()
        if options.warm_start is not None and options.ckpt_path is None:
            warm_start(options.warm_start, self.model, self.datamodule)

    def _check_monitors(self) -> None:
        """Refuse to wait for results of evaluators that do not exist."""
        names = ["train", *getattr(self.datamodule, "evaluators", {})]
        names += ["eval"] * bool(getattr(self.datamodule, "validation_percentage", 0))  # of held-out episodes
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            monitor = getattr(callback, "monitor", None) or ""
            name, slash, _ = monitor.partition("/")
            if len(names) > 1 and slash and name not in names and not name.startswith(tuple(f"{n}_" for n in names)):
                known = f"{names[1:]} in data.evaluators{suggestion(name, names)}"
                raise ConfigurationError(f"{type(callback).__name__}(monitor={monitor!r}) needs {name!r}, not {known}")

    def after_fit(self) -> None:
        """Fail if a return that had to be reached was not."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, callbacks.StopAtReturn):
                callback.take(self.trainer)
                self.status = int(callback.missed)
                if callback.missed and self.trainer.is_global_zero:
                    reached = f"{callback.monitor} reached {callback.best:.1f}, not {callback.threshold}"
                    sys.stderr.write(f"maze-pl: {reached}\n")


def _as_list(given: Any) -> list[Any]:
    """Callbacks or loggers as configurations have them: none, one or several."""
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def _is_no_tip(record: logging.LogRecord) -> bool:
    """Keep Lightning's tips to install other products off the console."""
    return "Tip:" not in record.getMessage() and not record.getMessage().startswith("TPU available")
