"""`maze-pl fit --seeds`: the same training with several seeds, each in a process, and a table of the results.

This file reads the command line and plans the runs; `maze_pl.runs.seed_runs` starts their processes.
"""

import contextlib
import json
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final

from maze_pl.cli.shared_folders import shared_folder
from maze_pl.cli.taken_options import taken
from maze_pl.config.assembling import SEEDS_FILE, TRUST_OPTION, Prepared, foreign_options, prepare
from maze_pl.config.digest import RESTORE_IT, configuration_digest
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, parse
from maze_pl.config.summary import configured_value
from maze_pl.config.trust import refusal
from maze_pl.runs.run_directory import claimed, run_directory
from maze_pl.runs.seed_results import RESULTS_FILE, read_results
from maze_pl.runs.seed_runs import SeedPlan, SeedRuns, seed_directory
from maze_pl.system.atomic_files import write_file
from maze_pl.system.signals import StopSignals, is_launched_rank

SEEDS: Final = "--seeds"
PARALLEL: Final = "--seeds.parallel"
_SEED_OPTION: Final = "--seed_everything"
_EXPERIMENT: Final = "--experiment"
_DISPLAYED: Final = ("--print_config", "--print_model", "--help", "-h")
_LARGEST_SEED: Final = 2**32 - 1  # of Lightning


def is_for_seeds(arguments: Sequence[str]) -> bool:
    """True if a command line of `fit` trains with several seeds, or continues such a training.

    Args:
        arguments: The command line after `maze-pl`.
    """
    values, _ = taken(arguments, (SEEDS, PARALLEL, "--resume"))
    if SEEDS in values or PARALLEL in values:
        return True
    return "--resume" in values and Path(values["--resume"], SEEDS_FILE).is_file()


def run(arguments: Sequence[str], signals: StopSignals) -> int:
    """Train with several seeds.

    Args:
        arguments: The command line after `maze-pl`.
        signals: Handler of the signals that stop a command.

    Returns:
        The exit status: 0, or 1 if not all seeds have finished.

    Raises:
        ConfigurationError: Options contradict each other or are invalid, or no seed can be trained.
    """
    values, options = taken(arguments[1:], (SEEDS, PARALLEL, "--resume", "--run_dir"))
    if is_launched_rank() or os.environ.get("TORCHELASTIC_RUN_ID"):
        raise ConfigurationError(f"{SEEDS} starts a process for each seed: run the command once, without torchrun")
    n_parallel = _count(values.get(PARALLEL, "1"))
    with contextlib.ExitStack() as undo:
        if "--resume" in values:
            folder = Path(values["--resume"])
            plan, commands = _resumed(folder, values, options)
        else:
            plan, folder = _planned(values, options, undo)
            commands = {seed: _first_command(plan, seed, folder, options) for seed in plan.seeds}
        if "--resume" not in values or _changes(options):
            _refuse_shared_folders(commands)
        if _is_displayed(options):
            return _display(next(iter(commands.values())), signals)
        with claimed(folder):
            files = [folder / SEEDS_FILE, folder / RESULTS_FILE]
            before = {path: path.read_bytes() for path in files if path.is_file()}
            started = {seed for seed, command in commands.items() if "--resume" in command}
            fault = partial(_fault, plan, started)
            runs = SeedRuns(plan, folder, commands, n_parallel, signals, fault)
            runs.write()  # first: a seed that is to continue no longer counts as finished
            write_file(folder / SEEDS_FILE, f"{json.dumps(asdict(plan), indent=1)}\n".encode())
            runs.train()
            status = runs.report(TRUST_OPTION in options)
            if "--resume" in values and _changes(options) and runs.was_impossible:
                for path, content in before.items():  # forget a mistyped option
                    write_file(path, content)
            return status


def _is_displayed(options: Sequence[str]) -> bool:
    """True if a command only prints something."""
    return any(option.partition("=")[0] in _DISPLAYED for option in options)


def _display(command: Sequence[str], signals: StopSignals) -> int:
    """Run the command of one seed, which only prints something, in this process."""
    from maze_pl.cli import fit

    return fit.run(prepare(command), command, signals)


# ------------------------------------------------------------------------------------------------------------- plans


def _planned(values: dict[str, str], options: Sequence[str], undo: contextlib.ExitStack) -> tuple[SeedPlan, Path]:
    """Return the plan of a new training, and the folder of its runs.

    Raises:
        ConfigurationError: The seeds are invalid, or the command is.
    """
    if SEEDS not in values:
        raise ConfigurationError(f"{PARALLEL} is the number of seeds trained at a time: give {SEEDS}, too")
    original = ["fit", *options, *(word for option in values.items() for word in option)]
    prepared = prepare(_example(options), original)
    seeds = _seeds(values[SEEDS], options)
    kept = [option for option in options if option != TRUST_OPTION]
    plan = SeedPlan(seeds, kept, options_digest=configuration_digest(["fit", *kept]))
    if _is_displayed(options):
        return plan, Path(values.get("--run_dir", "."))
    folder = Path(run_directory(None, values.get("--run_dir"), _experiment(prepared), undo, is_one_run=False))
    return plan, folder


def _example(options: Sequence[str]) -> list[str]:
    """Return the command of one seed, before the seeds and their folder are known.

    It has a run directory, as each seed has, so that options may refer to it.

    Args:
        options: Options of all seeds.
    """
    return ["fit", *options, "--run_dir", str(seed_directory(Path(), 0))]


def _experiment(prepared: Prepared) -> str | None:
    """Return the folder under `outputs` of a command."""
    return taken(prepared, (_EXPERIMENT,))[0].get(_EXPERIMENT)


def _seeds(text: str, options: Sequence[str]) -> list[int]:
    """Return the seeds for a value of `--seeds`.

    Raises:
        ConfigurationError: It is neither a count nor a list of different seeds.
    """
    value = parse(text)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if is_count:
        first = configured_value(_example(options), "seed_everything")
        first = 0 if first is None else first
        if isinstance(first, bool) or not isinstance(first, int):
            fault = f"seed_everything={first}, from which {SEEDS} {value} counts, is not a number"
            raise ConfigurationError(f"{fault}: give one, or a list such as {SEEDS} [3,7,9]")
        seeds = list(range(first, first + value))
    elif isinstance(value, list) and value:
        if _SEED_OPTION in taken(options, (_SEED_OPTION,))[0]:
            raise ConfigurationError(f"{SEEDS} {text} lists the seeds: omit {_SEED_OPTION}")
        seeds = value
    else:
        expected = "a number of seeds such as 5, or a list such as [3,7,9]"
        raise ConfigurationError(f"{SEEDS} {text} is not {expected}")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
            raise ConfigurationError(f"{SEEDS} {text}: {seed!r} is not a seed, a number from 0 to {_LARGEST_SEED}")
    if len(set(seeds)) < len(seeds):
        raise ConfigurationError(f"{SEEDS} {text} has a seed twice: list each seed once")
    return seeds


def _refuse_shared_folders(commands: Mapping[int, Sequence[str]]) -> None:
    """Refuse options or configurations by which several seeds would write the same checkpoints.

    Args:
        commands: Seed -> its command; references may have put the seed into a path.

    Raises:
        ConfigurationError: A folder of checkpoints is the same for two seeds.
    """
    shared = shared_folder(commands)
    if shared is not None:
        conflict = f"the seeds {shared.first} and {shared.second} would write the same files"
        remedy = "omit it, so that each seed writes to its run directory"
        raise ConfigurationError(f"{shared.option}={shared.value}, where {conflict}: {remedy}")


def _count(text: str) -> int:
    """Return the value of `--seeds.parallel`."""
    value = parse(text)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{PARALLEL} {text} is not a number of seeds to train at a time, such as 2")
    return value


def _first_command(plan: SeedPlan, seed: int, folder: Path, options: Sequence[str]) -> list[str]:
    """Return the command that starts the training of a seed."""
    trust = [TRUST_OPTION] if TRUST_OPTION in options else []
    return ["fit", *plan.options, _SEED_OPTION, str(seed), "--run_dir", str(seed_directory(folder, seed)), *trust]


def _changes(options: Sequence[str]) -> list[str]:
    """Return the options that change the runs which a command continues."""
    return [option for option in options if option != TRUST_OPTION]


def _resumed(folder: Path, values: dict[str, str], options: Sequence[str]) -> tuple[SeedPlan, dict[int, list[str]]]:
    """Return the plan of an earlier training, and the commands that its seeds still need.

    A seed that has trained to its end needs none, unless there are options that change its run.
    Options of an earlier command that continued hold for the seeds that have not ended under them.

    Raises:
        ConfigurationError: The folder does not hold runs of several seeds, the command has other
            seeds, a configuration has changed, or options from the folder need `--trust`.
    """
    if not (folder / SEEDS_FILE).is_file():
        raise ConfigurationError(f"{folder} does not hold several seeds: continue its run without {SEEDS}")
    for name in (SEEDS, "--run_dir", _SEED_OPTION):
        if name in values or name in taken(options, (name,))[0]:
            raise ConfigurationError(f"--resume continues the seeds of {folder}: omit {name}")
    plan = _read_plan(folder / SEEDS_FILE)
    changes = _changes(options)
    ended = {result.seed for result in read_results(folder) if result.counts}
    if changes and plan.changes and ended.issuperset(plan.seeds):  # which all have them
        plan = SeedPlan(plan.seeds, [*plan.options, *plan.changes])
    waiting = [seed for seed in plan.seeds if changes or seed not in ended]
    started = {seed for seed in waiting if (seed_directory(folder, seed) / RUN_CONFIG).is_file()}
    for seed in waiting:
        fault = _fault(plan, started, seed)
        if fault is not None:
            raise ConfigurationError(fault)
    if waiting:
        _require_trust(plan, folder, options, started, is_unstarted=len(started) < len(waiting))
    if changes:
        whole = [*plan.changes, *changes]
        plan = replace(plan, changes=whole, changes_digest=configuration_digest(["fit", *whole]))
    trust = [TRUST_OPTION] if TRUST_OPTION in options else []
    commands: dict[int, list[str]] = {}
    for seed in waiting:
        if seed in started:
            run_dir = str(seed_directory(folder, seed))
            commands[seed] = ["fit", "--resume", run_dir, *plan.changes, *trust]
        else:
            commands[seed] = [*_first_command(plan, seed, folder, options), *plan.changes]
    return plan, commands


def _require_trust(
    plan: SeedPlan,
    folder: Path,
    options: Sequence[str],
    started: Collection[int],
    *,
    is_unstarted: bool,
) -> None:
    """Refuse a folder of seeds whose options or runs name something for which `--trust` is needed.

    Args:
        plan: The plan in the folder.
        folder: The folder.
        options: Options of the command.
        started: Seeds whose runs are continued.
        is_unstarted: Whether a seed is started with the options of the plan.
    """
    if TRUST_OPTION in options:
        return
    run_dirs = [str(seed_directory(folder, seed)) for seed in sorted(started)]
    commands = [["fit", "--resume", run_dir, *plan.changes] for run_dir in run_dirs]
    if is_unstarted:
        commands.append(["fit", *plan.options, *plan.changes])
    foreign = dict.fromkeys(name for command in commands for name in foreign_options(command))
    if foreign:
        remedy = f"if you trust the origin of this folder, use {TRUST_OPTION}"
        raise ConfigurationError(f"{refusal(folder / SEEDS_FILE, foreign)}; {remedy}")


def _fault(plan: SeedPlan, started: Collection[int], seed: int) -> str | None:
    """Return a message if a configuration that a seed reads differs from that of the seeds before it.

    Args:
        plan: The plan.
        started: Seeds that were started already, and now only read what changes their runs.
        seed: The seed.
    """
    parts = [(plan.changes, plan.changes_digest)]
    if seed not in started:
        parts.append((plan.options, plan.options_digest))
    for options, digest in parts:
        change = None if digest is None else _digest_fault(options, digest)
        if change is not None:
            return f"{change}: {RESTORE_IT} where the seeds were started"
    return None


def _digest_fault(options: Sequence[str], digest: str) -> str | None:
    """Return a message if a configuration has another digest by now, or cannot be read."""
    try:
        is_same = configuration_digest(["fit", *options]) == digest
    except ConfigurationError as error:
        return f"a configuration of these seeds cannot be read, {error}"
    named = shlex.join(options)
    return None if is_same else f"a configuration in `{named}` has changed since the first seed used it"


def _read_plan(path: Path) -> SeedPlan:
    try:
        plan = SeedPlan(**json.loads(path.read_text(encoding="utf-8")))
        words = [*plan.options, *plan.changes]
        digests = (plan.options_digest, plan.changes_digest)
        is_plan = (
            all(type(seed) is int for seed in plan.seeds)
            and all(isinstance(word, str) for word in words)
            and all(digest is None or isinstance(digest, str) for digest in digests)
        )
    except (OSError, ValueError, KeyError, TypeError):
        is_plan = False
    if not is_plan:
        raise ConfigurationError(f"{path} is damaged: continue each run with `maze-pl fit --resume`")
    return replace(plan, options=_changes(plan.options), changes=_changes(plan.changes))
