"""A time limit for calls in the main thread; the error says where in the code the call hangs."""

import contextlib
import faulthandler
import math
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from maze_pl.system.lost_process import LostProcessError

LEAST_SECONDS_TO_MAKE = 60.0
"""Time allowed for making an environment: imports and loading may take longer than any step."""
_SECONDS_TO_INTERRUPT: Final = 5.0
_LIBRARIES: Final = {"maze_pl", "gymnasium", "numpy", "torch", "pytorch_lightning", "lightning_fabric", "cloudpickle"}


class CallTimeoutError(LostProcessError):
    """A call of an environment did not return in time; the message says where it was."""


def seconds_to_make(step_timeout: float) -> float:
    """Return the seconds that making an environment may take.

    Args:
        step_timeout: Seconds that a step may take.
    """
    return max(step_timeout, LEAST_SECONDS_TO_MAKE)


def time_limit_to_make(step_timeout: float | None) -> contextlib.AbstractContextManager[None]:
    """Return the time limit for making an environment in this process; see `time_limit`.

    Args:
        step_timeout: Seconds that a step may take; no limit if None.
    """
    return time_limit("making the environment", None if step_timeout is None else seconds_to_make(step_timeout))


def place_of(frame: FrameType | None) -> str:
    """Return file, line and function of the innermost user code that is running; "" if there is none.

    A script itself counts for nothing: it may be the one that starts `maze-pl`.
    """
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        is_script = package == "__main__" and frame.f_code.co_name == "<module>"
        if not is_script and package not in _LIBRARIES and package not in sys.stdlib_module_names:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def time_limit(call: str, seconds: float | None) -> Iterator[None]:
    """Raise an error in a call that takes too long.

    The error is raised where the call hangs. If the call does not return to Python either within
    5 s more, the stack is written to standard error, and the process ends with exit status 1. Only
    the main thread can be interrupted; in others there is no limit.

    Args:
        call: Description of the call, for the message.
        seconds: Time limit; no limit if None.

    Raises:
        CallTimeoutError: The call has not returned in time.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_: int, frame: FrameType | None) -> None:
        place = place_of(frame)
        raise CallTimeoutError(f"{call} has not returned within {seconds:g} s{place and f'; it is at {place}'}")

    former: Any = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(math.ceil(seconds + _SECONDS_TO_INTERRUPT), exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        if signal.getsignal(signal.SIGALRM) is interrupt:  # otherwise a stop signal has taken it over
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, former)
