"""Training on gymnasium's vector environments equals training on single ones, and `vectorization: native` trains."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from gymnasium.vector import AutoresetMode

from maze_pl.datamodules import (
    PopulationDataModule,
    ReplayDataModule,
    RolloutDataModule,
    RolloutEvaluator,
    SelfLabellingDataModule,
)
from maze_pl.envs import GymMazeEnv, GymVectorArrayEnv, PendulumArrayEnv
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, RewardScalingWrapper
from maze_pl.modules import BC, DQN, ES, PPO

PPO_IN_SMALL_BATCHES = partial(PPO, batch_size=20)
CARTPOLE = partial(GymMazeEnv, "CartPole-v1")


def _data(env: Any, **options: Any) -> RolloutDataModule:
    evaluators = {"eval": RolloutEvaluator(n_episodes=2, deterministic=True, n_envs=2)}
    arguments = {"n_envs": 4, "n_rollout_steps": 40, "epoch_length": 2, "seed": 5, "evaluators": evaluators}
    wrappers = [ObservationNormalizationWrapper, partial(RewardScalingWrapper, scale=0.1)]
    return RolloutDataModule(env, wrappers, **(arguments | options))


def _trained(data: Any, module: Any = PPO_IN_SMALL_BATCHES, epochs: int = 1, **options: Any) -> Any:
    pl.seed_everything(1, verbose=False)
    trainer = pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
        limit_val_batches=1.0 if data.evaluators else 0,
    )
    learner = module(spec=data.spec)
    trainer.fit(learner, data, weights_only=True, **options)
    return {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}, trainer


@pytest.mark.slow
def test_ppo_learns_the_same_from_vectors_in_each_autoreset_mode() -> None:
    weights, trainer = _trained(_data(CARTPOLE))
    for mode in AutoresetMode:
        env = partial(GymVectorArrayEnv, "CartPole-v1", "sync", vector_kwargs={"autoreset_mode": mode})
        of_vector, of_trainer = _trained(_data(env))
        assert all(torch.equal(tensor, of_vector[name]) for name, tensor in weights.items())
        assert of_trainer.callback_metrics["eval/return"] == trainer.callback_metrics["eval/return"]


@pytest.mark.slow
def test_native_vectorization_trains_and_resumes_with_new_episodes(tmp_path: Path) -> None:
    data = _data(CARTPOLE, vectorization="native")
    _, trainer = _trained(data)
    assert isinstance(data.make_env().array_env.unwrapped, GymVectorArrayEnv)
    assert isinstance(data.rollout_options["env"](), GymMazeEnv)  # which has pictures and rules
    assert trainer.callback_metrics["eval/return"] > 5
    assert trainer.callback_metrics["train/return"] > 5
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = _trained(_data(CARTPOLE, vectorization="native"), epochs=2, ckpt_path=tmp_path / "half.ckpt")
    assert resumed.current_epoch == 2
    strict = _data(CARTPOLE, vectorization="native", on_nondeterminism="refuse")
    with pytest.raises(ValueError, match=r"environments \[0, 1, 2, 3\] .* save no state; on_nondeterminism=restart"):
        _trained(strict, epochs=2, ckpt_path=tmp_path / "half.ckpt")


@pytest.mark.slow
def test_off_policy_algorithms_take_native_environments_in_steps_of_one() -> None:
    options = {"num_actors": 3, "n_rollout_steps": 1, "initial_buffer_size": 60, "batch_size": 16, "epoch_length": 100}
    data = ReplayDataModule(CARTPOLE, vectorization="native", seed=3, **options)
    _, trainer = _trained(data, DQN)
    assert trainer.callback_metrics["train/return"] > 5


def test_native_vectorization_refuses_other_environments() -> None:
    with pytest.raises(ValueError, match="with a vector entry point, which Pendulum-v1 does not have"):
        _ = _data(partial(GymMazeEnv, "Pendulum-v1"), vectorization="native").spec
    with pytest.raises(ValueError, match="with a vector entry point, which PendulumArrayEnv does not have"):
        _ = _data(PendulumArrayEnv, vectorization="native").spec


NATIVE = partial(GymVectorArrayEnv, "CartPole-v1")
REFUSED = r"needs a seed for each environment, which CartPoleVectorEnv does not take; use vectorization=sequential"


def _population(env: Any, **options: Any) -> Any:
    small: dict[str, Any] = {"n_rollouts_per_update": 4, "max_steps": 20, "shared_noise_table_size": 100_000}
    return PopulationDataModule(env, evaluators={}, seed=3, **small, **options)


def _best_of_three(env: Any) -> Any:
    return SelfLabellingDataModule(env, n_starts=1, n_samples=3, max_steps=20, epoch_length=1, evaluators={}, seed=3)


def test_one_seed_for_all_environments_is_refused_where_starts_must_be_equal() -> None:
    with pytest.raises(ValueError, match=f"n_same_starts=2 {REFUSED}"):
        _trained(_data(NATIVE, n_same_starts=2), partial(PPO_IN_SMALL_BATCHES, baseline="leave_one_out"))
    with pytest.raises(ValueError, match=f"self-labelling with n_samples=3 {REFUSED}"):
        _trained(_best_of_three(NATIVE), BC)
    with pytest.raises(ValueError, match=f"a population, .* {REFUSED}"):
        _trained(_population(NATIVE), ES)


def test_policies_that_play_one_by_one_need_no_further_seeds() -> None:
    weights = [_trained(_population(env, deterministic=False), ES)[0] for env in (NATIVE, CARTPOLE)]
    assert all(torch.allclose(tensor, weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vectors_with_all_seeds_learn_the_same_from_equal_starts(mode: AutoresetMode) -> None:
    vectors = partial(GymVectorArrayEnv, "CartPole-v1", "sync", vector_kwargs={"autoreset_mode": mode})
    for make, module in ((_population, ES), (_best_of_three, BC)):
        weights = [_trained(make(env), module)[0] for env in (vectors, CARTPOLE)]
        assert all(torch.allclose(tensor, weights[1][name], atol=1e-6) for name, tensor in weights[0].items())
