"""Wrappers that record episodes, which an environment of a run has for its training only."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from maze_pl.config.factories import Factory
from maze_pl.core.class_path import import_object
from maze_pl.envs.wrappers.event_logs_wrapper import EventLogsWrapper
from maze_pl.envs.wrappers.recording_wrapper import RecordingWrapper

RECORDERS: Final = (EventLogsWrapper, RecordingWrapper)


def without_recorders(wrappers: Sequence[Callable[..., Any]] | None) -> list[Callable[..., Any]]:
    """Return a list of wrappers without those that record episodes or events.

    They write what happens in training. Episodes that are played afterwards with the environment of
    the run do not belong there, and rollouts record them in their own way.

    Args:
        wrappers: Wrapper classes, factories of them from a configuration, or partial calls; other
            functions are kept, as they do not tell what they make.
    """
    return [wrapper for wrapper in wrappers or () if not _is_recorder(wrapper)]


def _is_recorder(wrapper: Any) -> bool:
    """True if a callable makes a wrapper that records."""
    while isinstance(wrapper, partial):
        wrapper = wrapper.func
    if isinstance(wrapper, Factory):
        wrapper = import_object(wrapper.class_path)
    made = getattr(wrapper, "__self__", wrapper)  # of the class method `wrap`
    return isinstance(made, type) and issubclass(made, RECORDERS)
