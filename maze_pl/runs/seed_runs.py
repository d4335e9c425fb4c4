"""Training with several seeds: a process for each, and their results.

This process trains nothing: it starts a `maze-pl fit` for each seed in a run directory below one
folder, passes signals on, and reads the results from the run directories.
"""

import shlex
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from maze_pl.config.assembling import TRUST_OPTION, foreign_options
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_output import RunOutput, say
from maze_pl.runs.run_processes import RunProcesses, n_cores
from maze_pl.runs.seed_results import SeedResult, read_results, table_of_seeds, write_results
from maze_pl.system.signals import StopSignals

_IMPOSSIBLE: Final = 2  # exit status of a command that cannot be carried out


@dataclass(frozen=True)
class SeedPlan:
    """The runs below one folder.

    Attributes:
        seeds: Their seeds.
        options: The command line of each run, without seed, run directory and `--trust`.
        changes: Options with which the runs are continued, without `--trust`; some runs may not have
            ended under them yet.
        options_digest: Digest of `options` and their files when the training was started; None for a
            plan of an earlier version.
        changes_digest: The same of `changes`, when they were given.
    """

    seeds: list[int]
    options: list[str]
    changes: list[str] = field(default_factory=list)
    options_digest: str | None = None
    changes_digest: str | None = None


def seed_directory(folder: Path, seed: int) -> Path:
    """Return the run directory of a seed below the folder of all seeds."""
    return folder / f"seed_{seed}"


class SeedRuns:
    """The processes that train, and what is shown of them.

    Args:
        plan: The seeds.
        folder: Folder of their run directories.
        commands: Seed -> command to run; other seeds have finished already.
        n_parallel: Number of processes at a time.
        signals: Handler of the signals that stop a command.
        fault: Called with a seed before it starts; returns a reason to start no further seed, or None.
    """

    def __init__(
        self,
        plan: SeedPlan,
        folder: Path,
        commands: dict[int, list[str]],
        n_parallel: int,
        signals: StopSignals,
        fault: Callable[[int], str | None] = lambda seed: None,
    ) -> None:
        known = {result.seed: result for result in read_results(folder)}
        self._results: dict[int, SeedResult] = {}
        for seed in plan.seeds:
            run_dir = str(seed_directory(folder, seed))  # the folder may have been moved
            is_kept = seed in known and seed not in commands
            new = SeedResult(seed, run_dir)
            self._results[seed] = replace(known[seed], run_dir=run_dir) if is_kept else new
        self._plan = plan
        self._folder = folder
        self._commands = commands
        self._n_parallel = n_parallel
        self._signals = signals
        self._fault = fault

    def write(self) -> None:
        """Write the results so far; a seed whose process has not ended is not finished in them."""
        write_results(self._folder, list(self._results.values()))

    def train(self) -> None:
        """Run all commands, until they have ended or a signal stops them."""
        waiting = deque(self._commands)
        if min(self._n_parallel, len(waiting)) > n_cores():
            say(f"{self._n_parallel} seeds at a time share {n_cores()} cores, so that each takes longer")
        with RunProcesses(self._n_parallel, self._signals) as processes:
            while processes.running or (waiting and not self._signals.received):
                while waiting and processes.has_room:
                    fault = self._fault(waiting[0])
                    if fault is None:
                        self._start(waiting.popleft(), processes)
                    else:
                        say(f"no further seed is started: {fault}")
                        waiting.clear()
                processes.wait_a_moment()
                for seed, exit_status in processes.ended():
                    self._finish(seed, exit_status, processes)
                    if self._is_hopeless(seed):
                        waiting.clear()

    def _start(self, seed: int, processes: RunProcesses) -> None:
        """Start the process of a seed."""
        number = list(self._results).index(seed) + 1
        say(f"seed {seed} ({number} of {len(self._results)}): {self._results[seed].run_dir}")
        output = None if self._n_parallel == 1 else RunOutput(f"seed {seed}")
        processes.start(seed, self._commands[seed], output)
        self._results[seed].status = "running"

    def _finish(self, seed: int, exit_status: int, processes: RunProcesses) -> None:
        """Note how the process of a seed ended, and write the results so far."""
        result = self._results[seed]
        result.end(exit_status)
        processes.close_output(seed, show_end=result.status == "failed")
        self.write()

    def _is_hopeless(self, seed: int) -> bool:
        """True if a command is impossible for this seed, and no seed was trained, so that it is for all."""
        if self._results[seed].exit_status != _IMPOSSIBLE:
            return False
        return not any(Path(result.run_dir, RUN_CONFIG).exists() for result in self._results.values())

    @property
    def was_impossible(self) -> bool:
        """True if no process could carry out its command, so that nothing was trained."""
        ended = [self._results[seed].exit_status for seed in self._commands]
        return {*ended} - {None} == {_IMPOSSIBLE}

    def report(self, is_trusted: bool) -> int:
        """Print the table and the next commands, and return the exit status of the command.

        Args:
            is_trusted: Whether the command has `--trust`.
        """
        results = list(self._results.values())
        self.write()
        sys.stdout.write(f"\n{table_of_seeds(results)}\n\n")
        sys.stdout.write(f"directory of all seeds: {self._folder}\n")
        folder = shlex.quote(str(self._folder))
        ended = {seed: self._results[seed].exit_status for seed in self._commands}
        refused = [str(seed) for seed, status in ended.items() if status == _IMPOSSIBLE]
        if refused:
            sys.stdout.write(f"{_refusal_text(refused)}\n")
        commands: list[str] = []
        if not all(result.counts for result in results):
            options = self._trust_option(is_trusted) + (" --OPTION VALUE" if refused else "")
            commands.append(f"maze-pl fit --resume {folder}{options}")
        if any(self._folder.rglob("events.out.tfevents.*")):
            commands.append(f"tensorboard --logdir {folder}")
        if commands:
            sys.stdout.write("\n  ".join(["next:", *commands]) + "\n")
        sys.stdout.flush()
        return int(any(result.status != "finished" for result in results))

    def _trust_option(self, is_trusted: bool) -> str:
        """Return ` --trust` if a command that continues needs it, else nothing."""
        is_needed = is_trusted
        if not is_trusted:
            try:
                is_needed = bool(foreign_options(["fit", *self._plan.options, *self._plan.changes]))
            except ConfigurationError:  # a file is gone in the meantime, which continuing reports
                is_needed = False
        return f" {TRUST_OPTION}" if is_needed else ""


def _refusal_text(seeds: list[str]) -> str:
    """Return the remedy for seeds with impossible commands, which fail again without a change."""
    named = f"seed {seeds[0]} was" if len(seeds) == 1 else f"seeds {', '.join(seeds)} were"
    fault = f"{named} refused, see the message above: without a change the next command fails, too"
    remedy = "add an option to it, or correct the configuration and start all seeds in another folder"
    return f"{fault}; {remedy}"
