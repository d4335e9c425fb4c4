"""maze-pl: reinforcement learning with structured environments, on PyTorch Lightning.

usage: maze-pl COMMAND [options]

commands:
  fit        train an agent
  validate   evaluate a trained agent: maze-pl validate RUN_DIR
  test       the same as validate
  rollout    play episodes: maze-pl rollout RUN_DIR, or --env env/gym_env --env.name ID --policy random|heuristic
  check      find faults of an environment: maze-pl check --env env/gym_env --env.name ID
  list       list available components: maze-pl list [algorithms|configs|environments|wrappers]
  new        create a project with an environment, a config, an experiment and a test: maze-pl new DIR

examples:
  maze-pl fit --config ppo_cartpole
  maze-pl fit --config ppo_cartpole --data.env.name Acrobot-v1 --model.lr 1e-3 --trainer.max_epochs 20
  maze-pl fit --config ppo_cartpole --model algorithm/a2c --data.env env/gym_env
  maze-pl fit --resume RUN_DIR            continue a run; options given here take precedence
  maze-pl fit --warm-start RUN_DIR        start a new run with the weights and wrapper statistics of another one,
                                          and with its configuration, unless --config is given
  maze-pl check --config ppo_cartpole --wrappers wrappers/vector_obs

Run directories with classes outside of maze_pl, gymnasium and torch.nn, such as your own, require `--trust`, because
loading them executes code.

`maze-pl COMMAND --help` lists all options of a command, `--print_config` prints the configuration that a command would
run, and `--debug` prints the traceback of an error.

names (searched in ./configs, the folders of MAZE_PL_CONFIG_PATH, and the configurations of maze_pl):
"""

import gc
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from maze_pl import __version__
from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError, known_names, suggestion
from maze_pl.system.lost_process import LostProcessError
from maze_pl.system.signals import StoppedBySignal, StopSignals, follow_main_process

COMMANDS: Final = {  # and the module of maze_pl.cli that runs them
    "fit": "fit",
    "validate": "fit",
    "test": "fit",
    "rollout": "rollout",
    "check": "check",
    "list": "list",
    "new": "new",
}
DEBUG: Final = "--debug"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maze-pl`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, 1 if a wanted return was not reached, an environment is not sound, a process was lost or
        user code called `sys.exit`, 2 if the user asked for something impossible, 130 or 143 if INT or TERM ended the
        command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    arguments = [argument for argument in given if argument != DEBUG]
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help"):
        names = "".join(f"  {name}\n" for name in known_names())
        (sys.stdout if command else sys.stderr).write(f"{__doc__}{names}")
        return 0 if command else 2
    if command == "--version":
        sys.stdout.write(f"maze-pl {__version__}\n")
        return 0
    try:
        is_launched = follow_main_process()
        with StopSignals(deferred=is_launched) as signals:
            if command not in COMMANDS:
                hint = suggestion(command, COMMANDS)
                raise ConfigurationError(f"unknown command {command!r}: use {', '.join(COMMANDS)}{hint}")
            prepared = prepare(arguments)
            gc.disable()  # imports make much, which lives on: looking at it took a third of their time
            module = importlib.import_module(f"maze_pl.cli.{COMMANDS[command]}")
            gc.freeze()
            gc.enable()
            status = int(module.run(prepared, arguments, signals))
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
