"""Options of `maze-pl fit` and `validate` besides those of model, data and trainer."""

from typing import Any

from pytorch_lightning.cli import LightningArgumentParser

from maze_pl import callbacks

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
    "fit": "Train an agent.",
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
