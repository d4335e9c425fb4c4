"""Training with several seeds: a process for each, the signals that they get, and their results.

This process trains nothing: it starts a `maze-pl fit` for each seed in a run directory below one
folder, passes signals on, and reads the results from the run directories.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from maze_pl.config.assembling import TRUST_OPTION
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.runs.seed_output import SeedOutput, say
from maze_pl.runs.seed_results import SeedResult, read_results, table_of_seeds, write_results
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.signals import MAIN_PROCESS_VARIABLE, STARTER_VARIABLE, StopSignals

_SECONDS_BETWEEN_LOOKS: Final = 0.1
_IMPOSSIBLE: Final = 2  # exit status of a command that cannot be carried out


@dataclass(frozen=True)
class SeedPlan:
    """The runs below one folder.

    Attributes:
        seeds: Their seeds.
        options: The command line of each run, without seed, run directory and `--trust`.
    """

    seeds: list[int]
    options: list[str]


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
    """

    def __init__(
        self,
        plan: SeedPlan,
        folder: Path,
        commands: dict[int, list[str]],
        n_parallel: int,
        signals: StopSignals,
    ) -> None:
        known = {result.seed: result for result in read_results(folder)}
        self._results: dict[int, SeedResult] = {}
        for seed in plan.seeds:
            new = SeedResult(seed, str(seed_directory(folder, seed)))
            self._results[seed] = new if seed in commands or seed not in known else known[seed]
        self._folder = folder
        self._commands = commands
        self._n_parallel = n_parallel
        self._signals = signals
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._outputs: dict[int, SeedOutput] = {}

    def train(self) -> None:
        """Run all commands, until they have ended or a signal stops them."""
        waiting = deque(self._commands)
        n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if min(self._n_parallel, len(waiting)) > n_cores:
            say(f"{self._n_parallel} seeds at a time share {n_cores} cores, so that each takes longer")
        self._signals.deferred = self._signals.is_reported = True
        self._signals.on_signal = self._pass_on
        try:
            while self._running or (waiting and not self._signals.received):
                while waiting and len(self._running) < self._n_parallel and not self._signals.received:
                    self._start(waiting.popleft(), n_cores)
                time.sleep(_SECONDS_BETWEEN_LOOKS)
                for output in self._outputs.values():
                    output.show()
                for seed, process in list(self._running.items()):
                    if process.poll() is not None:
                        self._finish(seed, process.returncode)
                        if self._is_hopeless(seed):
                            waiting.clear()
        finally:
            self._signals.on_signal = None
            for process in self._running.values():  # after an exception of this process
                process.terminate()
            for process in self._running.values():
                process.wait()

    def _pass_on(self, number: int) -> None:
        """Pass a signal on to all processes; may be called at any time."""
        for process in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _start(self, seed: int, n_cores: int) -> None:
        """Start the process of a seed."""
        variables = dict(os.environ)
        for name in (RUN_DIR_VARIABLE, MAIN_PROCESS_VARIABLE):
            variables.pop(name, None)
        variables[STARTER_VARIABLE] = str(os.getpid())
        is_single = self._n_parallel == 1
        if not is_single:
            variables.setdefault("OMP_NUM_THREADS", str(max(1, n_cores // self._n_parallel)))
        number = list(self._results).index(seed) + 1
        say(f"seed {seed} ({number} of {len(self._results)}): {self._results[seed].run_dir}")
        output = None
        if not is_single:
            output = self._outputs[seed] = SeedOutput(seed)
        self._signals.hold()  # the new process takes them once it can handle them
        try:
            self._running[seed] = subprocess.Popen(
                [*_program(), *self._commands[seed]],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=None if output is None else output.file,
                stderr=None if output is None else subprocess.STDOUT,
            )
        finally:
            self._signals.take()
        self._results[seed].status = "running"
        if self._signals.received:  # in between
            self._pass_on(self._signals.received)

    def _finish(self, seed: int, exit_status: int) -> None:
        """Note how the process of a seed ended, and write the results so far."""
        del self._running[seed]
        result = self._results[seed]
        result.end(exit_status)
        output = self._outputs.pop(seed, None)
        if output is not None:
            output.close(show_end=result.status == "failed")
        write_results(self._folder, list(self._results.values()))

    def _is_hopeless(self, seed: int) -> bool:
        """True if a command is impossible for this seed, and no seed was trained, so that it is for all."""
        if self._results[seed].exit_status != _IMPOSSIBLE:
            return False
        return not any(Path(result.run_dir, RUN_CONFIG).exists() for result in self._results.values())

    def report(self, needs_trust: bool) -> int:
        """Print the table, and return the exit status of the command.

        Args:
            needs_trust: Whether a command that continues needs `--trust`.
        """
        results = list(self._results.values())
        write_results(self._folder, results)
        sys.stdout.write(f"\n{table_of_seeds(results)}\n\n")
        sys.stdout.write(f"directory of all seeds: {self._folder}\nnext:\n")
        if not all(result.counts for result in results):
            option = f" {TRUST_OPTION}" if needs_trust else ""
            sys.stdout.write(f"  maze-pl fit --resume {self._folder}{option}\n")
        sys.stdout.write(f"  tensorboard --logdir {self._folder}\n")
        sys.stdout.flush()
        return int(any(result.status != "finished" for result in results))


def _program() -> list[str]:
    """Return the words before a command line that start `maze-pl` in another process.

    The current folder, which may belong to an untrusted run, is on its import path only if it is on
    that of this process.
    """
    is_script = getattr(sys.modules["__main__"], "__spec__", None) is None
    return [sys.executable, *(["-P"] if is_script else []), "-m", "maze_pl"]
