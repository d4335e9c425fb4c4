"""`maze-pl rllib`: training with an algorithm of RLlib instead of one of maze_pl.

The options are those of `maze-pl fit`: Lightning's trainer counts epochs, evaluates and writes the
files of the run, while RLlib collects and learns. This command refuses models that RLlib does not
train, and versions of Ray that maze_pl is not tested with, before anything is made.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

from maze_pl.cli import fit, seeds
from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.summary import configured_value
from maze_pl.core.class_path import import_object
from maze_pl.rllib import RLlibModule
from maze_pl.rllib.versions import require_rllib
from maze_pl.system.signals import StopSignals

_HELP: Final = """usage: maze-pl rllib --config NAME|FILE [options]

Train with RLlib's PPO, APPO or DQN on an environment and networks of maze_pl. The result is an ordinary run directory.
The options are those of `maze-pl fit`, see `maze-pl fit --help`; options of RLlib's algorithm have its names, below
model.config.

  maze-pl rllib --config rllib_ppo_cartpole
  maze-pl rllib --config rllib_ppo_cartpole --model.config.lr 3e-4 --model.config.num_env_runners 2
  maze-pl rllib --resume RUN_DIR
"""


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        arguments: The command line after `maze-pl`.
        command: The same, to be saved with the run.
        signals: Handler of the signals that stop a command.

    Returns:
        The exit status, that of `maze-pl fit`.

    Raises:
        ConfigurationError: RLlib does not train the model.
        ImportError: RLlib is not installed, or in another version than the tested one.
    """
    if len(arguments) == 1 or {"-h", "--help"}.intersection(arguments):
        (sys.stdout if len(arguments) > 1 else sys.stderr).write(_HELP)
        return 0 if len(arguments) > 1 else 2
    words = ["fit", *arguments[1:]]
    if seeds.is_for_seeds(words):
        require_rllib()
        return seeds.run(words, signals)
    prepared = prepare(words, arguments)
    _require_model_of_rllib(configured_value(words, "model"))
    require_rllib()
    return fit.run(prepared, command, signals)


def _require_model_of_rllib(model: Any) -> None:
    """Refuse a model that RLlib does not train.

    Args:
        model: The configured model: a class path with options; None if there is none.

    Raises:
        ConfigurationError: It is an algorithm of maze_pl, or there is none.
    """
    remedy = "use a model such as maze_pl.rllib.RLlibPPO, or `maze-pl fit`"
    path = model.get("class_path") if isinstance(model, dict) else model
    if path is None and model:
        return  # the class was given apart from its options, which `fit` checks
    if path is None:
        raise ConfigurationError(f"there is no model for RLlib to train: {remedy}, or --config rllib_ppo_cartpole")
    path = str(path) if "." in str(path) else f"maze_pl.rllib.{path}"
    try:
        found = import_object(path)
    except ImportError:
        return  # `fit` reports it with the nearest names
    if not (isinstance(found, type) and issubclass(found, RLlibModule)):
        raise ConfigurationError(f"RLlib does not train a {found.__name__}: {remedy}")
