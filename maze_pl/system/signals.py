"""Handling of INT and TERM from the start of a command; imports nothing that is slow to import.

Until training begins there is nothing to save, so a signal ends the command immediately. From then
on it is only noted, and the callback `StopOnSignal` ends training at a point from which it can be
resumed exactly. A rollout or an evaluation that takes too long after a signal, or fails, is abandoned.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Self

from maze_pl.system.forked import end_if_forked
from maze_pl.system.time_limit import place_of

MAIN_PROCESS_VARIABLE: Final = "MAZE_PL_MAIN_PROCESS"
STARTER_VARIABLE: Final = "MAZE_PL_STARTER"
"""Environment variable with the process id of the command that started this command."""
PATIENCE: Final = 20.0
"""Seconds for which a rollout or an evaluation may continue after a signal."""
_FOLLOWER: Final = "maze_pl-main-process"  # name of a thread
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_TELL: Final = 3.0  # for a rank to report that its launcher is gone
_SECONDS_FOR_FIRST_RANK: Final = 1.0  # additional patience of other ranks
_SECONDS_TO_FOLLOW: Final = 0.1
_SECONDS_TO_ARRIVE: Final = 0.1  # from the first to the last process that gets the same signal
_SECONDS_OF_ONE_SIGNAL: Final = 1.0  # a terminal, `timeout` and process managers may deliver the same one twice


class StoppedBySignal(SystemExit):
    """A signal has ended the command; the exit status is that of a shell, 130 for INT and 143 for TERM.

    Args:
        number: The signal.
        is_reported: Whether another process reports the exit status, so that this one ends with 0.
    """

    def __init__(self, number: int, is_reported: bool = False) -> None:
        super().__init__(0 if is_reported else 128 + number)


class StopSignals:
    """Context manager that handles INT and TERM, and restores the previous handlers on exit.

    The first signal ends the process immediately by raising `StoppedBySignal`, or is only noted if
    `deferred` is true. A second signal, more than a second after the first, always ends it
    immediately. After a noted signal, the process is also ended by `StoppedBySignal` once patience
    is exhausted, at a point where only a rollout or an evaluation is lost.

    Args:
        deferred: Whether a signal is only noted.
        patience: Seconds from a noted signal until the process is ended, if it may be.
        trains: Whether the command trains, so that a signal before that is worth a hint.

    Attributes:
        received: Number of the received signal, 0 if none.
        may_interrupt: Whether the process may be ended now: nothing is being learned or written.
        has_interrupted: Whether the process was ended in this way.
        place: Place in the user's code at which it was ended then; "" if there is none.
        failure: Description of the error that ended the rollout or the evaluation instead; "" if none did.
        is_reported: Whether another rank has reported that and why the run is stopped.
        is_passed_on: Whether this process only waits for its training child processes, and passes
            signals on.
        on_signal: Called with the number of each signal, before anything else.
    """

    def __init__(self, deferred: bool = False, patience: float = PATIENCE, trains: bool = True) -> None:
        self.received = 0
        self.deferred = deferred
        self._trains = trains
        self.is_passed_on = False
        self.on_signal: Callable[[int], None] | None = None
        self.patience = patience
        self.may_interrupt = self.has_interrupted = self.is_reported = False
        self.place = self.failure = ""
        self._former_alarm: Any = None
        self._since, self._process = 0.0, os.getpid()
        self._former: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for spawned training processes: they handle signals once they have the trainer."""
        return _taken_by_child, ()

    def take(self) -> Self:
        """Install the handlers, replacing any others; does nothing outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            self._former = self._former or {number: signal.getsignal(number) for number in _NUMBERS}
            for number in _NUMBERS:
                signal.signal(number, self._handle)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
        return self

    def hold(self) -> None:
        """Block signals until the next `take`, also in processes that are started until then.

        Otherwise a rank launched by Lightning would die of a signal before it can handle it, and
        Lightning would kill the others.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)

    def release(self, *_: object) -> None:
        """Restore the previous handlers."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
        self._cancel_alarm()
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    __enter__, __exit__ = take, release

    def _handle(self, number: int, frame: FrameType | None) -> None:
        end_if_forked(self._process, number)
        if self.on_signal is not None:
            self.on_signal(number)
        if self.received:
            if time.monotonic() - self._since > _SECONDS_OF_ONE_SIGNAL:
                place = place_of(frame)
                _say(f"{signal.Signals(number).name}: stopped{place and f' at {place}'}")
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self.received, self._since = number, time.monotonic()
        trains = not self.is_passed_on or self._pass_on(number)
        if self.deferred and trains:
            if not self.is_passed_on:
                self._former_alarm = signal.signal(signal.SIGALRM, self._lose_patience)
                more = 0.0 if self.is_reported or _is_first_rank() else _SECONDS_FOR_FIRST_RANK
                signal.setitimer(signal.ITIMER_REAL, self.patience + more, 1.0)  # then each second
            if not self.is_reported:
                after = f"after this rollout or evaluation, or in {self.patience:.0f} s"
                _say(f"{signal.Signals(number).name}: stopping {after}; send it again to stop immediately")
            return
        place = place_of(frame)
        stopped = f"stopped by {signal.Signals(number).name}{place and f' at {place}'}"
        _say(f"{stopped}; nothing was trained: start the command again" if self._trains else stopped)
        raise StoppedBySignal(number)

    def follow(self, number: int) -> None:
        """End this process like another rank, which has reported why; may be called in any thread.

        Args:
            number: The signal that stopped the other rank.
        """
        self.is_reported = True
        if not self.received:
            self.patience = _SECONDS_TO_FOLLOW
            os.kill(os.getpid(), number)

    def _lose_patience(self, _: int, frame: FrameType | None) -> None:
        """End a rollout or an evaluation that takes too long after a signal, if it may be ended."""
        if self.may_interrupt:
            self._cancel_alarm()
            self.place = place_of(frame)
            self.may_interrupt, self.has_interrupted = False, True
            raise StoppedBySignal(self.received)

    def abandon(self, error: Exception) -> StoppedBySignal:
        """Return the exception that ends a rollout or an evaluation which has failed after a signal.

        Args:
            error: The failure.
        """
        self._cancel_alarm()
        if self.deferred and not self.has_interrupted:
            if not _is_first_rank():
                time.sleep(_SECONDS_FOR_FIRST_RANK)  # in which it ends this rank if it has failed, too
            lines = str(error).strip().splitlines() or [""]
            self.failure = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
            if "Traceback" in lines[0]:  # of a worker process
                self.failure = lines[-1]
            self.may_interrupt, self.has_interrupted = False, True
        return StoppedBySignal(self.received)

    def _cancel_alarm(self) -> None:
        if self._former_alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._former_alarm)
            self._former_alarm = None

    @staticmethod
    def _pass_on(number: int) -> bool:
        """Pass a signal on to the training processes; False if there are none."""
        children = multiprocessing.active_children()
        for child in children:
            if child.pid is not None:
                os.kill(child.pid, number)
        return bool(children)


@contextlib.contextmanager
def abandoned_after_signal() -> Iterator[None]:
    """Let an error of environments end this process by the signal that it has received before, if any.

    The processes that an environment has started get the signals that are sent to all processes of a
    run, too, and may end by them.

    Raises:
        StoppedBySignal: There was an error after a signal.
    """
    try:
        yield
    except Exception as error:
        signals = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if not isinstance(signals, StopSignals):
            raise
        if not signals.received:
            time.sleep(_SECONDS_TO_ARRIVE)
        if not signals.received:
            raise
        raise signals.abandon(error) from error


def _taken_by_child() -> StopSignals:
    signals = StopSignals(deferred=True)
    return signals if multiprocessing.parent_process() is None else signals.take()  # not if merely copied


def _is_first_rank() -> bool:
    """True in a machine's first training process."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _say(text: str) -> None:
    """Write a line in a machine's first process, by `os.write`, safe in signal handlers."""
    if _is_first_rank() and multiprocessing.parent_process() is None:
        os.write(2, f"maze-pl: {text}\n".encode())


def is_launched_rank() -> bool:
    """True if Lightning has launched this process as a further rank of a machine."""
    is_first = os.environ.get("LOCAL_RANK", "0") == "0"
    return MAIN_PROCESS_VARIABLE in os.environ and not is_first and "TORCHELASTIC_RUN_ID" not in os.environ


def main_process_has_ended() -> bool:
    """True if the process that launched this rank is gone."""
    return os.getppid() != int(os.environ[MAIN_PROCESS_VARIABLE])


def follow_main_process() -> bool:
    """Make a rank launched by Lightning end when the process that launched it ends, for any reason.

    Returns:
        Whether this process is such a rank. If not, it is registered as the main process of ranks
        that it will launch.
    """
    if not is_launched_rank():
        os.environ[MAIN_PROCESS_VARIABLE] = str(os.getpid())
        return False
    if all(thread.name != _FOLLOWER for thread in threading.enumerate()):
        threading.Thread(target=_end_with_main_process, daemon=True, name=_FOLLOWER).start()
    return True


def _end_with_main_process() -> None:
    while not main_process_has_ended():
        time.sleep(0.5)
    time.sleep(_SECONDS_TO_TELL)
    os._exit(1)


def follow_starter() -> None:
    """Let this command end by TERM if the command that started it has ended, however that happened."""
    starter = os.environ.pop(STARTER_VARIABLE, None)  # not for processes that this command starts
    if starter is not None:
        name = "maze_pl-starter"
        threading.Thread(target=_stop_with_starter, args=(int(starter),), daemon=True, name=name).start()


def _stop_with_starter(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
