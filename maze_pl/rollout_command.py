"""`maze-pl rollout`: episodes of any policy in any environment, with their statistics and what is kept of them."""

import csv
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import gymnasium
from jsonargparse.typing import lazy_instance

from maze_pl.check_command import parsed
from maze_pl.collect.engines import Engine, ProcessEngine
from maze_pl.configuration import RUN_CONFIG, checkpoint_path
from maze_pl.core.output_folder import write_file
from maze_pl.envs.trajectory_record import TrajectoryFiles
from maze_pl.events.epoch_statistics import EpochStatistics
from maze_pl.events.event_logs import EventLogFiles
from maze_pl.events.histogram import Histogram
from maze_pl.events.statistics_table import render
from maze_pl.instantiation import Factory
from maze_pl.loading import learned, load, read_checkpoint
from maze_pl.rollouts import Trajectory, rollout
from maze_pl.run_directory import new_directory, remove_empty, run_directory
from maze_pl.signals import StopSignals

Env = gymnasium.Env[Any, Any]
_PARALLEL: Final = lazy_instance(ProcessEngine)  # of which options may say more
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
    **others: Any,
) -> None:
    """Play episodes, and keep them.

    Args:
        texts: Files that say what was played.
        signals: Has taken the signals that stop a command.
        env: Builds one environment; a bare gymnasium environment is adapted.
        runner: Where episodes are played: `sequential`, `parallel`, or an engine.
        policy: `random`, `heuristic` (the one that the environment names), a group such as `policy/random_policy`, or a
            class path; that of the run if there is one, else `random`.
        n_episodes: How many.
        max_steps: Environment steps after which an episode is truncated; 0 means without limit.
        trajectories: What is recorded: what the simulation went through, what agents saw and did, both, or nothing.
        files: Whether each episode has a file of its own, or all are in one.
        event_logs: Whether to write all events.
        render: Whether each episode becomes a gif.
        output_dir: Where everything goes; `rollouts/<time>` of the run, or `outputs/rollout/<time>`, if None.
        run: Directory of the run whose environment, wrappers and policy are meant.
        checkpoint: Which one of the run: `best`, `last`, or a file.
        others: Of `rollout`.
    """
    began, kept = time.perf_counter(), [kind for kind in ("states", "spaces") if trajectories in (kind, "both")]
    wanted: Any = policy or "random"
    if isinstance(wanted, dict):
        wanted = Factory(wanted.pop("class_path", "random"), wanted.pop("init_args", {}) | wanted)
    if run is not None:
        path = checkpoint_path(run, ("best", "last") if checkpoint == "best" else (checkpoint,))
        others["learned"] = learned(read_checkpoint(path), path)
        wanted = load(path) if policy is None else wanted
        output_dir = output_dir or str(new_directory(Path(run, "rollouts"), True))
    folder, epoch, events = Path(run_directory(None, output_dir, "rollout")), EpochStatistics(), EventLogFiles()
    writers = {kind: TrajectoryFiles(f"trajectories/{kind}", "episodes" if files == "one" else None) for kind in kept}

    def receive(one: Trajectory) -> None:
        if one.summary.episode_index == 0:
            for name, text in texts.items():
                write_file(folder / name, text.encode())
        for kind, writer in writers.items():
            writer.write(getattr(one, kind))
        for rows in one.events:
            events.append(*rows)
        epoch.add(one.summary)
        one.states, one.spaces, one.events = None, None, []  # all together may be more than memory holds

    signals.deferred = True
    record = [*kept, *["events"] * event_logs, *["gifs"] * render]
    told: dict[str, Any] = {"record": record, "progress": True, "receive": receive, "stop": lambda: signals.received}
    try:
        played = rollout(env, wanted, n_episodes, max_steps=max_steps, engine=runner, **told, **others)
    except OSError as error:
        error.filename = error.filename or str(folder)  # of a full disk the system does not say which
        raise
    finally:
        remove_empty((folder, *folder.parents[:2]))
    if signals.received:
        stopped = f"stopped by {signal.Signals(signals.received).name} after {len(played)} of {n_episodes} episodes"
        sys.stderr.write(f"maze-pl: {stopped}\n")
    if played:
        _report(folder, played, epoch, time.perf_counter() - began)


def run(arguments: Sequence[str], command: Sequence[str], signals: StopSignals) -> int:
    """Run the command.

    Args:
        arguments: What `configuration.prepare` made of the command line.
        command: The command line as the user gave it, to be kept with what comes of it.
        signals: Has taken the signals that stop a command.

    Returns:
        The exit status.

    Raises:
        ConfigurationError: The options do not describe rollouts.
    """
    given, text = parsed(play, "rollout", arguments[1:], _NO_OPTIONS)
    play({RUN_CONFIG: text, "command.txt": f"{shlex.join(['maze-pl', *command])}\n"}, signals, **given)
    return 0


def _report(folder: Path, played: list[Trajectory], epoch: EpochStatistics, seconds: float) -> None:
    """Write and show what came of the episodes."""
    steps, statistics = epoch.total_step_count, epoch.compute()
    head = ("episode", "episode_id", "seed", "return", "env_steps", *played[0].summary.kpis)
    pairs = [((one.episode_id, one.seed), one.summary) for one in played]
    rows = [(s.episode_index, *who, s.reward, s.env_steps, *s.kpis.values()) for who, s in pairs]
    numbers = [(key, value.mean if isinstance(value, Histogram) else value) for key, value in statistics.items()]
    for name, first, lines in (("episodes", head, rows), ("statistics", ("statistic", "value"), numbers)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([first, *lines])
    title = f"rollouts | {len(played)} episodes | {steps:,} env steps | {seconds:.1f} s"
    sys.stdout.write(f"{render(title, 1, {'rollout': statistics})}\n\nfiles: {folder}\n")
