"""`maze-pl estimate`: estimates from recorded episodes how good an agent is, without playing it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maze_pl.cli.command_options import OptionParser
from maze_pl.config.search_path import ConfigurationError
from maze_pl.estimation.estimate import ESTIMATORS, estimate
from maze_pl.runs.run_checkpoints import BEST
from maze_pl.system.atomic_files import write_file

_JSON = "estimates.json"
_CSV = "estimates.csv"


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: Something cannot be read, does not fit, or has no probabilities.
    """
    options = _parser().parse(command[1:])
    folder = options.to
    if folder is not None and folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise ConfigurationError(f"--to {folder} exists: name a folder that is missing or empty")
    try:
        found = estimate(
            options.agent,
            options.episodes,
            options.behaviour,
            estimators=options.estimator or ESTIMATORS,
            gamma=options.gamma,
            deterministic=options.deterministic,
            n_fits=options.n_fits,
            seed=options.seed,
            trust=options.trust,
            progress=True,
            checkpoint=options.checkpoint,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    sys.stdout.write(f"{found.text()}\n")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / _JSON, found.to_json().encode())
        write_file(folder / _CSV, found.to_csv().encode())
        sys.stdout.write(f"files: {folder}\n")
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("estimate", "Estimate an agent from recorded episodes, without playing it.")
    parser.add_argument("agent", metavar="RUN_DIR", help="run directory or checkpoint of the agent")
    checkpoint = "checkpoint of the run: best, last, or a file (default: best)"
    parser.add_argument("--checkpoint", default=BEST, metavar="NAME", help=checkpoint)
    episodes = "file or folder with recorded episodes; may be repeated"
    parser.add_argument("--episodes", type=Path, action="append", required=True, metavar="PATH", help=episodes)
    behaviour = "policy that recorded them: a run directory, random, or clone to learn it (default: clone)"
    parser.add_argument("--behaviour", default="clone", metavar="POLICY", help=behaviour)
    names = f"{', '.join(ESTIMATORS)}; may be repeated (default: all)"
    parser.add_argument("--estimator", action="append", default=[], choices=ESTIMATORS, metavar="NAME", help=names)
    gamma = "discount of an environment step, from 0 to 1 (default: that of the agent)"
    parser.add_argument("--gamma", type=float, metavar="GAMMA", help=gamma)
    deterministic = "the agent takes its most likely actions; needs --estimator fitted_q"
    parser.add_argument("--deterministic", action="store_true", help=deterministic)
    n_fits = "number of fits of fitted Q evaluation, each on a sample of the episodes (default: 5)"
    parser.add_argument("--n_fits", type=int, default=5, metavar="N", help=n_fits)
    parser.add_argument("--seed", type=int, default=0, help="determines all random numbers (default: 0)")
    trust = "runs may name any class, and files of states may be read, because you know who made them"
    parser.add_argument("--trust", action="store_true", help=trust)
    to = f"folder for {_JSON} and {_CSV}; it must be missing or empty"
    parser.add_argument("--to", type=Path, metavar="FOLDER", help=to)
    return parser
