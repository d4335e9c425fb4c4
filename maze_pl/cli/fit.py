"""Command line for training: LightningCLI with run directories, records and console output."""

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import yaml
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, ProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher, _SubprocessScriptLauncher
from torch.multiprocessing.spawn import ProcessExitedException

from maze_pl import callbacks
from maze_pl.callbacks.console_log import ConsoleLog
from maze_pl.callbacks.monitors import check_monitors
from maze_pl.cli.adapted_trainer import adapted_trainer
from maze_pl.cli.checkpoint_folders import move_checkpoint_folders, refuse_folders_of_other_runs
from maze_pl.cli.fit_options import (
    DEFAULT_CALLBACKS,
    DESCRIPTIONS,
    TRAINER_DEFAULTS,
    UNSAVED_OPTIONS,
    add_run_options,
    default_checkpoint,
    monitor_loss_without_episodes,
    refuse_unsuitable_options,
    start_of,
)
from maze_pl.cli.fitting_data import require_fitting_data
from maze_pl.cli.log_folders import move_log_folders, run_loggers, separate_log_folders
from maze_pl.cli.replaced_classes import parsing_logger
from maze_pl.cli.run_parser import RunParser
from maze_pl.config.assembling import Prepared, names_configuration, options_of
from maze_pl.config.factories import with_factories
from maze_pl.config.given_objects import put_objects
from maze_pl.config.lightning_features import as_list, refuse_unsuitable
from maze_pl.config.messages import tell_writer
from maze_pl.config.option_types import refuse_nulls, refuse_nulls_of
from maze_pl.config.plain_values import with_plain_values
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.section_messages import refused_options
from maze_pl.config.summary import summarize
from maze_pl.config.texts import with_texts
from maze_pl.config.trust import foreign_names
from maze_pl.core.provenance import Provenance
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.modules import AlgorithmModule
from maze_pl.perception.drawing import table
from maze_pl.perception.network_graph import actor_critic_graphs
from maze_pl.runs.checkpoint_files import checkpoint_path, require_intact
from maze_pl.runs.compatibility import require_compatible, require_epochs
from maze_pl.runs.provenance import collect_provenance, share_among_ranks
from maze_pl.runs.run_directory import claimed, is_first_rank, run_directory
from maze_pl.runs.run_move import Move
from maze_pl.runs.warm_start import warm_start
from maze_pl.system.git_state import GitProbe
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.rank_processes import how_it_ended, naming_lost_ranks
from maze_pl.system.signals import StopSignals

_EXPECTED_WARNINGS = (
    r".*isinstance\(treespec, LeafSpec\)",  # Lightning with torch 2.13
    "Be aware that when using `ckpt_path`, |You're using the WeightAveraging callback",  # for training
    "Total length of `list` across ranks is zero",  # no evaluators, as requested
    "RNN module weights are not part of single contiguous chunk",  # they are parts of a flat optimiser's buffer
)


def run(arguments: Prepared, command: Sequence[str], signals: StopSignals) -> int:
    """Run a command whose names have been resolved; see `carry_out`.

    Returns:
        The exit status: 0, or 1 if a required return was not reached.
    """
    try:
        return carry_out(arguments, command, signals).status
    except ProcessExitedException as error:  # of a spawned training process
        if error.exit_code in (130, 143) or signals.received:
            return error.exit_code
        ending = how_it_ended(error.exit_code)
        message = f"rank {error.error_index} {ending}; all other ranks were stopped"
        raise LostProcessError(message) from None


def carry_out(arguments: Prepared, command: Sequence[str], signals: StopSignals) -> "MazeCLI":
    """Run a command to its end, and return it with its module, data module and trainer.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.
        command: The command line as the user gave it, to be saved with the run.
        signals: Handler of the signals that stop a command.
    """
    logging.getLogger("pytorch_lightning.utilities.rank_zero").addFilter(_is_no_tip)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it reports that it ends other ranks
    with warnings.catch_warnings(), contextlib.ExitStack() as undo, ConsoleLog():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        previous_hook = threading.excepthook
        threading.excepthook = tell_writer
        try:
            return MazeCLI(arguments, command, signals, undo)
        finally:
            threading.excepthook = previous_hook


class MazeCLI(LightningCLI):
    """Builds data, module and trainer from configuration, and runs the command.

    Args:
        arguments: Command and options, without names, and the classes that they may instantiate.
        command: The command line as the user gave it.
        signals: Handler of the signals that stop a command.
        undo: On closing, removes directories that were made and are still empty.

    Attributes:
        status: Exit status of the command.
        config_text: The assembled configuration, as YAML.
        run_dir: The run directory; None for a command that does not train.
    """

    def __init__(
        self,
        arguments: Prepared,
        command: Sequence[str],
        signals: StopSignals,
        undo: contextlib.ExitStack,
    ) -> None:
        self.status = 0
        self._trust = arguments.trust
        self._objects = arguments.objects
        self._written = {arguments[0]: arguments.written}
        self._name = arguments[0]
        self._command = ["maze-pl", *command]
        self._signals = signals
        self._undo = undo
        self.run_dir: str | None = None
        self._probe = GitProbe() if self._name == "fit" and is_first_rank() else None
        if self._probe is not None:
            undo.callback(self._probe.close)
        self._summary = ""
        self._provenance: Provenance | None = None
        parser = {
            "prog": "maze-pl",
            "allow_abbrev": False,
            "exit_on_error": False,
            "logger": parsing_logger(arguments, arguments.dropped),
            self._name: {"description": DESCRIPTIONS[self._name], "written": arguments.written},
        }
        super().__init__(
            args=list(arguments),
            datamodule_class=pl.LightningDataModule,
            subclass_mode_data=True,
            save_config_callback=None,
            seed_everything_default=0,
            trainer_defaults=TRAINER_DEFAULTS,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            parser_class=RunParser,
            parser_kwargs=parser,
        )

    # ------------------------------------------------------------------------------------------------- parsing

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the given command, with arguments of its Trainer method that are not options.

        Parsers of the other commands are not needed, and would take 0.07 s each.
        """
        loaders = {"train_dataloaders", "val_dataloaders", "dataloaders"}
        return {self._name: loaders | {"model", "datamodule", "weights_only"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the options of a run besides model, data and trainer."""
        add_run_options(parser)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the arguments of the constructor, not those of the process."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            known = self._subcommand_parsers[self._name].get_defaults().keys()
            raise refused_options(error, known, args, self._command[1:]) from error

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the current configuration takes precedence over the checkpoint's."""

    # ------------------------------------------------------------------------------------------- instantiation

    @property
    def _options(self) -> Namespace:
        return self.config[self.subcommand]  # type: ignore[no-any-return]

    def before_instantiate_classes(self) -> None:
        """Determine the run directory and all else that depends on several options."""
        options = self._options
        requested = options.clone()  # the assembled configuration
        for name in UNSAVED_OPTIONS:
            requested[name] = None
        self.config_text = self._text_of(requested)
        refuse_unsuitable_options(options, self._command[1:])
        if options.trainer.max_epochs == 0:  # no limit
            options.trainer.max_epochs = -1
        monitor_loss_without_episodes(options)  # not saved: a warm start may play episodes
        if self.subcommand == "fit" and not options.print_model:
            self._choose_run_directory(requested)
        if options.ckpt_path is None:
            options.ckpt_path = default_checkpoint(options, is_training=self.subcommand == "fit")
        if self.run_dir is not None:
            if options.trainer.default_root_dir is None:
                options.trainer.default_root_dir = str(Path(self.run_dir).absolute())
            self._collect_provenance()

    def _choose_run_directory(self, requested: Namespace) -> None:
        """Determine the run directory, and the folders of loggers and checkpoints.

        Args:
            requested: The configuration to be saved.
        """
        options = self._options
        self.run_dir = run_directory(options.resume, options.run_dir, options.experiment, self._undo)
        source = options.resume or None
        if source is None and not names_configuration(self._command):
            source = options.warm_start
        if source is not None:
            move = Move(source, self.run_dir)
            move_log_folders((options, requested), move)
            move_checkpoint_folders((options, requested), move)
            self.config_text = self._text_of(requested)
        separate_log_folders(options, self.run_dir)
        refuse_folders_of_other_runs(options, self.run_dir)

    def _collect_provenance(self) -> None:
        """Describe the run on the first rank, for the files of all ranks."""
        if is_first_rank():
            self._summary = str(summarize(self._command[1:]))
            self._provenance = collect_provenance(
                command=self._command,
                seed=self._options.seed_everything,
                configuration=self.config_text,
                summary=self._summary,
                probe=self._probe,
                start=start_of(self._options),
            )
        share_among_ranks(self._provenance)

    def _text_of(self, configuration: Namespace) -> str:
        """Return a configuration as YAML."""
        plain = with_plain_values(configuration)
        return str(self._parser(self.subcommand).dump(plain, skip_unset=False, skip_validation=True))

    def instantiate_classes(self) -> None:
        """Make data, module and trainer.

        Raises:
            ConfigurationError: A class is not trusted, or an option that needs a value is null.
        """
        config = with_texts(self.config, self._written)
        options = config[self.subcommand]
        source = str(options.resume or options.warm_start or options.run)
        self._trust.require_classes(self.config, source)
        refuse_nulls({name: options.get(name) for name in ("data", "model")})
        for name, callback in DEFAULT_CALLBACKS.items():
            refuse_nulls_of(callback, options[name], name)
        refuse_nulls_of(pl.Trainer.__init__, options.trainer, "trainer")
        refuse_nulls(options.trainer, "trainer")
        ready = with_factories(put_objects(config, self._objects), self._written)
        self.config_init = self.parser.instantiate(ready)
        self.datamodule = self._get(self.config_init, "data")
        self.model = self._get(self.config_init, "model")
        self.trainer = self.instantiate_trainer()

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Make the trainer, with default callbacks and loggers where the configuration has none."""
        config: dict[str, Any] = {**vars(self._get(self.config_init, "trainer")), **kwargs}
        refuse_unsuitable(config)
        configured = as_list(config["callbacks"])
        if config["enable_progress_bar"] is None:
            has_bar = any(isinstance(callback, ProgressBar) for callback in configured)
            config["enable_progress_bar"] = has_bar or sys.stdout.isatty()
        added = self._added_callbacks(has_bar=config["enable_progress_bar"])
        added = [callback for callback in added if not _is_replaced(callback, configured)]
        keeps_own_files = any(isinstance(callback, ModelCheckpoint) for callback in configured)
        if config["enable_checkpointing"] is False and not keeps_own_files:
            checkpoints = (callbacks.BestCheckpoint, callbacks.LastCheckpoint)
            added = [callback for callback in added if not isinstance(callback, checkpoints)]
            configured = [one for one in configured if not isinstance(one, checkpoints)]
            config["enable_checkpointing"] = None  # to Lightning, StopOnSignal writes checkpoints
        config["callbacks"] = [*configured, *added]
        if config["logger"] is not False:
            config["logger"] = run_loggers(config["logger"], self.run_dir, has_wandb=self._options.wandb)
        return adapted_trainer(config, self._signals)

    def _added_callbacks(self, has_bar: bool) -> list[Callback]:
        """Return the callbacks that a run has unless the configuration replaces them."""
        added: list[Callback] = [callbacks.EpochTable()]
        if has_bar:
            added.append(callbacks.RolloutProgressBar())
        needs_trust = self.run_dir is not None and bool(self._foreign_names())
        if self.run_dir is not None:
            described = (self.config_text, self._command, self._summary, self._provenance)
            added += [
                callbacks.RunRecord(self.run_dir, *described),
                *(self._get(self.config_init, name) for name in DEFAULT_CALLBACKS),
                callbacks.EvaluationCheck(),
                callbacks.TrainingObservations(),
                callbacks.FinalEvaluation(self.run_dir),
                callbacks.RunSummary(self.run_dir, needs_trust),
                callbacks.NetworkPictures(self.run_dir),
            ]
            if self._options.view:
                added.append(callbacks.EpisodeViews(self.run_dir))
        return [*added, callbacks.StopOnSignal(self._signals, self.run_dir, needs_trust)]

    def _foreign_names(self) -> list[str]:
        """Return the names in the configuration for which later commands need `--trust`."""
        return foreign_names(yaml.safe_load(self.config_text))

    # ------------------------------------------------------------------------------------------------- running

    def _run_subcommand(self, subcommand: str) -> None:
        if self._options.print_model:
            if not isinstance(self.model, AlgorithmModule):
                fault = f"{type(self.model).__name__} has none"
                raise ConfigurationError(f"--print_model shows policies and critics; {fault}")
            if self.model.chosen_networks is not None:
                sys.stdout.write(f"{self.model.chosen_networks}\n")
            sys.stdout.write(f"{table(actor_critic_graphs(self.model.networks))}\n")
            return
        if self._options.ckpt_path is not None:
            self._check_checkpoint(self._options.ckpt_path)
        is_claimed = self.trainer.is_global_zero and self.run_dir is not None
        claim = claimed(Path(str(self.run_dir))) if is_claimed else contextlib.nullcontext()
        with claim, naming_lost_ranks(self.trainer.strategy.launcher):
            super()._run_subcommand(subcommand)

    def _check_checkpoint(self, path: str) -> None:
        """Refuse a damaged checkpoint, or one that does not fit module and data module."""
        if isinstance(self.model, AlgorithmModule) and isinstance(self.datamodule, EnvironmentDataModule):
            names = None if self._options.trust else self._foreign_names()
            config = yaml.safe_load(self.config_text) if self._name == "fit" else None
            require_compatible(path, self.model, self.datamodule, names, config)
        elif Path(path).is_file():
            require_intact(Path(path))

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        return {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}

    def before_fit(self) -> None:
        """Refuse incompatible parts before anything is written; then apply a warm start."""
        options = self._options
        self._signals.deferred = True
        launcher = self.trainer.strategy.launcher
        self._signals.is_passed_on = isinstance(launcher, _MultiProcessingLauncher)
        if isinstance(launcher, _SubprocessScriptLauncher):
            self._signals.hold()
        require_fitting_data(self.model, self.datamodule)
        check_monitors(self.trainer, self.datamodule, self.model)
        require_epochs(options.ckpt_path, self.trainer.max_epochs)
        if options.warm_start is not None and options.ckpt_path is None:
            warm_start(options.warm_start, self.model, self.datamodule)
            if self.trainer.is_global_zero:
                sys.stderr.write(f"maze-pl: {self._taken_over(options.warm_start)}\n")

    def _taken_over(self, run: str) -> str:
        """Describe what this run takes from the run that it starts from."""
        source = f"weights and wrapper statistics are those of {checkpoint_path(run)}"
        if names_configuration(self._command):
            return f"{source}; the configuration is that of --config"
        others = [name for name in options_of(self._command) if not name.startswith("--warm")]
        except_for = f", except for {', '.join(others)}" if others else ""
        return f"{source}, and so is the configuration{except_for}: use --config for another one"

    def after_fit(self) -> None:
        """Set the exit status to 1 if the required return was not reached."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, callbacks.StopAtReturn):
                callback.take(self.trainer)
                self.status = int(callback.missed)
                if callback.missed and self.trainer.is_global_zero:
                    sys.stderr.write(f"maze-pl: {callback.outcome}\n")


def _is_replaced(added: Callback, configured: Sequence[Callback]) -> bool:
    """True if a configured callback has the same class, or both are progress bars."""
    if isinstance(added, ProgressBar):
        return any(isinstance(callback, ProgressBar) for callback in configured)
    return any(type(callback) is type(added) for callback in configured)


def _is_no_tip(record: logging.LogRecord) -> bool:
    """Filter out Lightning's tips to install other products."""
    return "Tip:" not in record.getMessage() and not record.getMessage().startswith("TPU available")
