"""`maze-pl rollout`: plays episodes with a policy and saves them with their statistics."""

import csv
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal

from jsonargparse.typing import lazy_instance

from maze_pl.cli.check import parsed
from maze_pl.collect.engines import Engine, ProcessEngine
from maze_pl.config.assembling import Prepared
from maze_pl.config.factories import Factory
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.core.provenance import share_provenance
from maze_pl.envs.building import Env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.events import EpochStatistics, EventLogFiles, Histogram
from maze_pl.events.display import render as render_table
from maze_pl.runs.checkpoint import best_or_last, checkpoint_path, read_checkpoint, wrapper_statistics_in
from maze_pl.runs.loading import load
from maze_pl.runs.provenance import PROVENANCE_FILE, collect_provenance, provenance_text
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.runs.run_directory import new_directory, run_directory
from maze_pl.runs.tables import merged_names
from maze_pl.system.atomic_files import write_file
from maze_pl.system.git_state import GitProbe
from maze_pl.system.signals import StoppedBySignal, StopSignals

_DESCRIPTION: Final = "Play episodes with a policy, and save them with their statistics."
_PARALLEL: Final = lazy_instance(ProcessEngine)  # options may configure it
_NO_OPTIONS: Final = {
    *("texts", "signals", "wrapper_statistics", "record", "first_episode"),
    *("progress", "receive", "stop"),
}


def play(
    texts: Mapping[str, str],
    signals: StopSignals,
    env: Callable[[], Env],
    runner: Engine = _PARALLEL,
    policy: dict[str, Any] | str | None = None,
    n_episodes: int = 50,
    max_steps: int = 200,
    trajectories: Literal["states", "spaces", "both", "none"] = "both",
    files: Literal["each", "one"] = "each",
    event_logs: bool = True,
    render: bool = False,
    output_dir: str | None = None,
    run: str | None = None,
    checkpoint: str = "best",
    trust: bool = False,
    **others: Any,
) -> None:
    """Play episodes, and save them.

    Wrappers that record episodes or events are left out: these options take their place.

    Args:
        texts: File name -> text of files that describe the rollout.
        signals: Handler of the signals that stop a command.
        env: Builds one environment; a plain gymnasium environment is adapted.
        runner: Plays the episodes: `sequential`, `parallel`, or an engine.
        policy: `random`, `heuristic` (the policy that the environment names), a group such as
            `policy/random_policy`, or a class path; None means the policy of the run or, without a
            run, `random`.
        n_episodes: Number of episodes.
        max_steps: Env steps after which an episode is truncated; 0 means no limit.
        trajectories: Data to record: states of the simulation, observations and actions (`spaces`),
            both, or none.
        files: Whether each episode has a separate file, or all are in one.
        event_logs: Whether to write all events.
        render: Whether to write each episode as a gif.
        output_dir: Folder of all files; None means `rollouts/<time>` of the run, or
            `outputs/rollout/<time>`.
        run: Directory of the run that provides environment, wrappers and policy.
        checkpoint: Checkpoint of the run: `best`, `last`, or a file.
        trust: Whether the run may name any class, because you know who made it.
        others: Further arguments of `maze_pl.runs.rollout.rollout`.
    """
    began = time.perf_counter()
    recorded = [name for name in ("states", "spaces") if trajectories in (name, "both")]
    actor: Any = policy or "random"
    if isinstance(actor, dict):
        actor = Factory(actor.pop("class_path", "random"), actor.pop("init_args", {}) | actor)
    undo = ExitStack()
    if run is not None:
        path = best_or_last(run) if checkpoint == "best" else checkpoint_path(run, (checkpoint,))
        others["wrapper_statistics"] = wrapper_statistics_in(read_checkpoint(path), path)
        if policy is None:
            actor = load(path, trust=trust)
        output_dir = output_dir or str(new_directory(Path(run, "rollouts"), True, undo))
    folder = Path(run_directory(None, output_dir, "rollout", undo))
    others["wrappers"] = without_recorders(others.get("wrappers"))
    epoch = EpochStatistics()
    events = EventLogFiles()
    file_name = "episodes" if files == "one" else None
    writers = {name: TrajectoryFiles(f"trajectories/{name}", file_name) for name in recorded}

    def receive(trajectory: Trajectory) -> None:
        signals.may_interrupt = False  # while files are written
        if trajectory.summary.episode_index == 0:
            for name, text in texts.items():
                write_file(folder / name, text.encode())
        for name, writer in writers.items():
            writer.write(getattr(trajectory, name))
        for rows in trajectory.events:
            events.append(*rows)
        epoch.add(trajectory.summary)
        trajectory.states = trajectory.spaces = None  # all together may not fit in memory
        trajectory.events = []
        signals.may_interrupt = True

    signals.deferred = signals.may_interrupt = True
    record = list(recorded)
    if event_logs:
        record.append("events")
    if render:
        record.append("gifs")
    try:
        with undo:
            played = rollout(
                env,
                actor,
                n_episodes,
                max_steps=max_steps,
                engine=runner,
                record=record,
                progress=True,
                receive=receive,
                stop=lambda: signals.received,
                **others,
            )
    except StoppedBySignal:
        if signals.has_interrupted:
            place = f" (at {signals.place})" if signals.place else ""
            name = signal.Signals(signals.received).name
            where = f"an episode that took more than {signals.patience:.0f} s longer{place}"
            sys.stderr.write(f"maze-pl: stopped by {name} in {where}\n")
        raise
    signals.may_interrupt = False
    for writer in writers.values():
        writer.close()
    if signals.received:
        name = signal.Signals(signals.received).name
        progress = f"{len(played)} of {n_episodes} episodes"
        sys.stderr.write(f"maze-pl: stopped by {name} after {progress}\n")
    if played:
        _report(folder, played, epoch, time.perf_counter() - began)


def run(arguments: Prepared, command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.
        command: The command line as the user gave it, to be saved with the results.
        signals: Handler of the signals that stop a command.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The options do not describe rollouts.
    """
    probe = GitProbe()
    try:
        options, text = parsed(play, "rollout", arguments, _NO_OPTIONS, description=_DESCRIPTION)
        words = ["maze-pl", *command]
        provenance = collect_provenance(words, options.get("seed"), text, probe=probe)
    finally:
        probe.close()
    share_provenance(provenance)
    texts = {
        RUN_CONFIG: text,
        "command.txt": f"{shlex.join(words)}\n",
        PROVENANCE_FILE: provenance_text([provenance]),
    }
    play(texts, signals, **options)
    return 0


def _report(folder: Path, played: list[Trajectory], epoch: EpochStatistics, seconds: float) -> None:
    """Write the tables of episodes and statistics, and print the statistics."""
    steps = epoch.total_step_count
    statistics = epoch.compute()
    kpis = merged_names(trajectory.summary.kpis for trajectory in played)  # in which some may be missing
    rows: list[Sequence[Any]] = []
    for trajectory in played:
        summary = trajectory.summary
        identity = (summary.episode_index, trajectory.episode_id, trajectory.seed)
        values = [summary.kpis.get(name, "") for name in kpis]
        rows.append((*identity, summary.reward, summary.env_steps, *values))
    columns = ("episode", "episode_id", "seed", "return", "env_steps", *kpis)
    _write_table(folder / "episodes.csv", columns, rows)
    numbers: list[Sequence[Any]] = []
    for key, value in statistics.items():
        numbers.append((key, value.mean if isinstance(value, Histogram) else value))
    _write_table(folder / "statistics.csv", ("statistic", "value"), numbers)
    title = f"rollouts | {len(played)} episodes | {steps:,} env steps | {seconds:.1f} s"
    sys.stdout.write(f"{render_table(title, 1, {'rollout': statistics})}\n\nfiles: {folder}\n")


def _write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
