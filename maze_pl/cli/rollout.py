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
from maze_pl.config.assembling import RUN_CONFIG, Prepared
from maze_pl.config.factories import Factory
from maze_pl.envs.trajectory_record import TrajectoryFiles
from maze_pl.events import EpochStatistics, EventLogFiles, Histogram
from maze_pl.events.display import render as render_table
from maze_pl.runs.checkpoint import best_or_last, checkpoint_path, learned_in, read_checkpoint
from maze_pl.runs.loading import load
from maze_pl.runs.rollout import Env, Trajectory, rollout
from maze_pl.runs.run_directory import new_directory, run_directory
from maze_pl.system.atomic_files import write_file
from maze_pl.system.signals import StoppedBySignal, StopSignals

_PARALLEL: Final = lazy_instance(ProcessEngine)  # options may configure it
_NO_OPTIONS: Final = {"texts", "signals", "learned", "record", "progress", "receive", "stop"}


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

    Args:
        texts: File name -> text of files that describe the rollout.
        signals: Handler of the signals that stop a command.
        env: Builds one environment; a plain gymnasium environment is adapted.
        runner: Plays the episodes: `sequential`, `parallel`, or an engine.
        policy: `random`, `heuristic` (the policy that the environment names), a group such as
            `policy/random_policy`, or a class path; None means the policy of the run, if any, else
            `random`.
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
    began, kept = time.perf_counter(), [kind for kind in ("states", "spaces") if trajectories in (kind, "both")]
    wanted: Any = policy or "random"
    if isinstance(wanted, dict):
        wanted = Factory(wanted.pop("class_path", "random"), wanted.pop("init_args", {}) | wanted)
    undo = ExitStack()
    if run is not None:
        path = best_or_last(run) if checkpoint == "best" else checkpoint_path(run, (checkpoint,))
        others["learned"] = learned_in(read_checkpoint(path), path)
        wanted = load(path, trust=trust) if policy is None else wanted
        output_dir = output_dir or str(new_directory(Path(run, "rollouts"), True, undo))
    folder, epoch, events = Path(run_directory(None, output_dir, "rollout", undo)), EpochStatistics(), EventLogFiles()
    writers = {kind: TrajectoryFiles(f"trajectories/{kind}", "episodes" if files == "one" else None) for kind in kept}

    def receive(one: Trajectory) -> None:
        signals.may_interrupt = False  # while files are written
        if one.summary.episode_index == 0:
            for name, text in texts.items():
                write_file(folder / name, text.encode())
        for kind, writer in writers.items():
            writer.write(getattr(one, kind))
        for rows in one.events:
            events.append(*rows)
        epoch.add(one.summary)
        one.states = one.spaces = None  # all together may not fit in memory
        one.events = []
        signals.may_interrupt = True

    signals.deferred = signals.may_interrupt = True
    record = [*kept, *["events"] * event_logs, *["gifs"] * render]
    told: dict[str, Any] = {"record": record, "progress": True, "receive": receive, "stop": lambda: signals.received}
    try:
        with undo:
            played = rollout(env, wanted, n_episodes, max_steps=max_steps, engine=runner, **told, **others)
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
        stopped = f"stopped by {signal.Signals(signals.received).name} after {len(played)} of {n_episodes} episodes"
        sys.stderr.write(f"maze-pl: {stopped}\n")
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
    given, text = parsed(play, "rollout", arguments, _NO_OPTIONS)
    play({RUN_CONFIG: text, "command.txt": f"{shlex.join(['maze-pl', *command])}\n"}, signals, **given)
    return 0


def _report(folder: Path, played: list[Trajectory], epoch: EpochStatistics, seconds: float) -> None:
    """Write the tables of episodes and statistics, and print the statistics."""
    steps, statistics = epoch.total_step_count, epoch.compute()
    head = ("episode", "episode_id", "seed", "return", "env_steps", *played[0].summary.kpis)
    pairs = [((one.episode_id, one.seed), one.summary) for one in played]
    rows = [(s.episode_index, *who, s.reward, s.env_steps, *s.kpis.values()) for who, s in pairs]
    numbers = [(key, value.mean if isinstance(value, Histogram) else value) for key, value in statistics.items()]
    for name, first, lines in (("episodes", head, rows), ("statistics", ("statistic", "value"), numbers)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([first, *lines])
    title = f"rollouts | {len(played)} episodes | {steps:,} env steps | {seconds:.1f} s"
    sys.stdout.write(f"{render_table(title, 1, {'rollout': statistics})}\n\nfiles: {folder}\n")
