"""What INT and TERM do to a command, from its first moment on; apart from all that takes long to import.

Until training begins there is nothing to keep, so a signal ends the command at once. From then on it is only noted, and
the callback `StopOnSignal` ends training where it can be resumed from exactly.
"""

import multiprocessing
import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Final, Self

from maze_pl.core.forked import end_if_forked

MAIN_PROCESS_VARIABLE: Final = "MAZE_PL_MAIN_PROCESS"
_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_SECONDS_OF_ONE_SIGNAL: Final = 1.0  # a terminal, `timeout` and process managers may deliver the same one twice


class StoppedBySignal(SystemExit):
    """A signal has ended the command; the exit status is that of a shell, 130 for INT and 143 for TERM.

    Args:
        number: The signal.
        is_reported: Whether another process tells the exit status, so that this one ends with 0.
    """

    def __init__(self, number: int, is_reported: bool = False) -> None:
        super().__init__(0 if is_reported else 128 + number)


class StopSignals:
    """Takes INT and TERM while it is entered, and leaves them as they were.

    The first one ends the process at once by `StoppedBySignal`, or is noted where `deferred` is true. A second one,
    later than a second after the first, always ends it at once.

    Args:
        deferred: Whether it is only noted.

    Attributes:
        received: Number of the signal that came, 0 if none did.
        is_passed_on: Whether this process only waits for processes of its own that train, and has to tell them.
    """

    def __init__(self, deferred: bool = False) -> None:
        self.received, self.deferred, self.is_passed_on = 0, deferred, False
        self._since, self._process = 0.0, os.getpid()
        self._former: dict[int, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For processes that are spawned to train: they take the signals as soon as they have the trainer."""
        return _taken_by_child, ()

    def take(self) -> Self:
        """Take the signals, also if somebody else has taken them since; only a main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            self._former = self._former or {number: signal.getsignal(number) for number in _NUMBERS}
            for number in _NUMBERS:
                signal.signal(number, self._handle)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
        return self

    def hold(self) -> None:
        """Have signals wait for the next `take`, also those to processes that are started until then.

        A rank that Lightning has launched would die of a signal before it can take it, and Lightning kill the others.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)

    def release(self, *_: object) -> None:
        """Leave the signals as they were."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}

    __enter__, __exit__ = take, release

    def _handle(self, number: int, frame: FrameType | None) -> None:
        end_if_forked(self._process, number)
        if self.received:
            if time.monotonic() - self._since > _SECONDS_OF_ONE_SIGNAL:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self.received, self._since = number, time.monotonic()
        trains = not self.is_passed_on or self._pass_on(number)
        if self.deferred and trains:
            _say(f"{signal.Signals(number).name}: stopping after this rollout or evaluation; once more stops at once")
            return
        _say(f"stopped by {signal.Signals(number).name}; nothing was trained")
        raise StoppedBySignal(number)

    @staticmethod
    def _pass_on(number: int) -> bool:
        """Tell the processes that train; False if there are none."""
        children = multiprocessing.active_children()
        for child in children:
            if child.pid is not None:
                os.kill(child.pid, number)
        return bool(children)


def _taken_by_child() -> StopSignals:
    signals = StopSignals(deferred=True)
    return signals if multiprocessing.parent_process() is None else signals.take()  # unless merely copied


def _say(text: str) -> None:
    """Write a line from the first process of a machine; nothing else may be written with inside a signal handler."""
    if os.environ.get("LOCAL_RANK", "0") == "0" and multiprocessing.parent_process() is None:
        os.write(2, f"maze-pl: {text}\n".encode())


def follow_main_process() -> bool:
    """Have a rank that Lightning has launched end when the process that launched it has ended, however it did.

    Returns:
        Whether this process is such a rank. The others are remembered as main processes of what they will launch.
    """
    main = os.environ.get(MAIN_PROCESS_VARIABLE)
    if main is None or os.environ.get("LOCAL_RANK", "0") == "0" or "TORCHELASTIC_RUN_ID" in os.environ:
        os.environ[MAIN_PROCESS_VARIABLE] = str(os.getpid())
        return False
    threading.Thread(target=_end_with, args=(int(main),), daemon=True, name="maze_pl-main-process").start()
    return True


def _end_with(main: int) -> None:
    while os.getppid() == main:
        time.sleep(0.5)
    os._exit(1)
