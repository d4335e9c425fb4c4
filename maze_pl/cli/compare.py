"""`maze-pl compare`: plays the same episodes with several agents and policies, and compares their results."""

import copy
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from maze_pl.cli.check import parsed
from maze_pl.collect.engines import Engine
from maze_pl.comparison.compare import compare
from maze_pl.comparison.results import Comparison
from maze_pl.comparison.sources import source_key
from maze_pl.comparison.tables import console_text
from maze_pl.comparison.writing import PAGE_FILE
from maze_pl.config.assembling import SEEDS_FILE, TRUST_OPTION, options_of, prepare
from maze_pl.config.pieces import CONFIG_OPTIONS, RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.trust import extend_import_path
from maze_pl.core.actor_id import StepKey
from maze_pl.envs.building import Env
from maze_pl.runs.tables import interval_text
from maze_pl.system.signals import StopSignals

_DESCRIPTION: Final = "Play the same episodes with several agents, and compare them."
_FLAGS: Final = ("--deterministic", "--lower_is_better")
_RENAMED: Final = {"--lower-is-better": "--lower_is_better", "--must-beat": "--must_beat"}
_WITHOUT_VALUE: Final = (TRUST_OPTION, "--help", "-h", "--print_config")
_ENVIRONMENT: Final = ("env", "wrappers", "action_masks", "max_agents")


@dataclass
class CommandLine:
    """The parts of a command line.

    Attributes:
        entries: Run directories and policies.
        baselines: Values of `--baseline`.
        searches: Values of `--search`.
        must_beat: Value of `--must-beat`.
        options: All other options.
    """

    entries: list[str] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    must_beat: str | None = None
    options: list[str] = field(default_factory=list)


def play(
    entries: list[str] | None = None,
    baseline: list[str] | None = None,
    env: Callable[[], Env] | None = None,
    wrappers: list[Callable[[Any], Env]] | None = None,
    action_masks: dict[str, str] | None = None,
    max_agents: dict[StepKey, int] | None = None,
    n_episodes: int = 100,
    seed: int = 0,
    episode_seeds: list[int] | str | None = None,
    max_steps: int = 0,
    deterministic: bool = False,
    search: list[str] | None = None,
    n_envs: int = 4,
    checkpoint: str = "best",
    metric: str = "return",
    lower_is_better: bool = False,
    must_beat: str | None = None,
    precision: float | None = None,
    max_episodes: int = 10_000,
    runner: Engine | None = None,
    to: str | None = None,
    views: bool = True,
    run: str | None = None,
    trust: bool = False,
    command: str | None = None,
) -> Comparison:
    """Play the same episodes with agents and policies, and compare their results.

    Args:
        entries: Run directories, folders of several seeds, checkpoints, bundles, and policies (`random`,
            `heuristic`, a group such as `policy/random_policy`, or a class path); written without an option:
            `maze-pl compare RUN_DIR random`.
        baseline: Entry or policy that the others are compared with; may be repeated. Without it, the first entry.
        env: Builds the environment that all play in; by default that of each run, and that of the
            first run for policies.
        wrappers: Wrappers for all, the first one innermost; by default those of each run.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0.
        max_agents: Maximum number of agents at the same time, for sub-steps whose number of agents varies.
        n_episodes: Number of episodes of each run and policy.
        seed: Determines the episodes and the policies' random numbers.
        episode_seeds: Seeds that environments are reset with, instead of seeds that follow from `seed`:
            a list, or a range such as `0-39`. Each is played once, and `n_episodes` has no effect.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        deterministic: Whether policies take their most likely actions.
        search: Search with which each run plays in addition, such as `puct:64` or `best_of:128`; may be
            repeated. If there are no runs, each policy does.
        n_envs: Number of consecutive episodes that are played at the same time.
        checkpoint: Checkpoint of runs: `best` or `last`.
        metric: The metric by which the winner is chosen: `return`, or `kpi/<name>`.
        lower_is_better: Whether lower values of this metric are better; also `--lower-is-better`.
        must_beat: A run or policy, which becomes a baseline; the exit status is 1 unless all entries that
            are not baselines are better than it, with an interval of the difference that excludes 0; also
            `--must-beat`.
        precision: Episodes are added until intervals of the metric are narrower than this.
        max_episodes: Largest number of episodes for `precision`.
        runner: Plays the episodes: `sequential`, `parallel`, or an engine; by default this process or,
            if it takes long, worker processes.
        to: Folder for tables, a picture, and a page that links episodes; it must be missing or empty.
        views: Whether the files include the best, the median, the worst and the most different
            episodes, in the viewer.
        run: Run directory whose environment is used, with the options that change it.
        trust: Whether runs may name any class, because you know who made them.
        command: The command line, saved with the results.
    """
    return compare(
        *(entries or ()),
        baselines=baseline or (),
        env=env,
        wrappers=wrappers,
        action_masks=action_masks,
        max_agents=max_agents,
        n_episodes=n_episodes,
        seed=seed,
        episode_seeds=episode_seeds,
        max_steps=max_steps,
        deterministic=deterministic,
        search=search or (),
        n_envs=n_envs,
        checkpoint=checkpoint,
        metric=metric,
        lower_is_better=lower_is_better,
        precision=precision,
        max_episodes=max_episodes,
        to=to,
        views=views,
        trust=trust,
        make_engine=None if runner is None else lambda: copy.deepcopy(runner),
        progress=True,
        command=command,
        receive=partial(_print_table, to=to if views else None),
    )


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        arguments: The command line after `maze-pl`.
        command: The same, to be saved with the results.
        signals: Handler of the signals that stop a command; they stop this one immediately.

    Returns:
        The exit status; see `play`.

    Raises:
        ConfigurationError: Something cannot be compared, or options contradict each other.
    """
    line = _split(arguments[1:])
    must_beat = None if line.must_beat is None else _named_before(line.must_beat, line)
    if must_beat is not None and must_beat not in line.baselines:
        line.baselines.append(must_beat)
    others = {*map(source_key, line.entries)} - {*map(source_key, line.baselines)}
    if must_beat is not None and not others and not line.searches:  # entries that search are added later
        raise ConfigurationError(f"--must-beat {must_beat} needs an entry that is not a baseline: name a run directory")
    if any("." in name and not os.path.exists(name) for name in (*line.entries, *line.baselines)):
        extend_import_path([str(Path.cwd())])  # for class paths that the user names
    prepared = prepare(_words(line), ["compare", *arguments[1:]])
    described = {"description": _DESCRIPTION, "subject": "RUN_DIR|POLICY ..."}
    options = parsed(play, "compare", prepared, {"command"}, **described)[0]
    names = options_of(line.options)
    for name in _ENVIRONMENT:
        is_given = any(option.startswith((f"--{name}", f"--data.{name}", *CONFIG_OPTIONS)) for option in names)
        if not is_given:
            options[name] = None
    comparison = play(**options, command=shlex.join(["maze-pl", *command]))
    if options["to"] is not None:
        sys.stdout.write(f"\nfiles: {options['to']}\npage: {Path(options['to'], PAGE_FILE)}\n")
    return 0 if must_beat is None else _judge(comparison, must_beat)


def _print_table(comparison: Comparison, to: str | None) -> None:
    """Print the tables, and that views follow.

    Args:
        comparison: The table.
        to: Folder in which views of episodes are written after that; None for no views.
    """
    sys.stdout.write(f"\n{console_text(comparison)}\n")
    if to is not None:
        episodes = f"the episodes of {to} (--views false leaves them out)"
        sys.stdout.write(f"\nplaying and drawing {episodes}\n")
    sys.stdout.flush()


def _judge(comparison: Comparison, name: str) -> int:
    """Return 0 if all entries that are not baselines are better than an entry, else 1 with a message.

    Raises:
        ConfigurationError: All entries are baselines, so that nothing was compared.
    """
    judged = [entry.name for entry in comparison.entries if not entry.is_baseline]
    if not judged:
        raise ConfigurationError(f"nothing was compared with {name}: all entries are baselines")
    status = 0
    for entry in judged:
        if not comparison.is_better(entry, name):
            interval = comparison.difference(entry, name).interval
            shown = "there is no interval" if interval is None else f"the difference is {interval_text(interval)}"
            sys.stderr.write(f"maze-pl: {entry} is not better than {name} by {comparison.metric}: {shown}\n")
            status = 1
    return status


def _split(words: Sequence[str]) -> CommandLine:
    """Split a command line into entries, baselines and options.

    Raises:
        ConfigurationError: An option has no value.
    """
    line = CommandLine()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            line.entries.append(word)
            continue
        name = _RENAMED.get(name, name)
        if name in _FLAGS and not equals:
            value = rest.pop(0) if rest and rest[0] in ("true", "false") else "true"
        elif name in _WITHOUT_VALUE:
            line.options.append(word)
            continue
        elif not equals:
            if not rest:
                raise ConfigurationError(f"{word} needs a value")
            value = rest.pop(0)
        if name == "--baseline":
            line.baselines.append(value)
        elif name == "--search":
            line.searches.append(value)
        elif name == "--must_beat":
            line.must_beat = value
        else:
            line.options.append(f"{name}={value}")
    return line


def _named_before(name: str, line: CommandLine) -> str:
    """Return the entry or baseline that `--must-beat` refers to; the name itself if it is a further baseline.

    That is one with the same path, else one whose last folders have this name, unless there is such a path.

    Raises:
        ConfigurationError: Several of them have this name.
    """
    known = list(dict.fromkeys([*line.entries, *line.baselines]))
    same = [one for one in known if source_key(one) == source_key(name)]
    if same or os.path.exists(name):
        return next(iter(same), name)
    named = [one for one in known if os.path.normpath(one).endswith(f"{os.sep}{os.path.normpath(name)}")]
    if len(named) > 1:
        raise ConfigurationError(f"--must-beat {name} may be {' or '.join(named)}: name one of them")
    return next(iter(named), name)


def _words(line: CommandLine) -> list[str]:
    """Return the command line in the form that `prepare` takes."""
    given = {"entries": line.entries, "baseline": line.baselines, "search": line.searches}
    words = ["compare", *[f"--{name}={json.dumps(values)}" for name, values in given.items()]]
    about = tuple(f"--{part}{name}" for name in _ENVIRONMENT for part in ("", "data."))
    is_changed = any(option.startswith(about) for option in options_of(line.options))
    first = next((entry for entry in (*line.entries, *line.baselines) if _has_configuration(entry)), None)
    if is_changed and first is not None:
        words.append(f"--run={_first_run(first)}")
    return [*words, *line.options]


def _has_configuration(entry: str) -> bool:
    """True if an entry is a run directory or a folder of several seeds."""
    return any(Path(entry, name).is_file() for name in (RUN_CONFIG, SEEDS_FILE))


def _first_run(folder: str) -> str:
    """Return a run directory itself, or the first one in a folder of several seeds."""
    if Path(folder, RUN_CONFIG).is_file():
        return folder
    runs = sorted(path.parent for path in Path(folder).glob(f"seed_*/{RUN_CONFIG}"))
    if not runs:
        raise ConfigurationError(f"{folder} should hold runs of several seeds, but there is none yet")
    return str(runs[0])
