"""Options of `maze-pl fit` and `validate` besides those of model, data and trainer."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser

from maze_pl import callbacks
from maze_pl.config.assembling import run_and_pieces
from maze_pl.config.option_types import option_name
from maze_pl.config.pieces import CONFIG_OPTIONS, RUN_CONFIG, Piece
from maze_pl.config.search_path import ConfigurationError, suggestion
from maze_pl.runs.checkpoint_files import best_or_last, checkpoint_path, read_checkpoint
from maze_pl.runs.other_environment import tell_other_environment
from maze_pl.runs.run_checkpoints import configured_checkpoints
from maze_pl.runs.run_directory import is_first_rank, last_checkpoint

DEFAULT_CALLBACKS = {
    "best_checkpoint": callbacks.BestCheckpoint,
    "last_checkpoint": callbacks.LastCheckpoint,
    "early_stopping": callbacks.EarlyStopping,
    "stop_at_return": callbacks.StopAtReturn,
}
"""Callbacks of each run by the name of their options."""
TRAINER_DEFAULTS = {
    "max_epochs": -1,
    "log_every_n_steps": 1,
    "num_sanity_val_steps": 0,
    "use_distributed_sampler": False,
    "enable_model_summary": False,
}
"""Options of the trainer that have other defaults than Lightning's."""
DESCRIPTIONS = {
    "fit": (
        "Train an agent: maze-pl fit --config NAME. Options of an algorithm are listed by `--model.help ALGORITHM`, "
        "those of rollouts, environments and evaluators by `--data.help RolloutDataModule`."
    ),
    "validate": "Evaluate a trained agent: maze-pl validate RUN_DIR.",
    "test": "Evaluate a trained agent: the same as validate.",
}
"""Description of each command."""
_TEXT_OPTIONS = {
    "experiment": "Folder under outputs/ for this run.",
    "run_dir": "The run directory.",
    "resume": "Run directory to continue (fit).",
    "warm_start": "Run directory to start from (fit).",
    "run": "Run directory of the agent to evaluate.",
}
_TRUST_HELP = "Allow a run directory or checkpoint to name any class, and thereby to execute any code."
_SEEDS_HELP = "Number of seeds to train with, or a list of them (fit); `--seeds.parallel N` trains N at a time."
_HYPERPARAMETERS_HELP = "Options that dashboards list as hyper-parameters; by default those of model and data (fit)."
_PRINT_MODEL_HELP = "Print the networks as tables of their blocks, and exit."
_VIEW_HELP = "Write the view of one episode of best.ckpt to the run directory at the end (fit)."
UNSAVED_OPTIONS = (
    "config",
    "resume",
    "run_dir",
    "run",
    "warm_start",
    "ckpt_path",
    "print_model",
    "trust",
    "seeds",
)
"""Options that are not saved in the configuration of a run."""


def add_run_options(parser: LightningArgumentParser) -> None:
    """Add the options of a run, and those of the callbacks that each run has."""
    for name, description in _TEXT_OPTIONS.items():
        parser.add_argument(f"--{name}", type=str | None, default=None, help=description)
    parser.add_argument("--seeds", type=Any, default=None, help=_SEEDS_HELP)
    parser.add_argument("--hyperparameters", type=list[str] | None, default=None, help=_HYPERPARAMETERS_HELP)
    flag: dict[str, Any] = {"type": bool | None, "nargs": "?", "const": True, "default": None}
    parser.add_argument("--trust", **flag, help=_TRUST_HELP)
    parser.add_argument("--print_model", **flag, help=_PRINT_MODEL_HELP)
    flag |= {"type": bool, "default": False}
    parser.add_argument("--wandb", **flag, help="Log to Weights & Biases.")
    parser.add_argument("--view", **flag, help=_VIEW_HELP)
    for name, callback in DEFAULT_CALLBACKS.items():
        parser.add_class_arguments(callback, name)


def refuse_unsuitable_options(options: Namespace, command: Sequence[str]) -> None:
    """Refuse options with which the run would fail later.

    Args:
        options: The parsed options.
        command: The command line after `maze-pl`, as the user gave it.

    Raises:
        ConfigurationError: `seeds` is in a configuration, `trainer` is null, an interval between
            evaluations is not positive, or `hyperparameters` names an option that does not exist.
    """
    if options.seeds is not None:
        remedy = "give it on the command line of `maze-pl fit`"
        raise ConfigurationError(f"seeds={options.seeds} cannot be set in a configuration: {remedy}")
    trainer = options.trainer
    if trainer is None:
        remedy = "omit it, or give options of the trainer"
        raise ConfigurationError(f"trainer: null is not allowed: {remedy}")
    for name in ("check_val_every_n_epoch", "val_check_interval"):  # Lightning would fail later
        if isinstance(trainer[name], int | float) and trainer[name] <= 0:
            raise ConfigurationError(f"trainer.{name}={trainer[name]} must be greater than 0")
    if options.hyperparameters and _names_hyperparameters(command):
        _refuse_unknown_names(options)


def _names_hyperparameters(command: Sequence[str]) -> bool:
    """True if the user has named the hyper-parameters, and not the sweep to which another run belongs."""
    pieces = run_and_pieces(command)[1]
    naming = [piece for piece in pieces if "hyperparameters" in _top_level(piece)]
    if not naming or naming[-1].of_run:
        return False
    return naming[-1].path is None or naming[-1].path.name != RUN_CONFIG


def _top_level(piece: Piece) -> Collection[str]:
    """Return the top-level options that a piece sets."""
    if piece.option not in CONFIG_OPTIONS:
        return [piece.keys[0].removesuffix("+")]
    return piece.content if isinstance(piece.content, dict) else ()


def _refuse_unknown_names(options: Namespace) -> None:
    """Refuse hyper-parameters that are not options of the run; its variables have been replaced by now."""
    known = set(_option_names(options, ""))
    for name in options.hyperparameters:
        spelled = option_name(name)
        # jsonargparse moves further arguments that have names to the others
        is_known = not known.isdisjoint((spelled, spelled.replace(".dict_kwargs", "")))
        if not is_known and not spelled.startswith("variables."):
            raise ConfigurationError(f"hyperparameters: there is no option {name}{suggestion(name, known)}")


def _option_names(node: Any, prefix: str) -> Iterator[str]:
    """Yield the names of all options in a parsed configuration, without `init_args`.

    Args:
        node: A part of the configuration; options below a list are those of its last item, as on dashboards.
        prefix: Name of this part.
    """
    if isinstance(node, list):
        node = node[-1] if node else None
    entries = vars(node) if isinstance(node, Namespace) else node
    if not isinstance(entries, dict):
        return
    for key, value in entries.items():
        name = prefix if key == "init_args" else f"{prefix}.{key}".lstrip(".")
        yield name
        yield from _option_names(value, name)


def monitor_loss_without_episodes(options: Namespace) -> None:
    """Let callbacks monitor the loss if the run learns from a data set and plays no episodes."""
    data: Any = options.data.get("init_args") or {}
    is_played = data.get("env") is not None and data.get("evaluators") != {}
    if "dataset" not in data or is_played:
        return
    for callback in (options.best_checkpoint, options.early_stopping):
        if callback.monitor == "eval/return":
            callback.monitor = "eval/loss"
            callback.mode = "min"


def start_of(options: Namespace) -> dict[str, str]:
    """Return the absolute path of the run or checkpoint that a run begins with, by its option.

    Args:
        options: Options of `maze-pl fit`.

    Returns:
        Empty for a run that begins with new weights; the run directory for one that continues.

    Raises:
        ConfigurationError: There is no such checkpoint.
    """
    if options.resume is not None:
        return {"resume": os.path.realpath(options.resume)}
    if options.ckpt_path is not None:  # which is loaded after a warm start
        return {"ckpt_path": os.path.realpath(options.ckpt_path)}
    if options.warm_start is not None:
        checkpoint_path(options.warm_start)
        return {"warm_start": os.path.realpath(options.warm_start)}
    return {}


def default_checkpoint(options: Namespace, *, is_training: bool) -> str | None:
    """Return the checkpoint of the run that is evaluated or resumed; None if there is none.

    Args:
        options: Options of the command.
        is_training: Whether the command trains.

    Raises:
        ConfigurationError: It cannot be told, see `best_or_last` and `last_checkpoint`.
    """
    if not is_training and options.run is not None:
        file = best_or_last(options.run)
        if is_first_rank():
            tell_other_environment(file, read_checkpoint(file), "configuration")
        return str(file)
    if not is_training:
        return None
    if options.resume is None or options.print_model:
        return None
    return last_checkpoint(options.resume, configured_checkpoints(options.resume, options.as_dict()))
