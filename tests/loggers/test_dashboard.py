from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from maze_pl.callbacks import EpochTable, TensorBoardLog
from maze_pl.core.histogram import Histogram
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrapper import Wrapper
from maze_pl.events import define_episode_stats, define_epoch_stats, define_plot, define_step_stats
from maze_pl.loggers.dashboard import bins, hyperparameters
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

CONFIG = """
seed_everything: 3
trainer: {max_epochs: 5, devices: 1, logger: null}
model:
  class_path: maze_pl.modules.PPO
  init_args:
    lr: 0.001
    target_kl: null
    networks: {class_path: my.Networks, init_args: {hidden: [64, 64], options: {}}}
data: {class_path: maze_pl.datamodules.RolloutDataModule, init_args: {env: {class_path: my.Env}, wrappers: []}}
early_stopping: {patience: 15}
"""


def test_whole_numbers_have_bins_of_their_own() -> None:
    counts, edges = bins(Histogram.of([0, 0, 2, 3])) or (None, None)
    assert counts is not None and edges is not None
    assert counts.tolist() == [2, 0, 1, 1]
    assert edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5]


def require_bins_of_all(observed: np.ndarray) -> None:
    """Check that each observed number is counted in its bin, by a count of one number at a time."""
    counts, edges = bins(Histogram.of(observed)) or (np.zeros(0), np.zeros(0))
    assert len(edges) == len(counts) + 1 <= 65
    assert np.isfinite(edges).all() and all(low < high for low, high in pairwise(edges))
    expected = [0] * len(counts)
    for number in observed.astype(np.float64).tolist():
        (place,) = [
            place
            for place, (low, high) in enumerate(pairwise(edges.tolist()))
            if low <= number < high or number == high == edges[-1]
        ]
        expected[place] += 1
    assert counts.tolist() == expected


@pytest.mark.parametrize(
    "observed",
    [
        np.linspace(-1, 3, 500),
        np.arange(1000),
        np.array([0.25]),
        np.array([1e-300, 1.0]),
        np.array([0.3, 0.1 + 0.2]),
        np.array([1.0, 1.0 + 1e-15]),
        np.array([0.3, np.nextafter(np.float32(0.3), np.float32(1.0))], np.float32),
        np.array([1e16, 1e16 + 2.0]),
        np.array([1e20, 1e20]),
        np.array([2**62, 2**62 + 1]),
        np.array([2**53 - 1, 2**53 - 3]),
        np.array([2**63 + 5], np.uint64),
        np.array([-1e308, 1.5e308]),
        np.array([5e-324, 1e-323]),
        np.array([-23575705428827 * 5e-324, -23575705428917 * 5e-324]),
        np.array([sys.float_info.max]),
        np.array([False, True, True]),
    ],
)
def test_bins_hold_everything_that_was_observed(observed: np.ndarray) -> None:
    require_bins_of_all(observed)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    st.integers(0, 300),
    st.integers(1, 20),
)
@settings(max_examples=100, deadline=None)
def test_bins_hold_everything_of_any_range(numbers: list[float], n_steps: int, n_close: int) -> None:
    close = [numbers[0]]  # few representable numbers apart
    for _ in range(n_close):
        close.append(close[-1] + n_steps * math.ulp(close[-1]))
    for observed in (np.array(numbers), np.array(close)):
        require_bins_of_all(observed[np.isfinite(observed)])


def test_what_is_not_finite_has_no_bin() -> None:
    counts, _ = bins(Histogram.of([np.nan, np.inf, 1.0])) or (np.zeros(0), None)
    assert counts.tolist() == [1]
    assert bins(Histogram.of([np.nan, -np.inf])) is None
    assert bins(Histogram.of([])) is None


def test_named_hyperparameters_may_be_of_any_part_and_objects_are_shown_by_their_class() -> None:
    config = yaml.safe_load(CONFIG)
    config["trainer"] = {"max_epochs": 3}
    config["hyperparameters"] = ["trainer.max_epochs", "model", "data.nowhere"]
    path = config["model"]["class_path"]
    assert hyperparameters(config) == {"trainer.max_epochs": 3, "model": path.rpartition(".")[2]}


def test_hyperparameters_are_a_flat_table_of_what_data_and_model_were_given() -> None:
    assert hyperparameters(yaml.safe_load(CONFIG)) == {
        "seed_everything": 3,
        "model.class_path": "maze_pl.modules.PPO",
        "model.lr": 0.001,
        "model.networks.class_path": "my.Networks",
        "model.networks.hidden": "[64, 64]",
        "data.class_path": "maze_pl.datamodules.RolloutDataModule",
        "data.env.class_path": "my.Env",
    }


def as_curve(values: list[float], groups: tuple[str, ...]) -> Any:
    figure, axes = pyplot.subplots(figsize=(3, 2))
    axes.plot(values)
    return figure


def as_pixels(values: list[float], groups: tuple[str, ...]) -> np.ndarray:
    return np.full((4, 6, 3), min(len(values), 255), np.uint8)


class PoleEvents:
    @define_epoch_stats(max, input_name="highest", output_name="highest")
    @define_plot(as_curve, input_name="highest")
    @define_plot(as_pixels, input_name="lowest")
    @define_episode_stats(max, input_name="angle", output_name="highest")
    @define_episode_stats(min, input_name="angle", output_name="lowest")
    @define_step_stats(max, input_name="value", output_name="angle")
    def angle(self, value: float) -> None:
        """Where the pole is."""


class PoleWrapper(Wrapper):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._events = env.pubsub.create_event_topic(PoleEvents)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self._events.angle(float(result[0]["observation"][2]))
        return result


def test_plots_that_events_declare_are_shown_as_pictures_over_env_steps(tmp_path: Path) -> None:
    data = RolloutDataModule(
        lambda: GymMazeEnv("CartPole-v1"), [PoleWrapper], n_envs=2, n_rollout_steps=40, epoch_length=2, seed=1
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
        default_root_dir=str(tmp_path),
        logger=TensorBoardLog(str(tmp_path)),
        callbacks=[EpochTable()],
        max_epochs=2,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    trainer.fit(A2C(spec=data.spec, networks=networks), data)
    log = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0}).Reload()
    for stage in ("train", "eval"):
        curves, pixels = (log.Images(f"{stage}_PoleEvents/angle/{name}") for name in ("highest", "lowest"))
        assert [image.step for image in curves] == [image.step for image in pixels] == [160, 320]
        assert (pixels[0].width, pixels[0].height) == (6, 4)
        assert (curves[0].width, curves[0].height) == (300, 200)
        assert log.Scalars(f"{stage}_PoleEvents/angle/highest")[-1].step == 320
    assert pyplot.get_fignums() == []


def test_hyperparameters_have_one_name_however_they_are_spelled() -> None:
    limit = {"class_path": "my.Limit", "init_args": {"steps": 5}}
    env = {"class_path": "my.Env", "init_args": {"size": 7}}
    config = {
        "model": {"class_path": "my.PPO", "init_args": {"lr": 0.1}},
        "data": {"class_path": "my.Data", "init_args": {"env": env, "wrappers": ["my.First", limit]}},
        "hyperparameters": [
            *("model.init_args.lr", "data.wrappers+", "data.wrappers.steps"),
            *("data.env.dict_kwargs.size", "variables.horizon"),
        ],
    }
    found = hyperparameters(config)
    assert found.pop("data.wrappers").startswith("['my.First', ")
    assert found == {"model.lr": 0.1, "data.wrappers.steps": 5, "data.env.dict_kwargs.size": 7}
