"""Signals in processes that an environment forks, which inherit the handlers of whoever plays it."""

import os
import signal


def end_if_forked(process: int, number: int) -> None:
    """Have TERM end what an environment has forked from the process that takes signals: it waits for that."""
    if number == signal.SIGTERM and os.getpid() != process:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
