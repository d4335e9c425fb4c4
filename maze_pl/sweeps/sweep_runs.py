"""The loop of a sweep: asks for values, runs their trials, follows their evaluations, and stores the results."""

import os
import shutil
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from maze_pl.config.assembling import SEEDS_FILE, TRUST_OPTION
from maze_pl.config.messages import UNKNOWN_VALUE
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.metrics import METRICS_FILE
from maze_pl.runs.run_output import RunOutput, say
from maze_pl.runs.run_processes import RunProcesses, StartProcess, n_cores
from maze_pl.sweeps.configurations import changed_configuration
from maze_pl.sweeps.methods import make_sampler, optuna_module
from maze_pl.sweeps.progress import Progress, value_text
from maze_pl.sweeps.search_space import suggested
from maze_pl.sweeps.storage import CONFIGURATIONS, resumed_trial
from maze_pl.sweeps.sweep_file import SweepPlan
from maze_pl.sweeps.trial_results import final_values, has_finished, in_use, runs_of, steps, trial_directory
from maze_pl.system.signals import StopSignals

SECONDS: Final = "seconds"
"""User attribute of a trial in the storage: how long its processes took."""
_SO_FAR: Final = "seconds_so_far"
"""User attribute of a trial that was stopped: how long its processes took until then; None while it continues."""
REASON: Final = "reason"
"""User attribute of a failed trial: why."""
_STOPPED: Final = (130, 143)  # exit statuses after INT and TERM
_ERROR: Final = "maze-pl: error: "


@dataclass
class _Running:
    """A trial whose process runs.

    Attributes:
        trial: The trial.
        folder: Its run directory.
        is_resumed: Whether it continues.
        is_pruned: Whether it is being stopped since others are better.
        seconds_before: How long its earlier processes took; None if one of them was killed.
        began: Time at which its process began.
        read_at: Metrics file -> time of its last change.
    """

    trial: Any
    folder: Path
    is_resumed: bool
    is_pruned: bool = False
    seconds_before: float | None = 0.0
    began: float = field(default_factory=time.monotonic)
    read_at: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def resumed(cls, trial: Any, folder: Path) -> "_Running":
        """Return a trial that continues; its duration stays unknown if this process is killed."""
        seconds = trial.user_attrs.get(_SO_FAR)
        trial.set_user_attr(_SO_FAR, None)
        return cls(trial, folder, is_resumed=True, seconds_before=seconds)

    @property
    def seconds(self) -> float | None:
        """Duration of all of its processes in seconds; None if one of them was killed."""
        if self.seconds_before is None:
            return None
        return round(self.seconds_before + time.monotonic() - self.began, 3)


class SweepRuns:
    """The trials of a sweep.

    Args:
        plan: The sweep.
        study: Its storage, a study of Optuna.
        folder: Its folder.
        signals: Handler of the signals that stop a command.
        is_trusted: Whether runs may name any class.
        start_process: Starts a process; by default on this machine.
    """

    def __init__(
        self,
        plan: SweepPlan,
        study: Any,
        folder: Path,
        signals: StopSignals,
        is_trusted: bool = False,
        start_process: StartProcess | None = None,
    ) -> None:
        self._plan = plan
        self._study = study
        self._folder = folder
        self._signals = signals
        self._is_trusted = is_trusted
        self._processes = RunProcesses(plan.n_parallel, signals, start_process)
        self._running: dict[int, _Running] = {}
        self._under_way: deque[int] = deque()
        self._is_ending = False
        self._fault: str | None = None  # why no further trial is started
        self._progress = Progress(plan, study)
        self._state: Any = optuna_module().trial.TrialState

    @property
    def n_failures(self) -> int:
        """Number of failed trials."""
        return len(self._study.get_trials(deepcopy=False, states=(self._state.FAIL,)))

    @property
    def has_failed_too_often(self) -> bool:
        """True if more trials have failed than the sweep tolerates."""
        return self.n_failures > self._plan.max_failures

    def run(self) -> None:
        """Run trials until there are enough, too many have failed, or a signal ends the sweep."""
        if min(self._plan.n_parallel, self._plan.n_trials) > n_cores() and self._plan.runner.name == "processes":
            say(f"{self._plan.n_parallel} trials at a time share {n_cores()} cores, so that each takes longer")
        under_way = self._study.get_trials(deepcopy=False, states=(self._state.RUNNING,))
        self._under_way = deque(trial.number for trial in under_way)
        with self._processes as processes:
            while True:
                while processes.has_room and not self.has_failed_too_often and self._start_next():
                    pass
                if not processes.running and not self._is_waiting():
                    break
                processes.wait_a_moment()
                for number in processes.running:
                    self._follow(self._running[number])
                for number, exit_status in processes.ended():
                    self._finish(number, exit_status)
                if self.has_failed_too_often and not self._is_ending:
                    self._is_ending = True
                    processes.send_signal(signal.SIGTERM)
                self._progress.show(list(self._running))

    def _is_waiting(self) -> bool:
        """True if trials remain that wait for processes of an earlier command to end."""
        return bool(self._under_way) and not self._signals.received and not self.has_failed_too_often

    # ------------------------------------------------------------------------------------------------------- starting

    def _start_next(self) -> bool:
        """Start a trial, or end one that needs no process; False if there is none to start now."""
        for _ in range(len(self._under_way)):
            number = self._under_way.popleft()
            if in_use(trial_directory(self._folder, number)):
                self._progress.say_once(f"trial {number} waits until the process that still trains it has ended")
                self._under_way.append(number)
                continue
            if self._continue(number):
                return True
        trials = self._study.get_trials(deepcopy=False)
        if self._under_way or len(trials) >= self._plan.n_trials:
            return False
        if self._has_changed_configuration():
            return False
        self._use_sampler(len(trials))
        self._start(self._study.ask(), is_resumed=False)
        return True

    def _use_sampler(self, number: int) -> None:
        """Let the sampler of a trial choose the values that are asked for next."""
        plan = self._plan
        self._study.sampler = make_sampler(plan.sampler, plan.parameters, plan.seed, number)

    def _has_changed_configuration(self) -> bool:
        """True, with a line on the console, if a configuration of the trials has changed."""
        if self._fault is None:
            digest = self._study.user_attrs.get(CONFIGURATIONS)
            self._fault = changed_configuration(self._plan, digest)
            if self._fault is not None:
                say(f"no further trial is started: {self._fault}")
        return self._fault is not None

    def _continue(self, number: int) -> bool:
        """Continue a trial of an earlier command; False if its configuration has changed."""
        folder = trial_directory(self._folder, number)
        self._use_sampler(number)
        trial = resumed_trial(self._study, self._plan, number)
        running = None
        if (folder / RUN_CONFIG).is_file() or (folder / SEEDS_FILE).is_file():
            running = _Running.resumed(trial, folder)
            self._follow(running, is_new=True)
            if running.is_pruned or has_finished(folder):
                self._running[number] = running
                self._finish(number, 0)
                return True
        elif self._has_changed_configuration():
            return False
        elif folder.exists():
            shutil.rmtree(folder)  # nothing was trained
        self._start(trial, is_resumed=folder.exists(), running=running)
        return True

    def _start(self, trial: Any, is_resumed: bool, running: _Running | None = None) -> None:
        """Start the process of a trial."""
        folder = trial_directory(self._folder, trial.number)
        assignment = suggested(self._plan.parameters, trial)
        command = ["fit", "--resume", str(folder)] if is_resumed else self._plan.command(assignment, folder)
        if self._is_trusted:
            command.append(TRUST_OPTION)
        variables = {}
        if "WANDB_RUN_GROUP" not in os.environ:
            variables["WANDB_RUN_GROUP"] = self._folder.name
        self._running[trial.number] = running or _Running(trial, folder, is_resumed)
        values = ", ".join(f"{option}={value_text(value)}" for option, value in assignment.items())
        say(f"trial {trial.number}{' continues' if is_resumed else ''}: {values}")
        self._processes.start(trial.number, command, RunOutput(f"trial {trial.number}", ()), variables)

    # ------------------------------------------------------------------------------------------------------- following

    def _follow(self, running: _Running, is_new: bool = False) -> None:
        """Report new evaluations of a trial to the storage, and stop the trial if it is to be pruned.

        Args:
            running: The trial.
            is_new: Whether the decision about the last reported step may have been lost.
        """
        if running.is_pruned or self._plan.pruner.name == "none" or not self._has_changed(running):
            return
        trial = running.trial
        known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for step, value in steps(running.folder, self._plan.objectives[0]):
            if step in known and not (is_new and step == max(known)):
                continue
            if step not in known:
                trial.report(value, step)
            if trial.should_prune():
                running.is_pruned = True
                self._processes.send_signal(signal.SIGTERM, [trial.number])
                return

    @staticmethod
    def _has_changed(running: _Running) -> bool:
        """True if a trial has written metrics since the last call."""
        times: dict[Path, int] = {}
        for run in runs_of(running.folder):
            path = run / METRICS_FILE
            if path.is_file():
                times[path] = path.stat().st_mtime_ns
        is_new = times != running.read_at
        running.read_at = times
        return is_new

    # ------------------------------------------------------------------------------------------------------- finishing

    def _finish(self, number: int, exit_status: int) -> None:
        """Store how a trial ended; one that was stopped with the sweep stays under way.

        Raises:
            ConfigurationError: No run so far has the metric, so that others will not have it either.
        """
        running = self._running[number]
        self._follow(running)
        del self._running[number]
        trial = running.trial
        is_complete = exit_status == 0 or has_finished(running.folder)
        is_stopped = exit_status in _STOPPED and not running.is_pruned and not is_complete
        is_failed = not (running.is_pruned or is_complete or is_stopped)
        lines = self._processes.close_output(number, show_end=is_failed and not self._signals.received)
        if is_stopped or (is_failed and self._signals.received):
            trial.set_user_attr(_SO_FAR, running.seconds)
            self._progress.stopped(number)
            return
        if running.seconds is not None:
            trial.set_user_attr(SECONDS, running.seconds)
        if running.is_pruned:
            self._study.tell(trial, state=self._state.PRUNED)
        elif is_failed:
            errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
            reason = errors[-1] if errors else f"exit status {exit_status}"
            self._fail(trial, reason)
            if UNKNOWN_VALUE in reason and self._is_first():
                raise ConfigurationError(f"objective: {reason}")
        else:
            self._complete(trial, running.folder)
        self._progress.ended(number)

    def _complete(self, trial: Any, folder: Path) -> None:
        """Store the result of a trial that has trained to the end.

        Raises:
            ConfigurationError: No run so far has the metric, so that others will not have it either.
        """
        try:
            values = final_values(folder, self._plan.objectives)
        except (ConfigurationError, ValueError) as error:
            self._fail(trial, str(error))
            if isinstance(error, ConfigurationError) and self._is_first():
                raise ConfigurationError(f"objective: {error}") from error
            return
        self._study.tell(trial, values)

    def _is_first(self) -> bool:
        """True if no trial has finished, so that a metric that is not there will not be there later."""
        return not self._study.get_trials(deepcopy=False, states=(self._state.COMPLETE,))

    def _fail(self, trial: Any, reason: str) -> None:
        """Store that a trial has failed."""
        trial.set_user_attr(REASON, reason)
        self._study.tell(trial, state=self._state.FAIL)

    @property
    def is_complete(self) -> bool:
        """True if all trials have ended, and none was stopped."""
        trials = self._study.get_trials(deepcopy=False)
        return len(trials) >= self._plan.n_trials and all(trial.state.is_finished() for trial in trials)
