"""Checks of conversions, and that observations do not change after they were returned."""

import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.inverses import Inverses
from maze_pl.envs.checker.recorder import same
from maze_pl.envs.checker.report import ERROR, Finding
from maze_pl.envs.structured_env import Action, StepResult
from maze_pl.envs.wrappers.sample_episodes import sample_episodes

_N_CONVERTED = 200  # acts whose conversions are checked


def check_conversions(examination: Examination) -> Iterator[Finding]:
    """Find conversions that change the state, and wrong inverses; measure steps without wrappers.

    All wrappers take part, since the simulation may rely on their time limits and masks.
    """
    inner: Any = examination.env.unwrapped
    step_without_wrappers = inner.step
    durations: list[float] = []
    faults: set[str] = set()
    inverses = Inverses()

    def convert(action: Action) -> None:
        state = inner.get_maze_state()
        to_observation, to_action = inner.observation_conversion, inner.action_conversion
        before = cloudpickle.dumps(state)
        to_observation.maze_to_space(state)
        between = cloudpickle.dumps(state)
        to_action.space_to_maze(action, state)
        after = cloudpickle.dumps(state)
        fault = "changes the state that it receives"
        if between != before:
            faults.add(f"{type(to_observation).__name__}.maze_to_space {fault}: make it work on a copy")
        if after != between:
            faults.add(f"{type(to_action).__name__}.space_to_maze {fault}: only the simulation may change it")
        else:
            inverses.add(to_action, action, state)

    def step(action: Action) -> StepResult:
        convert(action)
        began = time.perf_counter()
        result: StepResult = step_without_wrappers(action)
        durations.append(time.perf_counter() - began)
        return result

    inner.step = step
    try:
        n_acts = min(examination.n_steps, _N_CONVERTED)
        sample_episodes(examination.recorded(examination.env.env), n_acts, examination.seed, None)
    finally:
        del inner.step
    examination.seconds_alone = fmean(durations) if durations else None
    for fault in [*sorted(faults), *inverses.faults()]:
        yield ERROR, fault


def check_memory(examination: Examination) -> Iterator[Finding]:
    """Find observations that change after they were returned."""
    for history in examination.observations:
        if not all(map(same, history.kept, history.returned)):
            yield ERROR, f"{history.what} changes after it was returned: return a copy"
