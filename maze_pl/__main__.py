"""The command `maze-pl`: answers what needs no torch at once, and hands everything else to the command line proper."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from maze_pl import __version__
from maze_pl.configuration import ConfigurationError, known_names, prepare

COMMANDS = {
    "fit": "train an agent",
    "validate": "evaluate a trained agent: maze-pl validate RUN_DIR",
    "test": "the same as validate, under Lightning's name for it",
}

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
  maze-pl validate RUN_DIR

names (looked up in ./configs, the folders of MAZE_PL_CONFIG_PATH, and those that come with maze_pl):
{names}

`maze-pl COMMAND --help` lists every option of a command, `--print_config` shows what a command would run.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `maze-pl`.

    Args:
        arguments: The command line without the program's name; that of the process if None.

    Returns:
        The exit status: 0, 1 if a wanted return was not reached, 2 if the user asked for something impossible.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:10} {text}" for name, text in COMMANDS.items())
        names = "\n".join(f"  {name}" for name in known_names())
        (sys.stdout if arguments else sys.stderr).write(HELP.format(commands=commands, names=names))
        return 0 if arguments else 2
    if arguments[0] == "--version":
        sys.stdout.write(f"maze-pl {__version__}\n")
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise ConfigurationError(f"there is no command {arguments[0]!r}: use {', '.join(COMMANDS)}")
        prepared = prepare(arguments)
        from maze_pl.cli import run

        return run(prepared, arguments)
    except ConfigurationError as error:
        sys.stderr.write(f"maze-pl: error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
