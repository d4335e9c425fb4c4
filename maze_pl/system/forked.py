"""Signals in processes forked by an environment, which inherit the handlers of their parent."""

import os
import signal


def end_if_forked(process: int, number: int) -> None:
    """Let TERM end what an environment forked from `process`, which handles signals.

    The environment waits for the forked process to end.
    """
    if number == signal.SIGTERM and os.getpid() != process:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
