"""Completion of wrapper statistics: those taken over from another run, and new ones where there are none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from maze_pl.core.class_path import is_defined_with
from maze_pl.envs.building import class_of
from maze_pl.envs.wrapper import Wrapper

_REMEDY = "use the wrappers of the run; only a warm start (--warm-start) may leave out or add some"


class CompletedStatistics(NamedTuple):
    """Statistics of all wrappers of an environment.

    Attributes:
        states: State of each wrapper that has statistics, by name.
        message: A message about them; empty if there is nothing to say.
        refusal: Reason why they cannot be completed; empty if they are.
    """

    states: dict[str, Any]
    message: str = ""
    refusal: str = ""


def completed_statistics(
    known: Mapping[str, Any] | None,
    wrappers: Sequence[str],
    estimate: Callable[[dict[str, Any]], dict[str, Any]],
    may_differ: bool,
) -> CompletedStatistics:
    """Complete the statistics of another run, if there are any, by new estimates.

    Args:
        known: Statistics of the other run by name of the wrapper; None without another run.
        wrappers: Names of the wrappers of the environment.
        estimate: Function from known statistics to those of all wrappers.
        may_differ: The wrappers may differ from those of the other run.
    """
    taken = known or {}
    foreign = [name for name in taken if name not in wrappers]
    if foreign and not may_differ:
        fault = f"there are statistics of the wrappers {foreign}, but the wrappers here are {[*wrappers][1:]}"
        return CompletedStatistics({}, refusal=f"{fault}: {_REMEDY}")
    if refusal := _ambiguous(foreign, taken, wrappers):
        return CompletedStatistics({}, refusal=refusal)
    states = estimate({name: state for name, state in taken.items() if name in wrappers})
    new = [name for name in states if name not in taken] if known is not None else []
    if new and not may_differ:
        fault = f"there are no statistics of the wrappers {new}, but only of {list(taken)}"
        return CompletedStatistics({}, refusal=f"{fault}: {_REMEDY}")
    messages = []
    if foreign:
        messages.append(f"statistics of the wrappers {foreign} are left out, as this run does not have these wrappers")
    if new:
        messages.append(f"the wrappers {new} start from scratch, as the other run has no statistics of them")
    return CompletedStatistics(states, "; ".join(messages))


def require_rebasing(wrappers: Mapping[str, type[Wrapper]], needed_by: str) -> None:
    """Refuse wrappers that cannot merge statistics of copies that began with earlier ones.

    Args:
        wrappers: Classes of the wrappers, by name.
        needed_by: What collects rollouts ahead of time.

    Raises:
        TypeError: A class defines `merge_shared_states`, but not `rebase_shared_state` with it.
    """
    unfit = []
    for name, kind in wrappers.items():
        if not is_defined_with(kind, "rebase_shared_state", "merge_shared_states"):
            unfit.append(name)
    if unfit:
        fault = f"the wrappers {unfit} define merge_shared_states, but not rebase_shared_state"
        reason = f"{needed_by} merges rollouts that began with earlier statistics and would lose some"
        remedy = "define it, collect in this process (engine: null), or use a RolloutDataModule"
        raise TypeError(f"{fault}: {reason}; {remedy}")


def _ambiguous(foreign: Sequence[str], known: Mapping[str, Any], wrappers: Sequence[str]) -> str:
    """Return why statistics cannot be assigned to wrappers in a warm start; empty if they can.

    Wrappers of one class are told apart by their order alone, which says nothing if the other
    run had more or fewer of them.

    Args:
        foreign: Names of statistics without a wrapper of that name.
        known: Statistics of the other run.
        wrappers: Names of the wrappers of the environment.
    """
    for path in dict.fromkeys(map(class_of, foreign)):
        n_here = sum(class_of(name) == path for name in wrappers)
        if n_here:
            n_there = sum(class_of(name) == path for name in known)
            counts = f"the other run has statistics of {n_there} wrappers {path}, and there are {n_here} here"
            remedy = f"use {n_there} of them, or make each new wrapper a subclass, which gets separate statistics"
            return f"{counts}; they cannot be matched: {remedy}"
    return ""
