"""Native vector environments in a data module: chosen by name, refused where they cannot be, the same in a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import pytorch_lightning as pl
import torch

from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv, make_gym_maze_env
from maze_pl.envs.vector import NativeVectorEnv, SequentialVectorEnv
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.events import EpochStatistics
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.envs.structured_example import make_heap_env

CARTPOLE = partial(make_gym_maze_env, "CartPole-v1")


def make_data(env: Any = CARTPOLE, **options: Any) -> RolloutDataModule:
    given = {
        "n_envs": 4,
        "n_rollout_steps": 20,
        "epoch_length": 3,
        "seed": 3,
        "evaluators": {"eval": RolloutEvaluator(n_episodes=2)},
        "vectorization": "native",
    }
    return RolloutDataModule(env, **{**given, **options})


def make_module(data: RolloutDataModule) -> A2C:
    torch.manual_seed(0)
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, non_lin=torch.nn.Tanh, hidden_units=[16])]),
        critic=SharedStateCriticComposer(
            [partial(FlattenConcatStateValueNet, non_lin=torch.nn.Tanh, hidden_units=[16])]
        ),
    )
    return A2C(networks=networks, spec=data.spec)


def fit(data: RolloutDataModule, folder: Path, max_epochs: int, ckpt_path: Path | None = None) -> pl.LightningModule:
    module = make_module(data)
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_epochs=max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    trainer.save_checkpoint(folder / "run.ckpt")
    return module


def test_a_run_in_native_environments_is_reproducible_and_evaluates_in_single_ones(tmp_path: Path) -> None:
    modules = []
    for _ in range(2):
        modules.append(fit(make_data(), tmp_path, 2))
    for one, other in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_is_native_and_evaluation_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[tuple[str, int]] = []
    for kind in (NativeVectorEnv, SequentialVectorEnv):
        original = kind.__init__

        def note(self: Any, *arguments: Any, original: Any = original, **options: Any) -> None:
            original(self, *arguments, **options)
            made.append((type(self).__name__, self.n_envs))

        monkeypatch.setattr(kind, "__init__", note)
    fit(make_data(), tmp_path, 1)
    assert made == [("NativeVectorEnv", 4), ("SequentialVectorEnv", 2)]


@pytest.mark.parametrize("on_nondeterminism", ["restart", "refuse"])
def test_a_resumed_run_says_that_it_starts_new_episodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_nondeterminism: Any
) -> None:
    fit(make_data(), tmp_path, 1)
    data = make_data(on_nondeterminism=on_nondeterminism)
    message = r"environments \[0, 1, 2, 3\] of rank 0 cannot be brought back .* they are native vector environments"
    if on_nondeterminism == "refuse":
        with pytest.raises(ValueError, match=message):
            fit(data, tmp_path, 2, tmp_path / "run.ckpt")
        return
    with caplog.at_level("INFO"):
        fit(data, tmp_path, 2, tmp_path / "run.ckpt")
    assert "since they are native vector environments; they start new episodes" in caplog.text


def test_the_same_statistics_are_logged() -> None:
    names = []
    for vectorization in ("native", "sequential"):
        data = make_data(vectorization=vectorization, n_rollout_steps=100)
        data._collector = data._start()
        epoch = EpochStatistics()
        module = make_module(data)
        for summary in data._collector.collect(module.policy).summaries:
            epoch.add(summary)
        values = epoch.compute()
        assert values["BaseEnvEvents/reward/episode_count"] > 4
        assert values["BaseEnvEvents/reward/mean"] == values["BaseEnvEvents/reward/mean_step_count"]
        names.append(list(values))
    assert names[0] == names[1]


class Mine(GymMazeEnv):
    """Of another class, which may do anything in a step."""


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (
            CARTPOLE,
            {"wrappers": [partial(TimeLimitWrapper, max_episode_steps=5)]},
            r"cannot wrap .* \['TimeLimitWrapper'\]",
        ),
        (
            lambda: TimeLimitWrapper(CARTPOLE(), 5),
            {},
            r"cannot wrap single environments, but there are .*'TimeLimitWrapper'",
        ),
        (make_heap_env, {}, r"given by its name in gymnasium, such as GymMazeEnv\('CartPole-v1'\), not MazeEnv"),
        (lambda: GymMazeEnv(gymnasium.make("CartPole-v1")), {}, "given by its name in gymnasium"),
        (lambda: gymnasium.make("CartPole-v1"), {}, "given by its name in gymnasium"),
        (lambda: Mine("CartPole-v1"), {}, "given by its name in gymnasium, .* not Mine"),
        (partial(make_gym_maze_env, "Acrobot-v1"), {}, "no vector implementation of Acrobot-v1"),
    ],
)
def test_what_cannot_be_native_is_refused_with_what_to_use(env: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{message}.*use vectorization=sequential or subprocess"):
        make_data(env, **options)._start()


def test_arguments_for_making_the_environment_reach_the_vector() -> None:
    data = make_data(lambda: LogStatsWrapper.wrap(GymMazeEnv("CartPole-v1", max_episode_steps=7)))
    collector = data._start()
    summaries = collector.collect(make_module(data).policy).summaries
    assert {summary.env_steps for summary in summaries} == {7}
