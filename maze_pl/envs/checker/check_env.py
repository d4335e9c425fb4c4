"""The doctor: plays an environment with random actions, and performs all checks."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from maze_pl.core.checks import check_seconds
from maze_pl.envs.checker.aliasing import check_conversions, check_memory
from maze_pl.envs.checker.arrays import check_arrays
from maze_pl.envs.checker.copies import check_determinism, check_pickling, check_saving
from maze_pl.envs.checker.events import check_events
from maze_pl.envs.checker.examination import ArrayForm, Examination
from maze_pl.envs.checker.playing import check_spaces, check_steps
from maze_pl.envs.checker.report import ERROR, OK, CheckLine, CheckReport, Finding
from maze_pl.envs.checker.speed import check_speed, check_vectorization
from maze_pl.envs.checker.time_and_episodes import check_env_time, check_episodes, check_masks
from maze_pl.envs.checker.values import check_observations, check_rewards
from maze_pl.envs.contract import EnvContractError
from maze_pl.system.time_limit import CallTimeoutError

_LEAST_STEPS = 10
_LIBRARIES = ("maze_pl", "gymnasium", "numpy", "torch", "copy", "cloudpickle")


class Check(NamedTuple):
    """One of the doctor's checks.

    Attributes:
        name: Its name.
        success: Explanation in the report if nothing was found.
        find: Yields findings, in the order of the checks.
        is_required: Whether the following checks are skipped if this one fails.
        needs_arrays: Whether it is a check of array environments only.
    """

    name: str
    success: str
    find: Callable[[Examination], Iterator[Finding]]
    is_required: bool = False
    needs_arrays: bool = False


_GOOD_VALUES = "finite, of sizes that networks can learn from, and without drift"
CHECKS = (
    Check(
        "spaces",
        "there are networks and distributions for all observations and actions",
        check_spaces,
        is_required=True,
    ),
    Check("steps", "every observation lies in its space", check_steps, is_required=True),
    Check("conversions", "states stay as they are", check_conversions),
    Check("memory", "observations stay as they were returned", check_memory),
    Check("determinism", "the same seed and the same actions give the same episode", check_determinism),
    Check("env_time", "environment time advances", check_env_time),
    Check("episodes", "episodes end", check_episodes),
    Check("masks", "there is always an action that is allowed", check_masks),
    Check("observations", _GOOD_VALUES, check_observations),
    Check("rewards", _GOOD_VALUES, check_rewards),
    Check("events", "all events that are declared were fired", check_events),
    Check("saving", "a copy made within an episode continues like the original", check_saving),
    Check("pickling", "it can be sent to other processes", check_pickling),
    Check(
        "arrays", "several environments in arrays equal single ones of the same seeds", check_arrays, needs_arrays=True
    ),
    Check("speed", "acts per second", check_speed),
    Check("vectorization", "recommended way to step several environments", check_vectorization),
)


def check_env(
    env: Any,
    *,
    n_steps: int = 1000,
    seed: int = 0,
    action_masks: Mapping[str, str] | None = None,
    step_timeout: float | None = None,
    array_form: ArrayForm | None = None,
) -> CheckReport:
    """Check an environment by playing it with random actions.

    An environment that is passed as an instance, not as a factory, is itself reset and stepped.

    Args:
        env: A `MazeEnv` or a stack of wrappers around one, a bare gymnasium environment, or a
            factory of one of these (called without arguments), so that two instances can be
            compared.
        n_steps: Number of acts to play.
        seed: Determines episodes and actions.
        action_masks: Masks in addition to the ones that the environment declares; see
            `RolloutDataModule`.
        step_timeout: Seconds that a step or a reset may take, in the main thread; no limit if None.
            Making an environment may take as long, but at least 60 s.
        array_form: If `env` makes an episode of an array environment, this environment and its wrappers: several
            environments in arrays are then compared with single ones. It is not needed if `env` itself is the class
            of an array environment, or a function that makes one.

    Returns:
        The report. Exceptions in the environment are part of it.

    Raises:
        ValueError: `n_steps` is below 10, too few acts to find anything.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> check_env(GymMazeEnv("CartPole-v1")).ok
        True
    """
    if n_steps < _LEAST_STEPS:
        raise ValueError(f"n_steps={n_steps} must be at least {_LEAST_STEPS}")
    check_seconds("step_timeout", step_timeout)
    examination = Examination(env, n_steps, seed, action_masks or {}, step_timeout, array_form)
    lines: list[CheckLine] = []
    is_stuck = False
    for check in CHECKS:
        if check.needs_arrays and not examination.plays_arrays:
            continue
        try:
            findings = list(check.find(examination)) or [(OK, check.success)]
        except Exception as error:  # whatever the environment raises
            findings = [(ERROR, _description(error))]
            is_stuck = check.is_required or isinstance(error, CallTimeoutError)
        lines += [CheckLine(check.name, *finding) for finding in findings]
        if is_stuck:
            break
    examination.close(is_stuck)
    return CheckReport(examination.title, tuple(lines))


def _description(error: Exception) -> str:
    """Describe an exception, with its place in the user's code."""
    if isinstance(error, EnvContractError | CallTimeoutError):
        return str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    user_frames = []
    for frame in frames:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _LIBRARIES:
            user_frames.append(frame)
    place = traceback.extract_stack((user_frames or frames)[-1], limit=1)[0]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno} in {place.name})"
