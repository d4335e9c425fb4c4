"""Signals in processes forked by an environment, which inherit the handlers of their parent."""

import os
import signal


def end_if_forked(process: int, number: int) -> None:
    """End this process on TERM if an environment forked it from `process`, whose handlers it inherited."""
    if number == signal.SIGTERM and os.getpid() != process:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
