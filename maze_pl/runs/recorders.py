"""Wrappers that record episodes, which an environment of a run has for its training only."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from maze_pl.config.factories import Factory
from maze_pl.core.class_path import import_object
from maze_pl.envs.wrapper import Wrapper
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
    kept = []
    for wrapper in wrappers or ():
        kind = class_made_by(wrapper)
        if kind is None or not issubclass(kind, RECORDERS):
            kept.append(wrapper)
    return kept


def class_made_by(wrapper: Any) -> type | None:
    """Return the class whose instances a callable makes; None for a function, which does not tell.

    Args:
        wrapper: A class, its class method `wrap`, a factory from a configuration, a partial call of one
            of these, or a function, as which any other class method counts.
    """
    while isinstance(wrapper, partial):
        wrapper = wrapper.func
    if isinstance(wrapper, Factory):
        wrapper = import_object(wrapper.class_path)
    if getattr(wrapper, "__func__", None) is vars(Wrapper)["wrap"].__func__:
        wrapper = wrapper.__self__
    return wrapper if isinstance(wrapper, type) else None
