from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import LogStatsWrapper, ObservationVisualizationWrapper
from maze_pl.events import EpochStatistics
from tests.envs.scripted import NOTHING, Scripted
from tests.envs.structured_example import make_heap_env

CALLS: list[tuple[list[np.ndarray], tuple[str, ...]]] = []


def draw_heaps(value: list[np.ndarray], groups: tuple[str, ...], **kwargs: Any) -> np.ndarray | None:
    CALLS.append((value, groups))
    return np.zeros((4, 4, 3), np.uint8) if groups[1] == "heap" else None


def figures_of(env: Any, n_episodes: int, action: Any) -> dict[str, Any]:
    env, epoch = LogStatsWrapper.wrap(env), EpochStatistics()
    for seed in range(n_episodes):
        env.reset(seed=seed)
        result = env.step(action)
        while not result[2]:
            result = env.step(action)
    for summary in env.drain_episode_summaries():
        epoch.add(summary)
    CALLS.clear()
    figures = epoch.compute_plots()
    assert not any(name.startswith("ObservationVisualizationEvents") for name in epoch.compute())
    return figures


@pytest.mark.parametrize("function", [draw_heaps, f"{__name__}.draw_heaps"])
def test_the_function_draws_each_observation_of_each_sub_step_once_per_epoch(function: Any) -> None:
    env = ObservationVisualizationWrapper.wrap(make_heap_env(), plot_function=function)
    figures = figures_of(env, 3, {"amount": 1})
    prefix = f"ObservationVisualizationEvents/observation/{__name__}.draw_heaps"
    assert list(figures) == [f"{prefix}/substep_plan/heap", f"{prefix}/substep_work/heap"]
    drawn = {groups: [np.shape(one) for one in value] for value, groups in CALLS}
    assert drawn == {
        ("substep_plan", "heap"): [(1,)] * 12,
        ("substep_work", "heap"): [(1,)] * 12,
        ("substep_work", "target"): [()] * 12,
        ("substep_work", "amount_mask"): [(4,)] * 12,
    }


def test_observations_are_those_that_were_acted_on_and_keep_their_values() -> None:
    env = ObservationVisualizationWrapper.wrap(GymMazeEnv(Scripted([0.0] * 4)), plot_function=draw_heaps)
    figures_of(env, 1, NOTHING)
    ((value, groups),) = CALLS
    assert groups == ("substep_0", "observation")
    assert np.array(value).tolist() == [[0, 0], [1, 10], [2, 20], [3, 30]]


def test_a_function_that_cannot_be_imported_is_refused() -> None:
    env = GymMazeEnv("CartPole-v1")

    def local(value: Any, groups: Any) -> None:
        return None

    for function in (local, lambda value, groups: None):
        with pytest.raises(ValueError, match="cannot be imported; define it by `def` in a module"):
            ObservationVisualizationWrapper.wrap(env, plot_function=function)
    with pytest.raises(ImportError, match="nothing named missing"):
        ObservationVisualizationWrapper.wrap(env, plot_function=f"{__name__}.missing")
    with pytest.raises(ValueError, match="is not a function"):
        ObservationVisualizationWrapper.wrap(env, plot_function=f"{__name__}.CALLS")
