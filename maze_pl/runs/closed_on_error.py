"""Environments that are closed if something around them is refused."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def closed_on_error(env: Any, is_given: bool) -> Iterator[None]:
    """Close an environment if the `with` block raises, so that what it holds is free again.

    Args:
        env: The environment.
        is_given: Whether it is one of the caller, which stays open.
    """
    with ExitStack() as parts:
        if not is_given:
            parts.callback(env.close)
        yield
        parts.pop_all()
