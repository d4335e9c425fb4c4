"""`maze-pl fit --seeds`: the same training with several seeds, each in a process, and a table of the results.

This process trains nothing: it starts a `maze-pl fit` for each seed in a run directory below one
folder, passes signals on, and reads the results from the run directories.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from maze_pl.config.assembling import SEEDS_FILE, TRUST_OPTION, Prepared, foreign_options, prepare
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError, parse
from maze_pl.config.summary import configured_value
from maze_pl.config.trust import refusal
from maze_pl.runs.run_directory import claimed, run_directory
from maze_pl.runs.seed_results import SeedResult, read_results, table_of_seeds, write_results
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE, write_file
from maze_pl.system.signals import MAIN_PROCESS_VARIABLE, STARTER_VARIABLE, StopSignals, is_launched_rank

SEEDS: Final = "--seeds"
PARALLEL: Final = "--seeds.parallel"
_SEED_OPTION: Final = "--seed_everything"
_EXPERIMENT: Final = "--experiment"
_DISPLAYED: Final = ("--print_config", "--print_model", "--help", "-h")
_LARGEST_SEED: Final = 2**32 - 1  # of Lightning
_SECONDS_BETWEEN_LOOKS: Final = 0.1
_FORWARDED: Final = ("epoch ", "-> ", "best: ", "last: ", "ended: ", "maze-pl: ")
_N_LAST_LINES: Final = 30
_N_BYTES: Final = 2**16  # read at a time
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


def is_for_seeds(arguments: Sequence[str]) -> bool:
    """Tell if a command line of `fit` trains with several seeds, or continues such a training.

    Args:
        arguments: The command line after `maze-pl`.
    """
    values, _ = _taken(arguments, (SEEDS, PARALLEL, "--resume"))
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
    values, options = _taken(arguments[1:], (SEEDS, PARALLEL, "--resume", "--run_dir"))
    if is_launched_rank() or os.environ.get("TORCHELASTIC_RUN_ID"):
        raise ConfigurationError(f"{SEEDS} starts the processes of each seed: start it once, not by torchrun")
    n_parallel = _count(values.get(PARALLEL, "1"))
    with contextlib.ExitStack() as undo:
        if "--resume" in values:
            folder = Path(values["--resume"])
            plan, commands = _resumed(folder, values, options)
        else:
            plan, folder = _planned(values, options, undo)
            commands = {seed: _first_command(plan, seed, folder, options) for seed in plan.seeds}
        if _is_displayed(options):
            return _display(next(iter(commands.values())), signals)
        with claimed(folder):
            write_file(folder / SEEDS_FILE, f"{json.dumps(asdict(plan), indent=1)}\n".encode())
            runs = SeedRuns(plan, folder, commands, n_parallel, signals)
            runs.train()
            return runs.report(TRUST_OPTION in options)


def _taken(arguments: Iterable[str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Take some options out of a command line; return their values by name, and the rest."""
    values: dict[str, str] = {}
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in names:
            values[name] = value if equals else next(words, "")
        else:
            rest.append(word)
    return values, rest


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
    prepared = prepare(["fit", *options])
    seeds = _seeds(values[SEEDS], options)
    plan = SeedPlan(seeds, [option for option in options if option != TRUST_OPTION])
    if _is_displayed(options):
        return plan, Path(values.get("--run_dir", "."))
    folder = Path(run_directory(None, values.get("--run_dir"), _experiment(prepared), undo))
    return plan, folder


def _experiment(prepared: Prepared) -> str | None:
    """Return the folder under `outputs` of a command."""
    return _taken(prepared, (_EXPERIMENT,))[0].get(_EXPERIMENT)


def _seeds(text: str, options: Sequence[str]) -> list[int]:
    """Return the seeds for a value of `--seeds`.

    Raises:
        ConfigurationError: It is neither a count nor a list of different seeds.
    """
    value = parse(text)
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if is_count:
        first = configured_value(["fit", *options], "seed_everything")
        first = 0 if first is None else first
        if isinstance(first, bool) or not isinstance(first, int):
            fault = f"seed_everything={first}, from which {SEEDS} {value} counts, is not a number"
            raise ConfigurationError(f"{fault}: give one, or a list such as {SEEDS} [3,7,9]")
        seeds = list(range(first, first + value))
    elif isinstance(value, list) and value:
        if _SEED_OPTION in _taken(options, (_SEED_OPTION,))[0]:
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


def _count(text: str) -> int:
    """Return the value of `--seeds.parallel`."""
    value = parse(text)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{PARALLEL} {text} is not a number of seeds to train at a time, such as 2")
    return value


def _run_dir(folder: Path, seed: int) -> Path:
    return folder / f"seed_{seed}"


def _first_command(plan: SeedPlan, seed: int, folder: Path, options: Sequence[str]) -> list[str]:
    """Return the command that starts the training of a seed."""
    trust = [TRUST_OPTION] if TRUST_OPTION in options else []
    return ["fit", *plan.options, _SEED_OPTION, str(seed), "--run_dir", str(_run_dir(folder, seed)), *trust]


def _resumed(folder: Path, values: dict[str, str], options: Sequence[str]) -> tuple[SeedPlan, dict[int, list[str]]]:
    """Return the plan of an earlier training, and the commands that its seeds still need.

    A seed that has trained to its end needs none, unless there are options that change its run.

    Raises:
        ConfigurationError: The folder does not hold runs of several seeds, the command has other
            seeds, or a seed that was not started needs `--trust`.
    """
    if not (folder / SEEDS_FILE).is_file():
        raise ConfigurationError(f"{folder} does not hold several seeds: continue its run without {SEEDS}")
    for name in (SEEDS, "--run_dir"):
        if name in values:
            raise ConfigurationError(f"--resume continues the seeds of {folder}: omit {name}")
    plan = _read_plan(folder / SEEDS_FILE)
    results = {result.seed: result for result in read_results(folder)}
    changes = [option for option in options if option != TRUST_OPTION]
    commands: dict[int, list[str]] = {}
    for seed in plan.seeds:
        run_dir = _run_dir(folder, seed)
        if seed in results and results[seed].counts and not changes:
            continue
        if (run_dir / RUN_CONFIG).is_file():
            commands[seed] = ["fit", "--resume", str(run_dir), *options]
        else:
            commands[seed] = [*_first_command(plan, seed, folder, options), *changes]
    is_unstarted = any("--resume" not in command for command in commands.values())
    if is_unstarted and TRUST_OPTION not in options:
        foreign = foreign_options(["fit", *plan.options])
        if foreign:
            remedy = f"if you trust the origin of this folder, use {TRUST_OPTION}"
            raise ConfigurationError(f"{refusal(folder / SEEDS_FILE, foreign)}; {remedy}")
    return SeedPlan(plan.seeds, [*plan.options, *changes]), commands


def _read_plan(path: Path) -> SeedPlan:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        seeds, options = content["seeds"], content["options"]
        is_plan = all(type(seed) is int for seed in seeds) and all(isinstance(word, str) for word in options)
    except (OSError, ValueError, KeyError, TypeError):
        is_plan = False
    if not is_plan:
        raise ConfigurationError(f"{path} is damaged: continue each run with `maze-pl fit --resume`")
    return SeedPlan(seeds, [word for word in options if word != TRUST_OPTION])


# --------------------------------------------------------------------------------------------------------- processes


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
            new = SeedResult(seed, str(_run_dir(folder, seed)))
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
            _say(f"{self._n_parallel} seeds at a time share {n_cores} cores, so that each takes longer")
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
        _say(f"seed {seed} ({number} of {len(self._results)}): {self._results[seed].run_dir}")
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


class SeedOutput:
    """Output of a process that runs at the same time as others: its main lines, marked with the seed.

    The process writes to an unnamed file and not to a pipe, so that it can end in an orderly way
    if this process is killed. The whole output is in the `run.log` of the run.

    Args:
        seed: The seed.

    Attributes:
        file: File for standard output and error of the process.
    """

    def __init__(self, seed: int) -> None:
        self.file = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._mark = f"[seed {seed}]"
        self._n_read = 0
        self._unfinished = b""
        self._last: deque[str] = deque(maxlen=_N_LAST_LINES)

    def show(self) -> None:
        """Show the main lines that were written since the last call."""
        while new := os.pread(self.file.fileno(), _N_BYTES, self._n_read):
            self._n_read += len(new)
            *lines, self._unfinished = (self._unfinished + new).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                if text.startswith(_FORWARDED):
                    _say(f"{self._mark} {text}")
                else:
                    self._last.append(text)

    def close(self, *, show_end: bool) -> None:
        """Show the rest of the output.

        Args:
            show_end: Show the last of all other lines as well, such as a traceback.
        """
        self.show()
        self.file.close()
        if show_end:
            for text in self._last:
                _say(f"{self._mark} {text}")


def _program() -> list[str]:
    """Return the words before a command line that start `maze-pl` in another process.

    The current folder, which may belong to an untrusted run, is on its import path only if it is on
    that of this process.
    """
    is_script = getattr(sys.modules["__main__"], "__spec__", None) is None
    return [sys.executable, *(["-P"] if is_script else []), "-m", "maze_pl"]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
