"""The command `maze-pl`: answers what needs no torch at once, and hands everything else to the command line proper."""

import functools
import gc
import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from maze_pl import __version__
from maze_pl.configuration import prepare, project_folders
from maze_pl.search_path import ConfigurationError, known_names, suggestion
from maze_pl.signals import StoppedBySignal, StopSignals, follow_main_process

COMMANDS = {
    "fit": "train an agent",
    "validate": "evaluate a trained agent: maze-pl validate RUN_DIR",
    "test": "the same as validate, under Lightning's name for it",
    "rollout": "play episodes: maze-pl rollout RUN_DIR, or --env env/gym_env --env.name ID --policy random|heuristic",
    "check": "look for what is wrong with an environment: maze-pl check --env env/gym_env --env.name ID",
    "list": "say what there is to choose from: maze-pl list [algorithms|configs|environments|wrappers]",
    "new": "write a project with an environment, a config, an experiment and a test: maze-pl new DIR",
}

DEBUG = "--debug"

HELP = """\
usage: maze-pl COMMAND [options]

commands:
{commands}

examples:
  maze-pl fit --config ppo_cartpole
  maze-pl fit --config ppo_cartpole --data.env.name Acrobot-v1 --model.lr 1e-3 --trainer.max_epochs 20
  maze-pl fit --config ppo_cartpole --model algorithm/a2c --data.env env/gym_env
  maze-pl fit --resume RUN_DIR            go on where a run ended; options given here win
  maze-pl fit --warm-start RUN_DIR        begin a new run with the weights and statistics of another
  maze-pl check --config ppo_cartpole --wrappers wrappers/vector_obs

names (looked up in ./configs, the folders of MAZE_PL_CONFIG_PATH, and those that come with maze_pl):
{names}

`maze-pl COMMAND --help` lists every option of a command, `--print_config` shows what a command would run,
`--debug` where an error comes from.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maze-pl`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, 1 if a wanted return was not reached or an environment is not sound, 2 if the user asked for
        something impossible, 130 or 143 if INT or TERM ended the command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    arguments = [argument for argument in given if argument != DEBUG]
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
        names = "\n".join(f"  {name}" for name in known_names())
        (sys.stdout if arguments else sys.stderr).write(HELP.format(commands=commands, names=names))
        return 0 if arguments else 2
    if arguments[0] == "--version":
        sys.stdout.write(f"maze-pl {__version__}\n")
        return 0
    try:
        if arguments[0] in ("list", "new"):
            sys.stdout.write(_answer(arguments[0], arguments[1:]))
            return 0
        is_launched = follow_main_process()
        with StopSignals(deferred=is_launched) as signals:
            if arguments[0] not in COMMANDS:
                hint = suggestion(arguments[0], COMMANDS)
                raise ConfigurationError(f"there is no command {arguments[0]!r}: use {', '.join(COMMANDS)}{hint}")
            prepared = prepare(arguments)
            sys.path += [folder for folder in project_folders(arguments) if folder not in sys.path]
            module = f"{arguments[0]}_command" if arguments[0] in ("check", "rollout") else "cli"
            status = _command(module).run(prepared, arguments, signals)
            stopped = 0 if is_launched else 128 + signals.received
        return stopped if signals.received else status
    except StoppedBySignal as error:
        return int(str(error.code))
    except Exception as error:
        from maze_pl.errors import message_of

        if (message := message_of(error)) is None:
            raise
        if DEBUG in given:
            traceback.print_exception(error)
        sys.stderr.write(f"maze-pl: error: {message}\n")
        return 2


def _answer(command: str, operands: Sequence[str]) -> str:
    """What a command says that needs neither torch nor Lightning."""
    from maze_pl.listing import listing
    from maze_pl.project import create_project

    if any(operand.startswith("-") for operand in operands) or (command == "new" and len(operands) != 1):
        raise ConfigurationError(f"{command}: {COMMANDS[command]}")
    return listing(operands) if command == "list" else create_project(Path(operands[0]))


@functools.cache
def _command(module: str) -> ModuleType:
    """Spare the garbage collector from looking at what imports make, now and later: that took a third of their time."""
    gc.disable()
    imported = importlib.import_module(f"maze_pl.{module}")
    gc.freeze()
    gc.enable()
    return imported


if __name__ == "__main__":
    sys.exit(main())
