"""Training with wrappers around environments in tensors: on the device, with statistics that the host can read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.nn.utils import parameters_to_vector

from maze_pl.datamodules import ActorDataModule, ReplayDataModule, RolloutDataModule, RolloutEvaluator
from maze_pl.envs import Wrapper
from maze_pl.envs.tensors import CartPoleTensorEnv, TensorEnv, TensorWrapper
from maze_pl.envs.wrappers import (
    ObservationStackWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
    RunningObservationNormalizationWrapper,
)
from maze_pl.modules import DQN, IMPALA, PPO
from tests.datamodules.trainers import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
N_ENVS, N_STEPS, N_ROLLOUTS, WEIGHT = 6, 20, 3, 50
RUNNING = f"{RunningObservationNormalizationWrapper.__module__}.RunningObservationNormalizationWrapper"
RETURNS = f"{ReturnNormalizationRewardWrapper.__module__}.ReturnNormalizationRewardWrapper"
WRAPPERS: list[Any] = [
    partial(RunningObservationNormalizationWrapper, weight=WEIGHT, window=None),
    partial(ObservationStackWrapper, stack_config=[{"observation": "observation", "stack_steps": 2}]),
    partial(ReturnNormalizationRewardWrapper, gamma=0.9),
]


def make_data(wrappers: list[Any] | None = None, **options: Any) -> RolloutDataModule:
    options = {"n_envs": N_ENVS, "evaluators": {}, "seed": 0, "n_normalization_samples": 60, **options}
    return RolloutDataModule(
        partial(CartPoleTensorEnv, 25),
        WRAPPERS if wrappers is None else wrappers,
        n_rollout_steps=N_STEPS,
        epoch_length=N_ROLLOUTS,
        **options,
    )


def make_module(data: Any) -> PPO:
    torch.manual_seed(1)
    return PPO(spec=data.spec, batch_size=40, lr=1e-2)


def fit(
    folder: Path, data: Any, module: Any, n_epochs: int = 1, checkpoint: Path | None = None, **options: Any
) -> pl.Trainer:
    trainer = make_trainer(folder, max_epochs=n_epochs, **options)
    trainer.fit(module, data, ckpt_path=checkpoint)
    return trainer


def test_statistics_follow_training_on_the_device(tmp_path: Path) -> None:
    data = make_data()
    fit(tmp_path, data, make_module(data), n_epochs=2)
    assert data._is_on_device
    statistics = data.wrapper_statistics()
    n_acts = 2 * N_ROLLOUTS * N_ENVS * N_STEPS
    assert statistics[RUNNING]["observation"]["n"] == WEIGHT + n_acts
    assert isinstance(statistics[RUNNING]["observation"]["mean"], np.ndarray)
    assert statistics[RETURNS]["base"][0] == 1 + n_acts
    assert statistics[RETURNS]["base"][1] == pytest.approx(6, abs=2.5)  # of 1 + 0.9 + 0.81 ...


def test_a_resumed_run_ends_as_the_whole_one(tmp_path: Path) -> None:
    whole_data = make_data()
    whole = make_module(whole_data)
    fit(tmp_path, whole_data, whole, n_epochs=3)
    data = make_data()
    trainer = fit(tmp_path, data, make_module(data), n_epochs=1)
    checkpoint = tmp_path / "first.ckpt"
    trainer.save_checkpoint(checkpoint)
    torch.load(checkpoint, weights_only=True)
    resumed_data = make_data()
    resumed = make_module(resumed_data)
    fit(tmp_path, resumed_data, resumed, n_epochs=3, checkpoint=checkpoint)
    assert torch.equal(parameters_to_vector(resumed.parameters()), parameters_to_vector(whole.parameters()))
    for name, state in whole_data.wrapper_statistics().items():
        np.testing.assert_equal(resumed_data.wrapper_statistics()[name], state)


@pytest.mark.slow
def test_evaluations_use_the_current_statistics_and_change_nothing(tmp_path: Path) -> None:
    plain_data, data = make_data(), make_data(evaluators={"eval": RolloutEvaluator(4, n_envs=2)})
    plain, module = make_module(plain_data), make_module(data)
    fit(tmp_path, plain_data, plain, n_epochs=2)
    trainer = fit(tmp_path, data, module, n_epochs=2, is_evaluated=True)
    assert torch.equal(parameters_to_vector(module.parameters()), parameters_to_vector(plain.parameters()))
    other = make_data(evaluators={"eval": RolloutEvaluator(4, n_envs=2)})
    other.warm_start(data.wrapper_statistics())
    again = make_trainer(tmp_path, is_evaluated=True)
    again.validate(module, other, verbose=False)
    name = "eval_BaseEnvEvents/reward/mean"
    assert float(again.callback_metrics[name]) == float(trainer.callback_metrics[name])


@pytest.mark.parametrize("n_shards", [1, 3])
def test_all_shards_have_the_merged_statistics(n_shards: int, tmp_path: Path) -> None:
    data = make_data(n_shards=n_shards)
    fit(tmp_path, data, make_module(data))
    state = data.wrapper_statistics()[RUNNING]["observation"]
    assert state["n"] == WEIGHT + N_ROLLOUTS * N_ENVS * N_STEPS
    assert data._merges_on_device == (n_shards == 1)


def test_merging_on_the_device_and_on_the_host_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = make_data()
    fit(tmp_path, on_device, make_module(on_device))
    monkeypatch.setattr(RolloutDataModule, "_merges_on_device", False)
    on_host = make_data()
    fit(tmp_path, on_host, make_module(on_host))
    first, second = on_device.wrapper_statistics(), on_host.wrapper_statistics()
    for part in ("mean", "m2"):
        values = (first[RUNNING]["observation"][part], second[RUNNING]["observation"][part])
        np.testing.assert_allclose(*values, rtol=1e-10)
    assert first[RETURNS]["base"] == pytest.approx(second[RETURNS]["base"], rel=1e-10)


@pytest.mark.slow
def test_another_module_begins_with_the_first_statistics(tmp_path: Path) -> None:
    data = make_data()
    module = make_module(data)
    fit(tmp_path, data, module)
    statistics = data.wrapper_statistics()
    fit(tmp_path, data, make_module(data))
    np.testing.assert_equal(data.wrapper_statistics(), statistics)
    assert statistics[RUNNING]["observation"]["n"] == WEIGHT + N_ROLLOUTS * N_ENVS * N_STEPS


@pytest.mark.slow
def test_impala_and_dqn_learn_from_wrapped_tensors(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_rollout_steps": 8, "epoch_length": 3, "evaluators": {}, "seed": 0}
    make = partial(CartPoleTensorEnv, 25)
    actors = ActorDataModule(make, WRAPPERS, num_actors=2, actors_batch_size=2, n_envs_per_actor=4, **options)
    fit(tmp_path, actors, IMPALA(spec=actors.spec))
    assert actors._is_on_device
    assert actors.wrapper_statistics()[RUNNING]["observation"]["n"] == WEIGHT + 3 * 2 * 4 * 8
    replay = ReplayDataModule(make, WRAPPERS, num_actors=4, batch_size=16, initial_buffer_size=64, **options)
    fit(tmp_path, replay, DQN(spec=replay.spec))
    assert replay.wrapper_statistics()[RUNNING]["observation"]["n"] > WEIGHT + 64


def test_a_wrapper_without_a_form_is_stepped_on_the_host_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(RunningObservationNormalizationWrapper):
        def observation(self, observation: Any) -> Any:
            return super().observation(observation)

        def array_form(self, env: Any) -> Any:
            return env

    data = make_data([Silent])
    with caplog.at_level("INFO", "pytorch_lightning.utilities.rank_zero"):
        assert data._tensor_vector() is None
    reason = "Silent changes ['observation'] of RunningObservationNormalizationWrapper"
    assert f"stepped on the host, not in tensors of the device: {reason}" in caplog.text
    with pytest.raises(ValueError, match="RandomResetWrapper changes single episodes and has no array form"):
        make_data([partial(RandomResetWrapper, min_skip_steps=1, max_skip_steps=2)])._environments.array_factory()()


class Broken(RewardScalingWrapper):
    """Has a form with a fault of its author."""

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        return TensorWrapper(env, scale=self.scale)  # type: ignore[call-arg]


def test_a_fault_in_a_form_is_not_a_reason_for_the_host() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
        make_data([partial(Broken, scale=2.0)])._tensor_vector()


class ForgettingTensorWrapper(TensorWrapper):
    """Counts acts, and forgets half of them in each merge."""

    def make_tensors(self, n_envs: int) -> None:
        self.n, self.n_new = (torch.zeros((), dtype=torch.float64, device=self.device) for _ in range(2))

    def learn(self, step_key: Any, observation: Any) -> None:
        self.n_new.add_(self.n_envs)

    def shared_state(self) -> dict[str, Any]:
        return {"n": self.n.clone(), "n_new": self.n_new.clone()}

    def load_shared_state(self, state: Any) -> None:
        self.n.fill_(float(state["n"]))
        self.n_new.fill_(float(state["n_new"]))

    def merge(self) -> None:
        self.n.add_(self.n_new).mul_(0.5)
        self.n_new.zero_()


class Forgetting(Wrapper):
    """The same for single episodes, of which none is counted here."""

    def shared_state(self) -> dict[str, Any]:
        return {"n": 0.0, "n_new": 0.0}

    @classmethod
    def merge_shared_states(cls, states: Any) -> dict[str, Any]:
        return {"n": 0.5 * (states[0]["n"] + sum(state["n_new"] for state in states)), "n_new": 0.0}

    def tensor_form(self, env: TensorEnv) -> TensorEnv:
        return ForgettingTensorWrapper(env)


def test_statistics_are_those_of_the_device_also_if_a_merge_changes_merged_ones(tmp_path: Path) -> None:
    data = make_data([Forgetting])
    fit(tmp_path, data, make_module(data))
    n_acts, n = N_ENVS * N_STEPS, 0.0
    for _ in range(N_ROLLOUTS):
        n = 0.5 * (n + n_acts)
    assert list(data.wrapper_statistics().values()) == [{"n": n, "n_new": 0.0}]
