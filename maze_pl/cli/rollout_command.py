"""`maze-pl rollout`: plays episodes with a policy and saves them with their statistics."""

import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Literal

from jsonargparse.typing import lazy_instance

from maze_pl.cli.check import parsed
from maze_pl.collect.engines import Engine, ProcessEngine
from maze_pl.config.assembling import Prepared
from maze_pl.config.factories import Factory
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.core.provenance import Provenance, share_provenance
from maze_pl.envs.building import Env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.events import EpochStatistics, EventLogFiles, Histogram
from maze_pl.events.display import render as render_table
from maze_pl.runs.checkpoint_files import (
    checkpoint_digest,
    named_checkpoint,
    read_checkpoint,
    wrapper_statistics_in,
)
from maze_pl.runs.episode_seeds import listed_seeds
from maze_pl.runs.loading import load
from maze_pl.runs.other_environment import tell_other_environment
from maze_pl.runs.provenance import PROVENANCE_FILE, collect_provenance, provenance_text
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.runs.rollout_table import EPISODES_FILE, csv_content, episode_table
from maze_pl.runs.run_directory import claimed, new_directory, require_empty, run_directory
from maze_pl.system.atomic_files import write_file
from maze_pl.system.git_state import GitProbe
from maze_pl.system.signals import StoppedBySignal, StopSignals

_DESCRIPTION: Final = "Play episodes with a policy, and save them with their statistics."
_PARALLEL: Final = lazy_instance(ProcessEngine)  # options may configure it
_NO_OPTIONS: Final = {
    *("texts", "signals", "provenance", "wrapper_statistics", "record", "first_episode"),
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
    episode_seeds: list[int] | str | None = None,
    trajectories: Literal["states", "spaces", "both", "none"] = "both",
    files: Literal["each", "one"] = "each",
    event_logs: bool = True,
    render: bool = False,
    output_dir: str | None = None,
    run: str | None = None,
    checkpoint: str = "best",
    trust: bool = False,
    provenance: Provenance | None = None,
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
        episode_seeds: Seeds that environments are reset with, instead of seeds that follow from `seed`:
            a list, or a range such as `0-39`. Each is played once, and `n_episodes` has no effect.
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
        provenance: Provenance of the command; the checkpoint that plays is added to it.
        others: Further arguments of `maze_pl.runs.rollout.rollout`.
    """
    began = time.perf_counter()
    recorded = [name for name in ("states", "spaces") if trajectories in (name, "both")]
    seeds = None if episode_seeds is None else listed_seeds(episode_seeds)
    n_episodes = n_episodes if seeds is None else len(seeds)
    actor = _configured_policy(policy)
    with ExitStack() as undo:
        is_requested = output_dir is not None
        if run is not None:
            path = named_checkpoint(run, checkpoint)
            # before loading: if the file is replaced in between, no later file has this digest
            digest = checkpoint_digest(path)
            if provenance is not None:
                provenance["checkpoint"] = {"file": str(path), "sha256": digest}
            content = read_checkpoint(path)
            tell_other_environment(path, content, "configuration")
            others["wrapper_statistics"] = wrapper_statistics_in(content, path)
            if policy is None:
                actor = load(path, trust=trust)
            output_dir = output_dir or str(new_directory(Path(run, "rollouts"), True, undo))
        folder = Path(run_directory(None, output_dir, "rollout", undo, is_training=False))
        if is_requested:  # other folders are new, and named after the time
            undo.enter_context(claimed(folder, keeps_lock_file=False))
            require_empty(folder, is_training=False)  # another process may have written before
        others["wrappers"] = without_recorders(others.get("wrappers"))
        if provenance is not None:
            texts = {**texts, PROVENANCE_FILE: provenance_text([provenance])}
        output = _Output(folder, texts, recorded, "episodes" if files == "one" else None)
        record = list(recorded)
        if event_logs:
            record.append("events")
        if render:
            record.append("gifs")

        def episodes(receive: Callable[[Trajectory], None]) -> None:
            rollout(
                env,
                actor,
                n_episodes,
                max_steps=max_steps,
                episode_seeds=seeds,
                engine=runner,
                record=record,
                progress=True,
                receive=receive,
                stop=lambda: signals.received,
                **others,
            )

        _play(episodes, output, signals)
        if signals.received:
            name = signal.Signals(signals.received).name
            progress = f"{len(output.played)} of {n_episodes} episodes"
            sys.stderr.write(f"maze-pl: stopped by {name} after {progress}\n")
        output.report(time.perf_counter() - began, max_steps)


def _play(episodes: Callable[[Callable[[Trajectory], None]], None], output: "_Output", signals: StopSignals) -> None:
    """Play episodes until all are complete or a signal stops them, and save them in any case.

    Args:
        episodes: Plays the episodes, and calls the given function with each complete one.
        output: Where the episodes are saved.
        signals: Handler of the signals, which may interrupt an episode, but no file that is written.
    """

    def receive(trajectory: Trajectory) -> None:
        signals.may_interrupt = False
        output.add(trajectory)
        signals.may_interrupt = True

    signals.deferred = True
    signals.may_interrupt = True
    try:
        episodes(receive)
    except BaseException as error:
        signals.may_interrupt = False
        if isinstance(error, StoppedBySignal) and signals.has_interrupted:
            _report_abandoned_episode(signals)
        output.save()
        if signals.received and isinstance(error, Exception):
            raise signals.abandon(error) from error
        raise
    signals.may_interrupt = False
    output.close()


def _configured_policy(policy: dict[str, Any] | str | None) -> Any:
    """Return the policy for `maze_pl.rollout` that the option names; `random` for None.

    Args:
        policy: As for `play`; arguments may be in `init_args`, or next to the class path.
    """
    if not isinstance(policy, dict) or not policy:
        return policy or "random"
    others = dict(policy)
    class_path = others.pop("class_path", "random")
    init_args = others.pop("init_args", {})
    dict_kwargs = others.pop("dict_kwargs", {})
    return Factory(class_path, init_args | others, dict_kwargs)


def _report_abandoned_episode(signals: StopSignals) -> None:
    """Print that a signal has ended the command within an episode, which took too long after it."""
    name = signal.Signals(signals.received).name
    place = f" (at {signals.place})" if signals.place else ""
    where = f"an episode that took more than {signals.patience:.0f} s longer{place}"
    sys.stderr.write(f"maze-pl: stopped by {name} in {where}\n")


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
    }
    play(texts, signals, provenance=provenance, **options)
    return 0


class _Output:
    """The files of a rollout, and its episodes so far.

    Args:
        folder: The folder.
        texts: File name -> text of files that describe the rollout.
        recorded: Data of which trajectories are written: `states`, `spaces`.
        file_name: Name of one file for all episodes; None for one file per episode.

    Attributes:
        played: Complete episodes, without trajectories and events, which may not fit in memory.
    """

    def __init__(self, folder: Path, texts: Mapping[str, str], recorded: Sequence[str], file_name: str | None) -> None:
        self._folder = folder.absolute()  # environments may change the current folder
        self._shown_folder = folder
        self._texts = texts
        self._epoch = EpochStatistics()
        self._events = EventLogFiles()
        self._writers: dict[str, TrajectoryFiles] = {}
        for name in recorded:
            self._writers[name] = TrajectoryFiles(f"trajectories/{name}", file_name)
        self.played: list[Trajectory] = []

    def add(self, trajectory: Trajectory) -> None:
        """Write what an episode has recorded."""
        if trajectory.summary.episode_index == 0:
            for name, text in self._texts.items():
                write_file(self._folder / name, text.encode())
        for name, writer in self._writers.items():
            writer.write(getattr(trajectory, name))
        for rows in trajectory.events:
            self._events.append(*rows)
        self._epoch.add(trajectory.summary)
        trajectory.states = trajectory.spaces = None
        trajectory.events = []
        self.played.append(trajectory)

    def close(self) -> None:
        """Wait until all trajectories are written."""
        for writer in self._writers.values():
            writer.close()

    def save(self) -> None:
        """Write the tables of the complete episodes after a failure, if the disk allows it."""
        if not self.played:
            return
        with suppress(OSError):
            self.close()
        with suppress(OSError):
            self._write_tables()
            complete = f"{len(self.played)} complete episodes"
            sys.stderr.write(f"maze-pl: {complete} are in {self._shown_folder}\n")

    def report(self, seconds: float, max_steps: int) -> None:
        """Write the tables of episodes and statistics, and print the statistics.

        Args:
            seconds: Seconds that the episodes took.
            max_steps: Env steps after which episodes were cut off; 0 for no limit.
        """
        if not self.played:
            return
        steps = self._epoch.total_step_count
        statistics = self._write_tables()
        title = f"rollouts | {len(self.played)} episodes | {steps:,} env steps | {seconds:.1f} s"
        table = render_table(title, 1, {"rollout": statistics})
        sys.stdout.write(f"{table}\n\n")
        n_limited = sum(one.summary.env_steps >= max_steps for one in self.played) if max_steps else 0
        if n_limited:
            reached = f"{n_limited} of {len(self.played)} episodes have reached the limit of {max_steps:,} env steps"
            sys.stdout.write(f"{reached} (--max_steps, 0 for no limit)\n")
        sys.stdout.write(f"files: {self._shown_folder}\n")

    def _write_tables(self) -> Mapping[str, Any]:
        """Write the tables of episodes and statistics, and return the statistics."""
        statistics = self._epoch.compute()
        write_file(self._folder / EPISODES_FILE, episode_table(self.played))
        rows: list[Sequence[Any]] = []
        for key, value in statistics.items():
            rows.append((key, value.mean if isinstance(value, Histogram) else value))
        write_file(self._folder / "statistics.csv", csv_content(("statistic", "value"), rows))
        return statistics
