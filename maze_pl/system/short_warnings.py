"""Warnings of maze_pl on the command line: one line each, and once each."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = Path(__file__).parents[1]


@contextmanager
def short_warnings() -> Iterator[None]:
    """Print warnings of maze_pl in a `with` block without file and code, each text once.

    Warnings of other packages and of code of users are shown as before, apart from a `UserWarning`
    that a package attributes to a line of maze_pl, its caller.
    """
    show = warnings.showwarning
    texts: set[str] = set()

    def show_briefly(message: Any, category: type[Warning], filename: str, *others: Any, **options: Any) -> None:
        is_ours = issubclass(category, UserWarning) and _PACKAGE in Path(filename).parents
        if not is_ours or sys.stderr is None:
            show(message, category, filename, *others, **options)
        elif str(message) not in texts:
            texts.add(str(message))
            sys.stderr.write(f"maze-pl: warning: {message}\n")

    warnings.showwarning = show_briefly
    try:
        yield
    finally:
        warnings.showwarning = show
