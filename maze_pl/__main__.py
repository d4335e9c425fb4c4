"""maze-pl: reinforcement learning with structured environments, on PyTorch Lightning.

usage: maze-pl COMMAND [options]

commands:
  fit        train an agent
  validate   evaluate a trained agent: maze-pl validate RUN_DIR
  test       the same as validate
  rllib      train with RLlib's PPO, APPO or DQN: maze-pl rllib --config rllib_ppo_cartpole
  sweep      train with different options, by a grid or by Optuna: maze-pl sweep SWEEP.yaml, or --resume|--show DIR
  rollout    play episodes: maze-pl rollout RUN_DIR, or --env env/gym_env --env.name ID --policy random|heuristic
  compare    play the same episodes with several agents, and compare them: maze-pl compare RUN_DIR --baseline random
  estimate   estimate an agent from recorded episodes, without playing it: maze-pl estimate RUN_DIR --episodes FOLDER
  view       look at episodes in a browser: maze-pl view RUN_DIR|ROLLOUT_DIR|FILE...
  check      find faults of an environment: maze-pl check --env env/gym_env --env.name ID
  export     write a trained policy and its wrappers to one file: maze-pl export RUN_DIR --to FILE
  serve      answer requests for decisions over HTTP: maze-pl serve FILE|RUN_DIR
  plot       draw learning curves: maze-pl plot RUN_DIR... [--statistic NAME] [--x wall_clock]
  report     write one HTML page about a run: maze-pl report RUN_DIR [--to FILE]
  show       describe a run directory or a file: maze-pl show RUN_DIR|FILE [--json]
  list       list available components: maze-pl list [algorithms|configs|environments|wrappers]
  new        create a project with an environment, a config, an experiment and a test: maze-pl new DIR

examples:
  maze-pl fit --config ppo_cartpole
  maze-pl fit --config ppo_cartpole --data.env.name Acrobot-v1 --model.lr 1e-3 --trainer.max_epochs 20
  maze-pl fit --config ppo_cartpole --model algorithm/a2c --data.env env/gym_env
  maze-pl fit --config ppo_cartpole --seeds 5 --seeds.parallel 2      five seeds, two at a time, and a table
  maze-pl fit --resume RUN_DIR            continue a run; options given here take precedence
  maze-pl fit --warm-start RUN_DIR        start a new run with the weights and wrapper statistics of another one,
                                          and with its configuration, unless --config is given
  maze-pl check --config ppo_cartpole --wrappers wrappers/vector_obs

Run directories with classes outside of maze_pl, gymnasium, torch.nn and torch.optim, such as your own, require
`--trust`, because loading them executes code.

`maze-pl COMMAND --help` lists all options of a command, `--print_config` prints the configuration that a command would
run, and `--debug` prints the traceback of an error. `maze-pl --version --verbose` lists the installed packages.

names (searched in ./configs, the folders of MAZE_PL_CONFIG_PATH, and the configurations of maze_pl):
"""

import gc
import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from maze_pl import __version__
from maze_pl.config.assembling import Prepared, prepare
from maze_pl.config.search_path import ConfigurationError, known_names, suggestion
from maze_pl.system.console import tolerant_console
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.short_warnings import short_warnings
from maze_pl.system.signals import StoppedBySignal, StopSignals, follow_main_process, follow_starter

COMMANDS: Final = {  # and the module of maze_pl.cli that runs them
    "fit": "fit",
    "validate": "fit",
    "test": "fit",
    "rllib": "rllib",
    "sweep": "sweep",
    "rollout": "rollout_command",
    "compare": "compare",
    "estimate": "estimate",
    "view": "view",
    "check": "check",
    "export": "export",
    "serve": "serve",
    "plot": "plot",
    "report": "report",
    "show": "show",
    "list": "list",
    "new": "new",
}
_OTHER_NAMES: Final = {  # of commands, in other programs
    "train": "fit",
    "resume": "fit --resume",
    "continue": "fit --resume",
    "evaluate": "validate",
    "eval": "validate",
    "play": "rollout",
    "doctor": "check",
}
_ONE_DASH: Final = {  # options with one dash for which the messages of a command would name others
    **dict.fromkeys(("fit", "validate", "test", "rllib"), re.compile("-config")),
    "export": re.compile("-to"),
    "sweep": re.compile(r"-(?!(?i:inf|nan))[A-Za-z]\w.*"),  # any, but no number
}
_PREPARED_LATER: Final = ("compare", "rllib", "sweep")  # their options are not those of one run
_TRAINING: Final = ("fit", "rllib", "sweep")
DEBUG: Final = "--debug"


def _fit_seeds(arguments: Sequence[str], signals: StopSignals) -> int | None:
    """Train with several seeds, and return the exit status; None if they are not asked for."""
    if not any(argument.startswith(("--seeds", "--resume")) for argument in arguments):
        return None
    from maze_pl.cli import seeds

    return seeds.run(arguments, signals) if seeds.is_for_seeds(arguments) else None


def _show_version(is_verbose: bool) -> int:
    """Print the version, and with `--verbose` those of all packages that maze_pl uses."""
    text = f"maze-pl {__version__}"
    if is_verbose:
        from maze_pl.cli.version import versions_text

        text = versions_text()
    sys.stdout.write(f"{text}\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maze-pl`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, 1 if a required return was not reached, an environment is not sound, a
        process was lost or user code called `sys.exit`, 2 if the user asked for something
        impossible, 130 or 143 if INT or TERM ended the command.
    """
    with tolerant_console(), short_warnings():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _refuse_misspelt(arguments: Sequence[str]) -> None:
    """Refuse an unknown command, and options with one dash that the command would not name.

    Args:
        arguments: The command line.

    Raises:
        ConfigurationError: There is one.
    """
    command = arguments[0]
    if command not in COMMANDS:
        meant = _OTHER_NAMES.get(command)
        hint = suggestion(command, COMMANDS) if meant is None else f"; did you mean {meant}?"
        raise ConfigurationError(f"unknown command {command!r}: use {', '.join(COMMANDS)}{hint}")
    for word in arguments:
        if command in _ONE_DASH and _ONE_DASH[command].fullmatch(word.partition("=")[0]):
            raise ConfigurationError(f"{word} begins with one dash; did you mean -{word}?")


def _run(given: Sequence[str]) -> int:
    """Run the command that a command line gives; see `main`."""
    arguments = [argument for argument in given if argument != DEBUG]
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help"):
        names = "".join(f"  {name}\n" for name in known_names())
        (sys.stdout if command else sys.stderr).write(f"{__doc__}{names}")
        return 0 if command else 2
    if command == "--version":
        return _show_version("--verbose" in arguments)
    try:
        is_launched = follow_main_process()
        with StopSignals(deferred=is_launched, trains=command in _TRAINING) as signals:
            follow_starter()
            _refuse_misspelt(arguments)
            if command == "fit" and (status := _fit_seeds(arguments, signals)) is not None:
                return 128 + signals.received if signals.received else status
            prepared = arguments if command in _PREPARED_LATER else prepare(arguments)
            if isinstance(prepared, Prepared):
                prepared.is_debugged = DEBUG in given
            gc.disable()  # imports free nothing: collecting garbage took a third of the time
            module = importlib.import_module(f"maze_pl.cli.{COMMANDS[command]}")
            gc.freeze()
            gc.enable()
            status = int(module.run(prepared, arguments, signals))
            sys.stdout.flush()  # here, where a failure is an error of the command
            stopped = 0 if is_launched else 128 + signals.received
        return stopped if signals.received else status
    except StoppedBySignal as error:
        return int(str(error.code))
    except SystemExit as error:
        from maze_pl.config.messages import exit_message

        if (message := exit_message(error)) is None:
            raise
        sys.stderr.write(f"maze-pl: error: {message}\n")
        return error.code if isinstance(error.code, int) and error.code else 1
    except Exception as error:
        from maze_pl.config.messages import message_of

        if (message := message_of(error)) is None:
            raise
        if DEBUG in given:
            traceback.print_exception(error)
        sys.stderr.write(f"maze-pl: error: {message}\n")
        return 1 if isinstance(error, LostProcessError) else 2


if __name__ == "__main__":
    sys.exit(main())
