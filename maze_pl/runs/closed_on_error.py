"""Environments that are closed if something around them is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def closed_on_error(env: Any, is_given: bool) -> Iterator[None]:
    """Close an environment if the `with` block raises, so that what it holds is free again.

    If it cannot be closed, the error of the block says so in a note.

    Args:
        env: The environment.
        is_given: Whether it is one of the caller, which stays open.
    """
    try:
        yield
    except BaseException as error:
        if not is_given:
            _close(env, error)
        raise


def _close(env: Any, error: BaseException) -> None:
    """Close an environment because of an error."""
    try:
        env.close()
    except Exception as further:
        error.add_note(f"Closing the environment failed, too: {type(further).__name__}: {further}")
