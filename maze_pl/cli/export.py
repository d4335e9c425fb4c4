"""`maze-pl export`: writes a trained policy and its wrappers to one file that runs without maze_pl."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maze_pl.cli.command_options import OptionParser, require_writable


def run(_: Any, command: Sequence[str], *__: Any) -> int:
    """Run the command.

    Args:
        command: The command line as the user gave it.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The policy cannot be exported, or the file cannot be written.
    """
    parser = OptionParser("export", "Write a trained policy and its wrappers to one file, and test it.")
    parser.add_paths("run", "run directory, or a checkpoint")
    parser.add_argument("--to", type=Path, metavar="FILE", required=True, help="the file")
    which = "checkpoint of the run: best (the default), last, or a file"
    parser.add_argument("--checkpoint", default="best", metavar="NAME", help=which)
    tested = "episodes that the file is tested on (default: 5)"
    parser.add_argument("--episodes", type=int, default=5, metavar="N", help=tested)
    limit = "acts after which such an episode is abandoned (default: 200)"
    parser.add_argument("--max_steps", type=int, default=200, metavar="N", help=limit)
    parser.add_argument("--seed", type=int, default=0, help="determines these episodes (default: 0)")
    parser.add_argument("--trust", action="store_true", help="let the run name any class")
    options = parser.parse(command[1:])
    require_writable(options.to)
    from maze_pl.bundle.export import export

    manifest = export(
        options.run,
        options.to,
        checkpoint=options.checkpoint,
        episodes=options.episodes,
        max_steps=options.max_steps,
        seed=options.seed,
        trust=options.trust,
    )
    sys.stdout.write(f"{_summary(manifest)}\n{options.to}\n")
    return 0


def _summary(manifest: dict[str, Any]) -> str:
    """Describe a bundle in a few lines: what it was tested on, and what it leaves to its caller."""
    parity = manifest["parity"]
    number = f"{parity['largest_difference']:.1g}"
    lines = [f"equal in {parity['decisions']} decisions of {parity['episodes']} episodes (numbers up to {number})"]
    for role in manifest["wrappers"]:
        where = "in the file" if role["is_included"] else "left to the caller"
        lines.append(f"{where}: {role['name']}: {role['note']}")
    return "\n".join(lines)
