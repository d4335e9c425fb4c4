"""Observations that are not finite, and normalisation: all forms of environments do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.collect.collector import Collector
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayVectorEnv, SequentialVectorEnv
from maze_pl.envs.array_forms import make_wrapped_arrays
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.tensor_forms import make_wrapped_tensors
from maze_pl.envs.tensors import Outcome, TensorEnv
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, RunningObservationNormalizationWrapper

N_ENVS, N_ROWS, FIRST = 3, 6, 10
CLIPPED = {"clip_range": (-5.0, 5.0)}
RANGE = "maze_pl.envs.wrappers.RangeZeroOneObservationNormalizationStrategy"
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "mean": partial(
        ObservationNormalizationWrapper,
        default_strategy_config=CLIPPED,
        default_statistics={"mean": 1.0, "std": 2.0},
    ),
    "range": partial(
        ObservationNormalizationWrapper,
        default_strategy=RANGE,
        default_strategy_config=CLIPPED,
        default_statistics={"min": 0.0, "max": 4.0},
    ),
    "running": partial(
        RunningObservationNormalizationWrapper,
        **CLIPPED,
        statistics={"distance": {"mean": 1.0, "std": 2.0}, "count": {"mean": 1.0, "std": 2.0}},
    ),
}


class Distance(TensorEnv):
    """Observes a distance, which becomes something else in the episode's last or last but one observation.

    Args:
        value: What it becomes.
        is_last: Whether it does so in the last observation only.
    """

    def __init__(self, value: float, is_last: bool) -> None:
        super().__init__()
        self.value = value
        self.is_last = is_last

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        parts = {"distance": spaces.Box(-np.inf, np.inf, (2,)), "count": spaces.Box(0, 100, (1,), np.int64)}
        return {0: spaces.Dict(parts)}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"move": spaces.Discrete(2)})}

    def make_tensors(self, n_envs: int) -> None:
        self.count = torch.zeros(n_envs, dtype=torch.int64)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.count.masked_fill_(which, 0)

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        count = self.count[:, None]
        spoiled = torch.where(count >= 3 + self.is_last, self.value, count.float())
        return {"distance": torch.cat([count.float(), spoiled], 1), "count": count}

    def act(self, step_key: Any, action: Mapping[str, Tensor]) -> Outcome:
        self.count.add_(1)
        return Outcome(torch.ones(self.n_envs), self.count == 4)


def collector_of(form: str, make: Callable[[], Any], wrapper: Callable[[Any], Any]) -> Any:
    generator = torch.Generator().manual_seed(1)
    if form == "tensors":
        env = make_wrapped_tensors(make, [wrapper])
        assert env is not None
        vector = TensorVector(env, N_ENVS, Spec.of(env), torch.device("cpu"), first_env_index=FIRST)
        return TensorCollector(vector, N_ROWS, generator)
    if form == "arrays":
        arrays = ArrayVectorEnv(partial(make_wrapped_arrays, make, [wrapper]), N_ENVS, first_env_index=FIRST)
        return Collector(arrays, N_ROWS, generator)
    single = partial(make_wrapped, make, [wrapper])
    return Collector(SequentialVectorEnv([single] * N_ENVS, first_env_index=FIRST), N_ROWS, generator)


FORMS = ["single episodes", "arrays", "tensors"]


def acting() -> RandomPolicy:
    return RandomPolicy(Distance(0.0, False).action_spaces_dict)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WRAPPERS)
def test_nan_is_refused_but_in_an_observation_after_the_end(name: str, form: str) -> None:
    rollout = collector_of(form, partial(Distance, np.nan, True), WRAPPERS[name]).collect(acting())
    assert rollout.rows.terminated[3].all()
    collector = collector_of(form, partial(Distance, np.nan, False), WRAPPERS[name])
    with pytest.raises(ValueError, match=r"observation 'distance' .*environment 10.* is (not finite|NaN or infinite)"):
        collector.collect(acting())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mean", "range"])
def test_infinite_observations_are_clipped_by_fixed_statistics(name: str, form: str) -> None:
    rollout = collector_of(form, partial(Distance, -np.inf, False), WRAPPERS[name]).collect(acting())
    distance = rollout.segments[0].observation["distance"].reshape(N_ROWS, N_ENVS, 2)
    assert (distance[3, :, 1] == -5.0).all()
    assert (distance[:3] > -5.0).all()


@pytest.mark.parametrize("form", FORMS)
def test_infinite_observations_do_not_spoil_running_statistics(form: str) -> None:
    collector = collector_of(form, partial(Distance, -np.inf, False), WRAPPERS["running"])
    with pytest.raises(ValueError, match=r"observation 'distance' .*environment 10.* is (not finite|NaN or infinite)"):
        collector.collect(acting())


@pytest.mark.parametrize("form", ["single episodes", "arrays"])
def test_evaluations_refuse_infinite_observations_as_training_does(form: str) -> None:
    collector = collector_of(form, partial(Distance, -np.inf, False), WRAPPERS["running"])
    collector.vector.load_shared_states(collector.vector.shared_states()[0], freeze=True)
    with pytest.raises(ValueError, match=r"observation 'distance' .*environment 10.* is not finite"):
        collector.collect(acting())
