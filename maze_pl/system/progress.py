"""Progress of long work, on terminals, in notebooks and in logs."""

import sys
from typing import Any, Final

_SECONDS_IN_LOGS: Final = 10.0


def bar_options(label: str, is_shown: bool) -> dict[str, Any]:
    """Return options of a bar of tqdm: a line in a log at most every 10 s, and none for what takes less.

    Args:
        label: What the bar is about.
        is_shown: Whether there shall be a bar.
    """
    if not is_shown or sys.stderr is None:  # None in a process without a console
        return {"desc": label, "disable": True}
    options: dict[str, Any] = {"desc": label, "disable": False}
    if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # a notebook shows the bar at once
        options |= {"mininterval": _SECONDS_IN_LOGS, "delay": _SECONDS_IN_LOGS}
    return options
