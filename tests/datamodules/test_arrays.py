"""All algorithms learn the same from array environments as from single ones, and resume exactly."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.datamodules import (
    ActorDataModule,
    PopulationDataModule,
    ReplayDataModule,
    RolloutDataModule,
    RolloutEvaluator,
    SelfLabellingDataModule,
)
from maze_pl.envs import CartPoleArrayEnv, GymMazeEnv, PendulumArrayEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RandomResetWrapper,
    ReturnNormalizationRewardWrapper,
    RewardScalingWrapper,
)
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),  # Lightning warns about itself with torch 2.13
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
]

FORMS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "CartPole": (partial(GymMazeEnv, "CartPole-v1"), CartPoleArrayEnv),
    "Pendulum": (partial(GymMazeEnv, "Pendulum-v1"), PendulumArrayEnv),
}
NORMALIZED = [ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper]
SCALED = [partial(RewardScalingWrapper, scale=0.1)]
ROLLOUTS = partial(RolloutDataModule, n_envs=3, n_rollout_steps=20, wrappers=NORMALIZED)
REPLAY = partial(
    ReplayDataModule, num_actors=2, n_rollout_steps=5, initial_buffer_size=30, batch_size=16, wrappers=SCALED
)
CASES: dict[str, tuple[Any, str, Any]] = {
    "A2C": (A2C, "CartPole", ROLLOUTS),
    "PPO": (partial(PPO, batch_size=20, n_optimization_epochs=1), "Pendulum", ROLLOUTS),
    "DQN": (DQN, "CartPole", REPLAY),
    "SAC": (SAC, "Pendulum", REPLAY),
    "TD3": (TD3, "Pendulum", REPLAY),
    "ES": (
        ES,
        "CartPole",
        partial(PopulationDataModule, n_rollouts_per_update=4, shared_noise_table_size=100_000, wrappers=SCALED),
    ),
    "IMPALA": (
        IMPALA,
        "CartPole",
        partial(
            ActorDataModule,
            num_actors=2,
            actors_batch_size=2,
            n_envs_per_actor=2,
            n_rollout_steps=10,
            wrappers=SCALED,
        ),
    ),
    "BC": (BC, "CartPole", partial(SelfLabellingDataModule, n_starts=2, n_samples=2, batch_size=8)),
}


def _data(name: str, is_array: bool, **options: Any) -> Any:
    _, env, make = CASES[name]
    evaluators = {"eval": RolloutEvaluator(n_episodes=2, deterministic=True)}
    return make(FORMS[env][is_array], epoch_length=2, seed=5, evaluators=evaluators, **options)


def _trained(name: str, data: Any, epochs: int = 1, **options: Any) -> tuple[dict[str, Any], float, pl.Trainer]:
    """Weights, evaluated return and trainer of a run."""
    pl.seed_everything(1, verbose=False)
    module = CASES[name][0](spec=data.spec)
    trainer = pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, weights_only=True, **options)
    weights = {key: tensor.clone() for key, tensor in module.policy.state_dict().items()}
    return weights, float(trainer.callback_metrics["eval/return"]), trainer


def _assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


MARKS: dict[str, list[Any]] = {"ES": [], "A2C": [pytest.mark.slow]}
LONG = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, LONG)) for name in CASES])
def test_algorithms_learn_the_same_from_both_forms(name: str) -> None:
    weights, reached, _ = _trained(name, _data(name, False))
    of_arrays, reached_in_arrays, _ = _trained(name, _data(name, True))
    _assert_same(weights, of_arrays)
    assert reached == reached_in_arrays


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PPO", "DQN", pytest.param("ES", marks=pytest.mark.long)])
def test_runs_on_arrays_resume_exactly(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # buffers are saved in the Trainer's folder
    options = {"save_buffer": True} if name == "DQN" else {}
    whole, reached, _ = _trained(name, _data(name, True, **options), 4)
    _, _, trainer = _trained(name, _data(name, True, **options), 2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, reached_resumed, _ = _trained(name, _data(name, True, **options), 4, ckpt_path=tmp_path / "half.ckpt")
    _assert_same(whole, resumed)
    assert reached == reached_resumed


@pytest.mark.slow
def test_statistics_of_wrappers_can_be_exchanged_between_both_forms() -> None:
    single, arrays = _data("A2C", False), _data("A2C", True)
    _trained("A2C", single)
    _trained("A2C", arrays)
    assert single.wrapper_statistics().keys() == arrays.wrapper_statistics().keys()
    other = _data("A2C", True)
    other.warm_start(single.wrapper_statistics(), may_differ=False)
    rewards = []
    for data in (single, other):
        rewards.append([summary.reward for summary in data.evaluate("eval", _policy(single)).summaries])
    assert rewards[0] == rewards[1]


def _policy(data: Any) -> Any:
    torch.manual_seed(3)
    return CASES["A2C"][0](spec=data.spec).policy


def test_a_wrapper_without_an_array_form_is_refused_before_training() -> None:
    data = RolloutDataModule(CartPoleArrayEnv, [partial(RandomResetWrapper, min_skip_steps=0, max_skip_steps=2)])
    with pytest.raises(ValueError, match="RandomResetWrapper changes single episodes and has no array form"):
        _trained("A2C", data)
