"""`maze-pl view`: writes an HTML file that shows episodes act by act."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from jsonargparse import ArgumentError, ArgumentParser

from maze_pl.cli.command_options import require_writable
from maze_pl.config.assembling import Prepared
from maze_pl.config.messages import explain
from maze_pl.config.search_path import OUTPUT_FOLDER, ConfigurationError
from maze_pl.system.atomic_files import write_file
from maze_pl.viewer.document import FILE_NAME, episode_document
from maze_pl.viewer.html_page import html_page
from maze_pl.viewer.playing import Actions, PlayOptions
from maze_pl.viewer.sources import episodes_of_paths

_NOTHING_NAMED = "name what to view: a run directory, the folder of a rollout, or files of episodes"

_DESCRIPTION: Final = "Look at episodes in a browser: write a page that shows them, and print its path."


def show(
    paths: list[str],
    to: str | None = None,
    n_episodes: int | None = None,
    seed: int = 0,
    actions: Actions = "most_likely",
    temperature: float = 1.0,
    max_steps: int = 10_000,
    checkpoint: str = "best",
    compare_with: str | None = None,
    pictures: bool = True,
    renderer_arguments: dict[str, Any] | None = None,
    title: str = "",
    trust: bool = False,
) -> None:
    """Write the view of episodes, and print its path.

    Args:
        paths: Run directories or checkpoints, whose agents play; folders of rollouts; files of
            space records or, with `--trust`, state records.
        to: The HTML file; None means `view.html` in the first folder, or in the current one.
        n_episodes: Number of episodes of each path; None means one that is played, and at most ten
            that are read.
        seed: Determines the episodes that are played.
        actions: Whether agents play their most likely actions, sample them (`sampled`), or play
            each episode twice (`both`).
        temperature: Above 1 flattens the distributions of sampled actions, below 1 sharpens them.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        checkpoint: Checkpoint of a run: `best`, `last`, or a file.
        compare_with: Second policy that plays the same seeds, shown side by side: `heuristic` (the
            policy that the environment names), `random`, `last`, `best`, a checkpoint, another run
            directory, or a class path.
        pictures: Whether states are drawn, or frames of gymnasium environments recorded.
        renderer_arguments: Values of the renderer's arguments, such as `{"scale": 2}`.
        title: Title of the view.
        trust: Whether runs may name any class and state records be read, because you know who made
            them.

    Raises:
        ConfigurationError: There is nothing to view, or something cannot be read.
    """
    values = dict(locals())
    options = PlayOptions(**{one.name: values[one.name] for one in fields(PlayOptions) if one.name in values})
    target = Path(to) if to is not None else _default_target(Path(paths[0]))
    if target.is_dir():
        raise ConfigurationError(f"--to {target} is a folder: name a file, such as {target / FILE_NAME}")
    require_writable(target)
    episodes, pairs = episodes_of_paths([Path(path) for path in paths], options, progress=True)
    page = html_page(episode_document(episodes, pairs, title, progress=True))
    try:
        write_file(target, page.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{target}\n")


def _default_target(path: Path) -> Path:
    """Return the file that a view is written to by default."""
    if path.is_dir():
        return path / FILE_NAME
    is_checkpoint = path.suffix == ".ckpt" and path.parent.name == "checkpoints"
    return (path.parents[1] if is_checkpoint else Path()) / FILE_NAME


def run(arguments: Prepared, command: Sequence[str], *_: Any) -> int:
    """Run the command.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The options do not describe a view.
    """
    parser = ArgumentParser(prog="maze-pl view", exit_on_error=False, allow_abbrev=False, description=_DESCRIPTION)
    help_text = "Run directories, checkpoints, folders of rollouts, and files of records."
    parser.add_argument("paths", nargs="+", type=str, help=help_text)
    parser.add_function_arguments(show, as_group=False, skip={"paths"})
    try:
        options = vars(parser.parse_args(arguments[1:]))
    except ArgumentError as error:
        example = f"maze-pl view {OUTPUT_FOLDER}/ppo_cartpole/2026-11-20_12-00-00"
        fault = explain(str(error), options_known())
        if fault == "missing required options: --paths":
            fault = f"{_NOTHING_NAMED}; for example {example}"
        raise ConfigurationError(fault) from error
    show(**dict(options))
    return 0


def options_known() -> list[str]:
    """Return the names of the options, to suggest one in place of an unknown one."""
    return list(show.__annotations__)
