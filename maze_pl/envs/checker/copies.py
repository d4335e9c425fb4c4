"""Checks of determinism, of copies within an episode, and of sending to other processes."""

import io
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.envs.arrays.array_maze_env import ArrayCoreEnv, ArrayMazeEnv
from maze_pl.envs.checker.examination import N_REPLAYED, Examination
from maze_pl.envs.checker.recorder import Recorder
from maze_pl.envs.checker.report import ERROR, SKIPPED, WARNING, Finding
from maze_pl.envs.contract import EnvContractError
from maze_pl.system.time_limit import CallTimeoutError


def check_determinism(examination: Examination) -> Iterator[Finding]:
    """Find environments that differ although seeds and actions are the same."""
    difference = examination.play_again(examination.env, with_summaries=True)
    if difference is None:
        difference = examination.play_again(examination.make(), with_summaries=True)
    if difference is not None:
        examination.is_deterministic = False
        remedy = "reset(seed=...) must restore everything, and all randomness must come from that seed"
        yield ERROR, f"with the same seeds and actions there was {difference}: {remedy}"


def check_saving(examination: Examination) -> Iterator[Finding]:
    """Find environments of which a copy, made within an episode, continues differently."""
    if not examination.is_deterministic:
        yield SKIPPED, "the environment is not deterministic"
        return
    played = examination.env.unwrapped
    if isinstance(played, ArrayMazeEnv) and not played.array_env.unwrapped.saves_state:
        yield SKIPPED, "its state cannot be saved: a resumed run starts new episodes"
        return
    resets = [index for index, act in enumerate(examination.acts[:N_REPLAYED]) if act.action is None]
    episodes = pairwise([*resets, len(examination.acts)])
    start, end = max(episodes, key=lambda episode: episode[1] - episode[0])
    middle = (start + end) // 2
    examination.play_again(examination.env, middle)
    verdict = ERROR
    try:
        clone = _clone(examination)
    except EnvContractError as error:
        yield ERROR, f"a copy would lack a part of the state: {error}"
        return
    try:
        if clone is None:
            verdict = WARNING
            clone = examination.copied()
        rest = examination.acts[middle:end]
        difference = examination.env.repeat(rest) or clone.repeat(rest)
    except CallTimeoutError:
        raise
    except Exception as error:  # a copy may be too broken to be stepped
        difference = f"{type(error).__name__}: {error}"
    if difference is not None:
        remedy = "let clone_from copy the whole state"
        if examination.plays_arrays:
            remedy = (
                "keep the whole state in arrays, tensors, RandomStreams, or containers of numbers, made in"
                " allocate, that are attributes or lie in lists, tuples, dicts and deques that are attributes"
            )
        yield verdict, f"a copy leads to {difference}; {remedy}"


def _clone(examination: Examination) -> Recorder | None:
    """Return another environment with the same state; None if the state cannot be copied.

    Raises:
        EnvContractError: Copies would lack a part of the state.
    """
    try:
        other = examination.make() if callable(examination.source) else examination.copied()
        if isinstance(core_env := other.env.core_env, ArrayCoreEnv):
            core_env.takes_saved_state_only = True
        other.env.clone_from(examination.env.env)
    except (CallTimeoutError, EnvContractError):
        raise
    except Exception:  # user-defined classes may raise anything
        return None
    return other


class SeparateUnpickler(pickle.Unpickler):
    """Unpickler that makes new classes, as in another process.

    cloudpickle sends classes of scripts and functions by value. In the process that has sent them it would redefine
    the existing ones, whose errors would then no longer name their file.
    """

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Find a global; functions of cloudpickle that make classes do not look for existing ones."""
        found = super().find_class(module_name, global_name)
        if global_name not in ("_make_skeleton_class", "_make_skeleton_enum"):
            return found

        def make_new_class(*arguments: Any) -> Any:
            *description, _, extra = arguments
            return found(*description, None, extra)

        return make_new_class


def check_pickling(examination: Examination) -> Iterator[Finding]:
    """Find environments that cannot be sent to other processes."""
    try:
        SeparateUnpickler(io.BytesIO(cloudpickle.dumps(examination.source))).load()
    except Exception as error:  # user-defined classes may raise anything
        yield (
            WARNING,
            f"it cannot be sent to other processes, only vectorization=sequential is possible: {error}",
        )
