"""`maze-pl sweep`: runs with different options, chosen by a grid or by Optuna; also `maze_pl.sweep`."""

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from maze_pl.cli.searched_environments import tell_searched_environments
from maze_pl.cli.shared_folders import shared_folder
from maze_pl.cli.taken_options import taken
from maze_pl.config.assembling import TRUST_OPTION, foreign_options
from maze_pl.config.search_path import ConfigurationError, dump
from maze_pl.config.trust import refusal
from maze_pl.runs.run_directory import claimed, run_directory
from maze_pl.runs.run_output import say
from maze_pl.runs.run_processes import StartProcess
from maze_pl.sweeps.configurations import changed_configuration
from maze_pl.sweeps.dashboard_view import write_hparams_view
from maze_pl.sweeps.methods import optuna_module, require_valid_options
from maze_pl.sweeps.pictures import PICTURES, write_pictures
from maze_pl.sweeps.result import SweepResult, read_plan
from maze_pl.sweeps.search_space import samples
from maze_pl.sweeps.storage import CONFIGURATIONS, JOURNAL_FILE, create_study, open_study, plan_of
from maze_pl.sweeps.sweep_file import (
    CHANGEABLE,
    SWEEP_FILE,
    SweepPlan,
    parse_changes,
    parse_sweep,
    read_content,
    with_absolute_paths,
    with_changes,
)
from maze_pl.sweeps.sweep_runs import SweepRuns
from maze_pl.sweeps.trial_results import trial_directory
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, write_file
from maze_pl.system.signals import StoppedBySignal, StopSignals

_HELP: Final = """usage: maze-pl sweep SWEEP.yaml [options]
       maze-pl sweep --resume DIR [options]
       maze-pl sweep --show DIR

Train with different options, by a grid or by Optuna. SWEEP.yaml is a path or a name, such as
experiment/hyperparameter_search; docs/sweeps.md describes it.

options:
  --run_dir DIR               folder of the sweep; by default outputs/<name of the file>/<date>
  --resume DIR                continue a sweep, including trials that were running
  --show DIR                  print trials, importances and the best trial's command, and draw pictures
  --trust                     allow the files of a sweep to name any class
  --search.OPTION VALUES      search an option, such as --search.model.lr "[1.0e-3, 1.0e-4]"
  --options.OPTION VALUE      set an option of all runs, such as --options.trainer.max_epochs 3
  --KEY VALUE                 change a key of the file: config, objective, sampler, pruner, n_trials,
                              n_seeds, n_parallel, runner, max_failures, seed
"""


def run(_: Any, command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        command: The command line after `maze-pl`.
        signals: Handler of the signals that stop a command.

    Returns:
        The exit status: 0, or 1 if trials are missing because too many have failed or were stopped.

    Raises:
        ConfigurationError: The sweep is impossible, or options contradict each other.
    """
    words = list(command[1:])
    if not words or {"-h", "--help"} & set(words):
        sys.stdout.write(_HELP)
        return 0 if words else 2
    is_trusted = TRUST_OPTION in words
    words = [word for word in words if word != TRUST_OPTION]
    folders, words = taken(words, ("--show", "--resume", "--run_dir"), needed="a folder")
    file = words.pop(0) if words and not words[0].startswith("--") else None
    sources = (file, folders.get("--show"), folders.get("--resume"))
    if sum(source is not None for source in sources) != 1:
        raise ConfigurationError("name one of a sweep file, --resume DIR and --show DIR")
    changes = parse_changes(words)
    if "--show" in folders:
        if changes or "--run_dir" in folders:
            raise ConfigurationError("--show has no further options: omit them")
        _show(SweepResult(folders["--show"]), needs_files=False)
        return 0
    if "--resume" in folders:
        if "--run_dir" in folders:
            raise ConfigurationError("--resume continues in its folder: omit --run_dir")
        return _resume(Path(folders["--resume"]), changes, signals, is_trusted)
    return _begin(str(file), changes, folders.get("--run_dir"), signals, is_trusted)[1]


def sweep(
    sweep: str | Path | Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    run_dir: str | Path | None = None,
    trust: bool = False,
    **changes: Any,
) -> SweepResult:
    """Train with different options, chosen by a grid or by Optuna; the same as `maze-pl sweep`.

    Each trial is trained by a separate process. INT and TERM stop the sweep; it continues with `resume`.

    Example:
        maze_pl.sweep({"config": "ppo_cartpole", "search": {"model.lr": [1e-3, 1e-4]}, "sampler": "grid"})

    Args:
        sweep: Path or name of a sweep file, or its content; see docs/sweeps.md.
        resume: Folder of a sweep to be continued, instead of `sweep`.
        run_dir: Folder of the sweep; None means a new one below `outputs`.
        trust: Whether the files of the sweep may name any class.
        changes: Keys of the file, such as `n_trials`, which take precedence.

    Returns:
        The trials; `result.best_trials` has the best one.

    Raises:
        ConfigurationError: The sweep is impossible, or arguments contradict each other.
        KeyboardInterrupt: INT has stopped the sweep.
        SystemExit: TERM has stopped the sweep.
    """
    if (sweep is None) == (resume is None):
        raise ConfigurationError("give either a sweep, or resume=DIR")
    with StopSignals() as signals:
        if resume is not None:
            if run_dir is not None:
                raise ConfigurationError("resume continues in its folder: omit run_dir")
            folder = Path(resume)
            _resume(folder, changes, signals, trust)
        else:
            assert sweep is not None
            folder, _ = _begin(sweep, changes, None if run_dir is None else str(run_dir), signals, trust)
    _raise_signal(signals)
    return SweepResult(folder)


def _raise_signal(signals: StopSignals) -> None:
    """Raise what a signal would have raised if the sweep had not handled it."""
    if signals.received == signal.SIGINT:
        raise KeyboardInterrupt
    if signals.received:
        raise StoppedBySignal(signals.received)


def _begin(
    source: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any],
    named: str | None,
    signals: StopSignals,
    is_trusted: bool,
) -> tuple[Path, int]:
    """Start a sweep; return its folder and the exit status."""
    optuna_module()
    content, name = read_content(source)
    plan = parse_sweep(with_absolute_paths(with_changes(content, changes), Path.cwd()))
    if named is not None and Path(named, SWEEP_FILE).is_file():
        remedy = f"choose another folder, or continue it with `maze-pl sweep --resume {shlex.quote(named)}`"
        raise ConfigurationError(f"{named} holds a sweep: {remedy}")
    require_valid_options(plan.sampler, plan.pruner, plan.parameters)
    _check_options(plan)
    with contextlib.ExitStack() as undo, _run_dir_variable():
        folder = Path(run_directory(None, named, name, undo, is_one_run=False))
        with claimed(folder):
            write_file(folder / SWEEP_FILE, plan.text.encode())
            write_hparams_view(folder, plan)
            study = create_study(folder, plan)
            return folder, _run(plan, study, folder, signals, is_trusted)


def _resume(folder: Path, changes: Mapping[str, Any], signals: StopSignals, is_trusted: bool) -> int:
    """Continue a sweep; return the exit status."""
    for key in changes:
        if key not in CHANGEABLE:
            allowed = f"only {', '.join(CHANGEABLE)} may change"
            raise ConfigurationError(f"{key} is fixed for the sweep of {folder}: {allowed}; start a new sweep")
    before = read_plan(folder)
    plan = parse_sweep(with_changes(before.content, changes))
    require_valid_options(plan.sampler, plan.pruner, plan.parameters)
    if not is_trusted:
        _require_trust(plan, folder, is_runner_given="runner" in changes)
    with claimed(folder), _run_dir_variable():
        study = open_study(folder, plan)
        plan = plan_of(study, plan)
        _check_options(plan)
        if len(study.get_trials(deepcopy=False)) < plan.n_trials:
            fault = changed_configuration(plan, study.user_attrs.get(CONFIGURATIONS))
            if fault is not None:
                raise ConfigurationError(fault)
        if plan.text != before.text:
            write_file(folder / SWEEP_FILE, plan.text.encode())
        return _run(plan, study, folder, signals, is_trusted)


def _require_trust(plan: SweepPlan, folder: Path, is_runner_given: bool) -> None:
    """Refuse files of a sweep that may come from someone else, if they could execute code.

    Args:
        plan: The sweep.
        folder: Its folder.
        is_runner_given: Whether the user has named the runner.

    Raises:
        ConfigurationError: They name classes outside of the trusted libraries, or contain pickles.
    """
    remedy = f"if you trust the origin of this folder, use {TRUST_OPTION}"
    if plan.sampler.name == "cmaes":
        raise ConfigurationError(f"the storage of the sampler cmaes contains pickles, which may execute code; {remedy}")
    foreign = _foreign_names(plan, folder, is_runner_given=is_runner_given)
    if foreign:
        raise ConfigurationError(f"{refusal(folder / SWEEP_FILE, foreign)}; {remedy}")


def _foreign_names(plan: SweepPlan, folder: Path, *, is_runner_given: bool) -> dict[str, None]:
    """Return what the files of a sweep name for which it needs `--trust`; see `_require_trust`."""
    foreign: dict[str, None] = {}
    address = plan.runner.options.get("address", "auto")
    if address != "auto" and not is_runner_given:
        foreign[f"address: {address}"] = None  # of a Ray cluster, which exchanges pickles
    for assignment in samples(plan.parameters):
        foreign.update(dict.fromkeys(foreign_options(plan.command(assignment, folder))))
    return foreign


def _check_options(plan: SweepPlan) -> None:
    """Refuse options and KPIs that do not exist, and values of a wrong type."""
    from maze_pl.cli.objective_check import check_kpis
    from maze_pl.cli.option_check import check_options

    single = replace(plan, n_seeds=1)  # `--seeds` is not an option of a run
    assignments = list(samples(plan.parameters))
    for assignment in assignments:
        try:
            _require_separate_checkpoints(single, assignment)
            check_options([single.command(assignment, Path("run"))])
        except ConfigurationError as error:
            values = ", ".join(f"{option}={dump(value)}" for option, value in assignment.items())
            raise ConfigurationError(f"{error} (in a trial with {values})") from error
    metrics = [objective.metric for objective in plan.objectives]
    first = single.command(assignments[0], Path("run"))
    check_kpis(first, metrics)
    tell_searched_environments(first, [parameter.option for parameter in plan.parameters], metrics)


def _require_separate_checkpoints(plan: SweepPlan, assignment: Mapping[str, Any]) -> None:
    """Refuse a folder for checkpoints to which several trials would write.

    Args:
        plan: The sweep.
        assignment: Searched option -> value.

    Raises:
        ConfigurationError: An option or the configuration names such a folder.
    """
    run_dirs = [trial_directory(Path("sweep"), number) for number in range(2)]
    shared = shared_folder({n: plan.command(assignment, run_dir) for n, run_dir in enumerate(run_dirs)})
    if shared is not None:
        fault = f"{shared.option}={shared.value} is one folder for the checkpoints of all trials"
        remedy = "omit it, or begin it with ${run_dir}, the run directory of the trial"
        raise ConfigurationError(f"{fault}: {remedy}")


@contextlib.contextmanager
def _run_dir_variable() -> Iterator[None]:
    """Restore the variable that names the run directory of this process."""
    before = os.environ.get(RUN_DIR_VARIABLE)
    try:
        yield
    finally:
        os.environ.pop(RUN_DIR_VARIABLE, None)
        if before is not None:
            os.environ[RUN_DIR_VARIABLE] = before


def _run(plan: SweepPlan, study: Any, folder: Path, signals: StopSignals, is_trusted: bool) -> int:
    """Run the trials of a sweep, and print the results; return the exit status."""
    say(f"sweep of {plan.n_trials} trials: {folder}")
    with contextlib.ExitStack() as undo:
        start: StartProcess | None = None
        if plan.runner.name == "ray":
            from maze_pl.sweeps.ray_processes import RayProcesses

            start = undo.enter_context(RayProcesses(plan.runner.options.get("address"), plan.n_parallel))
        runs = SweepRuns(plan, study, folder, signals, is_trusted, start)
        runs.run()
    result = SweepResult(folder)
    _show(result)
    if runs.is_complete and not runs.has_failed_too_often:
        return 0
    again = _command_to_continue(plan, folder, is_trusted)
    if runs.has_failed_too_often:
        limit = f"{runs.n_failures} trials have failed, more than max_failures={plan.max_failures}"
        sys.stderr.write(f"maze-pl: {limit}; to continue nevertheless: {again} --max_failures {runs.n_failures}\n")
    else:
        say(f"to continue: {again}")
    return 1


def _command_to_continue(plan: SweepPlan, folder: Path, is_trusted: bool) -> str:
    """Return the command that continues a sweep, with `--trust` if it needs it."""
    is_needed = is_trusted or plan.sampler.name == "cmaes"
    if not is_needed:
        try:
            is_needed = bool(_foreign_names(plan, folder, is_runner_given=False))
        except ConfigurationError:  # a file is gone in the meantime, which continuing reports
            is_needed = False
    trust = f" {TRUST_OPTION}" if is_needed else ""
    return f"maze-pl sweep --resume {shlex.quote(str(folder))}{trust}"


def _show(result: SweepResult, *, needs_files: bool = True) -> None:
    """Print the table of a sweep, and write table and pictures to its folder.

    Args:
        result: The sweep.
        needs_files: Whether a folder that cannot be written to is an error.
    """
    sys.stdout.write(f"\n{result.table()}\n\n")
    sys.stdout.flush()
    pictures: list[Path] = []
    try:
        result.write_table()
        pictures = write_pictures(result)
    except OSError as error:
        if needs_files:
            raise
        sys.stderr.write(f"maze-pl: table and pictures are not written: {error}\n")
    if pictures:
        names = ", ".join(path.name for path in pictures)
        sys.stdout.write(f"pictures: {result.folder / PICTURES} ({names})\n")
    if all(trial.status == "failed" for trial in result.trials):
        return  # there are no curves, and no values to compare
    folder, journal = (shlex.quote(str(path)) for path in (result.folder, result.folder / JOURNAL_FILE))
    sys.stdout.write(f"next:\n  tensorboard --logdir {folder}\n  optuna-dashboard {journal}\n")
    sys.stdout.flush()
