"""What monitoring wrappers watch, through training and evaluation, into the files of the dashboards."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from maze_pl.callbacks import EpochTable, TensorBoardLog, WandbLog
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    MazeEnvMonitoringWrapper,
    ObservationVisualizationWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from tests.run_directory.wandb_file import read


def draw_means(value: list[np.ndarray], groups: tuple[str, ...], **kwargs: Any) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2), dpi=100)
    figure.add_subplot(title="/".join(groups)).bar(range(value[0].size), np.mean(value, axis=0).ravel())
    return figure


def scaled(env: Any) -> Any:
    return RewardScalingWrapper.wrap(env, scale=0.1)


def limited(env: Any) -> Any:
    return TimeLimitWrapper.wrap(env, max_episode_steps=70)


def watched(env: Any) -> Any:
    return MazeEnvMonitoringWrapper.wrap(env, observation_logging=True, action_logging=True, reward_logging=True)


def drawn(env: Any) -> Any:
    return ObservationVisualizationWrapper.wrap(env, plot_function=draw_means)


def trained(
    name: str, loggers: list[Any], folder: Path, wrappers: list[Callable[..., Any]], n_epochs: int = 2, **options: Any
) -> tuple[pl.Trainer, A2C]:
    checkpoint = options.pop("checkpoint", None)
    options = {"evaluators": {"eval": RolloutEvaluator(n_episodes=2)}, **options}
    data = RolloutDataModule(
        lambda: GymMazeEnv(name, **({"render_mode": "rgb_array"} if "CartPole" in name else {})),
        wrappers,
        n_envs=2,
        n_rollout_steps=60,
        epoch_length=2,
        seed=1,
        **options,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer(
            [
                lambda obs_shapes, action_logits_shapes: FlattenConcatPolicyNet(
                    obs_shapes, action_logits_shapes, hidden_units=[8]
                )
            ]
        ),
        critic=SharedStateCriticComposer([lambda obs_shapes: FlattenConcatStateValueNet(obs_shapes, hidden_units=[8])]),
    )
    trainer = pl.Trainer(
        default_root_dir=str(folder),
        logger=loggers,
        callbacks=[EpochTable()],
        max_epochs=n_epochs,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    pl.seed_everything(3)
    module = A2C(spec=data.spec, networks=networks)
    trainer.fit(module, data, ckpt_path=checkpoint)
    return trainer, module


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.slow
def test_tensorboard_shows_observations_actions_and_rewards_of_each_epoch(tmp_path: Path) -> None:
    trained("Pendulum-v1", [TensorBoardLog(str(tmp_path))], tmp_path, [scaled, limited, watched, drawn])
    log = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0, "histograms": 0}).Reload()
    own = f"ObservationVisualizationEvents/observation/{__name__}.draw_means/substep_0/observation"
    for stage in ("train", "eval"):
        for tag in (f"{stage}_ActionEvents/continuous_action/substep_0/action", f"{stage}_{own}"):
            pictures = log.Images(tag)
            assert [picture.step for picture in pictures] == [240, 480]
            with Image.open(io.BytesIO(pictures[0].encoded_image_string)) as picture:
                assert min(picture.size) >= 200
                assert len(np.unique(np.array(picture.convert("L")))) > 20
        for kind in ("original", "processed"):
            tag = f"{stage}_ObservationEvents/observation_{kind}/substep_0/observation/histogram"
            observations = log.Histograms(tag)
            assert [event.step for event in observations] == [240, 480]
            # 50 acts of each episode of 70 steps, of which training has seen the end of 2, then of 4
            n_episodes = [2, 2] if stage == "eval" else [2, 4]
            assert [event.histogram_value.num for event in observations] == [50 * 3 * n for n in n_episodes]
            assert -8 <= observations[0].histogram_value.min < observations[0].histogram_value.max <= 8
        original, processed = (
            log.Scalars(f"{stage}_RewardEvents/reward_{kind}/mean_episode_total")[-1].value
            for kind in ("original", "processed")
        )
        assert original == pytest.approx(log.Scalars(f"{stage}_BaseEnvEvents/reward/mean")[-1].value)
        assert processed == pytest.approx(0.1 * original)
        rewards = log.Histograms(f"{stage}_RewardEvents/reward_original/step/histogram")[-1].histogram_value
        assert rewards.min >= -17 and rewards.max <= 0


@pytest.mark.slow
def test_weights_and_biases_shows_the_same_offline(tmp_path: Path, offline: None) -> None:
    logger = WandbLog(str(tmp_path))
    logger.begin("seed_everything: 1", "maze-pl fit", 0)
    trained("CartPole-v1", [logger], tmp_path, [scaled, watched, drawn])
    logger.finalize("success")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (path,) = folder.glob("run-*.wandb")
    for _ in range(300):  # its own process writes the last rows after the run has ended here
        if read(path).exit_code is not None:
            break
        time.sleep(0.1)
    rows = read(path).history
    own = f"ObservationVisualizationEvents/observation/{__name__}.draw_means/substep_0/observation"
    for stage in ("train", "eval"):
        for tag in (f"{stage}_ActionEvents/discrete_action/substep_0/action/0_to_1", f"{stage}_{own}"):
            pictures = [row for row in rows if any(name.startswith(tag) for name in row)]
            assert [row["env_steps"] for row in pictures] == [240, 480]
            file = next(value for name, value in pictures[-1].items() if name.startswith(tag) and name.endswith("path"))
            with Image.open(folder / "files" / file) as picture:
                assert min(picture.size) >= 200
        for kind in ("original", "processed"):
            tag = f"{stage}_ObservationEvents/observation_{kind}/substep_0/observation/histogram"
            assert [row["env_steps"] for row in rows if any(name.startswith(tag) for name in row)] == [240, 480]


@pytest.mark.slow
def test_a_resumed_run_shows_what_one_that_was_not_stopped_shows(tmp_path: Path) -> None:
    wrappers = [scaled, watched, drawn]
    _, whole = trained("CartPole-v1", [], tmp_path, wrappers, n_epochs=3)
    stopped, _ = trained("CartPole-v1", [], tmp_path, wrappers, n_epochs=2)
    stopped.save_checkpoint(tmp_path / "two.ckpt")
    _, resumed = trained("CartPole-v1", [], tmp_path, wrappers, n_epochs=3, checkpoint=str(tmp_path / "two.ckpt"))
    name = "ObservationEvents/observation_processed/substep_0/observation"
    assert whole.epoch_statistics["train"][name].count > 100  # type: ignore[union-attr]
    for source in ("train", "eval"):
        timeless = [
            {key: value for key, value in module.epoch_statistics[source].items() if "time" not in key}
            for module in (whole, resumed)
        ]
        assert timeless[0] == timeless[1]
        assert list(whole.epoch_plots[source]) == list(resumed.epoch_plots[source])


@pytest.mark.slow
def test_an_evaluator_renders_its_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    evaluators = {
        "eval": RolloutEvaluator(n_episodes=3, n_envs=2),
        "shown": RolloutEvaluator(n_episodes=3, n_envs=2, render=True),
    }
    _, module = trained("CartPole-v1", [], tmp_path, [limited, scaled], n_epochs=1, evaluators=evaluators)
    paths = sorted((tmp_path / "renderings" / "shown").iterdir())
    assert os.listdir(tmp_path / "renderings") == ["shown"]
    assert len(paths) == 3 and {path.suffix for path in paths} == {".gif"}
    n_frames = 0
    for path in paths:
        with Image.open(path) as picture:
            for frame in range(picture.n_frames):
                picture.seek(frame)
                n_frames += round(picture.info["duration"] / 500)
    steps = 3 * module.epoch_statistics["shown"]["BaseEnvEvents/reward/mean_step_count"]  # type: ignore[operator]
    assert n_frames == steps + 3


def test_what_an_evaluator_cannot_render_is_said_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing draws .*Pendulum"):
        trained("Pendulum-v1", [], tmp_path, [], evaluators={"eval": RolloutEvaluator(render=True)})
