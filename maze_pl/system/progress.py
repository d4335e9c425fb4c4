"""Progress of long work, on terminals and in logs."""

import sys
from typing import Any, Final

_SECONDS_IN_LOGS: Final = 10.0


def bar_options(label: str, is_shown: bool) -> dict[str, Any]:
    """Return options of a bar of tqdm: a line in a log at most every 10 s, and none for what takes less.

    Args:
        label: What the bar is about.
        is_shown: Whether there shall be a bar.
    """
    options: dict[str, Any] = {"desc": label, "disable": not is_shown}
    if not sys.stderr.isatty():
        options |= {"mininterval": _SECONDS_IN_LOGS, "delay": _SECONDS_IN_LOGS}
    return options
