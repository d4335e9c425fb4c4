"""The command `maze-pl`: answers what needs no torch at once, and hands everything else to the command line proper."""

from __future__ import annotations

import contextlib
import gc
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from maze_pl import __version__
from maze_pl.configuration import ConfigurationError, known_names, prepare, project_folders, suggestion
from maze_pl.signals import StoppedBySignal, StopSignals, follow_main_process

COMMANDS = {
    "fit": "train an agent",
    "validate": "evaluate a trained agent: maze-pl validate RUN_DIR",
    "test": "the same as validate, under Lightning's name for it",
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
  maze-pl fit --config ppo_cartpole --wandb  log to Weights & Biases, too (offline unless logged in)
  maze-pl fit --resume RUN_DIR            go on where a run ended; options given here win
  maze-pl fit --warm-start RUN_DIR        begin a new run with the weights and statistics of another
  maze-pl validate RUN_DIR
  maze-pl list environments
  maze-pl new my_project

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
        The exit status: 0, 1 if a wanted return was not reached, 2 if the user asked for something impossible,
        130 or 143 if INT or TERM ended the command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    arguments = [argument for argument in given if argument != DEBUG]
    is_debugged = arguments != given
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
        names = "\n".join(f"  {name}" for name in known_names())
        (sys.stdout if arguments else sys.stderr).write(HELP.format(commands=commands, names=names))
        return 0 if arguments else 2
    if arguments[0] == "--version":
        sys.stdout.write(f"maze-pl {__version__}\n")
        return 0
    if arguments[0] in ("list", "new"):
        return _answer(arguments[0], arguments[1:])
    is_launched = follow_main_process()
    try:
        with StopSignals(deferred=is_launched) as signals:
            if arguments[0] not in COMMANDS:
                hint = suggestion(arguments[0], COMMANDS)
                raise ConfigurationError(f"there is no command {arguments[0]!r}: use {', '.join(COMMANDS)}{hint}")
            prepared = prepare(arguments)
            sys.path += [folder for folder in project_folders(arguments) if folder not in sys.path]
            with _imports_at_full_speed():
                from maze_pl.cli import run
            status = run(prepared, arguments, signals)
            stopped = 0 if is_launched else 128 + signals.received
        return stopped if signals.received else status
    except StoppedBySignal as error:
        return int(str(error.code))
    except Exception as error:
        from maze_pl.errors import message_of

        message = message_of(error)
        if message is None:
            raise
        if is_debugged:
            traceback.print_exception(error)
        sys.stderr.write(f"maze-pl: error: {message}\n")
        return 2


def _answer(command: str, operands: Sequence[str]) -> int:
    """Run a command that needs neither torch nor Lightning."""
    from maze_pl.listing import listing
    from maze_pl.project import create_project

    try:
        if any(operand.startswith("-") for operand in operands) or (command == "new" and len(operands) != 1):
            raise ConfigurationError(f"{command}: {COMMANDS[command]}")
        sys.stdout.write(listing(operands) if command == "list" else create_project(Path(operands[0])))
    except ConfigurationError as error:
        sys.stderr.write(f"maze-pl: error: {error}\n")
        return 2
    return 0


@contextlib.contextmanager
def _imports_at_full_speed() -> Iterator[None]:
    """Spare the garbage collector from looking at what imports make, now and later: that took a third of their time."""
    if "maze_pl.cli" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
