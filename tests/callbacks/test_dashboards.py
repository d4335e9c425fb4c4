from __future__ import annotations

import numpy as np
import pytest
import yaml

from maze_pl.callbacks.dashboards import bins, hyperparameters
from maze_pl.callbacks.run_record import readable
from maze_pl.events.histogram import Histogram

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


@pytest.mark.parametrize(
    "observed", [np.linspace(-1, 3, 500), np.arange(1000), np.array([0.25]), np.array([1e-300, 1.0])]
)
def test_bins_hold_everything_that_was_observed(observed: np.ndarray) -> None:
    counts, edges = bins(Histogram.of(observed)) or (np.zeros(0), np.zeros(0))
    assert counts.sum() == len(observed)
    assert len(edges) == len(counts) + 1 <= 65
    assert edges[0] <= observed.min() and observed.max() <= edges[-1]
    assert (np.diff(edges) > 0).all()


def test_what_is_not_finite_has_no_bin() -> None:
    counts, _ = bins(Histogram.of([np.nan, np.inf, 1.0])) or (np.zeros(0), None)
    assert counts.tolist() == [1]
    assert bins(Histogram.of([np.nan, -np.inf])) is None
    assert bins(Histogram.of([])) is None


def test_hyperparameters_are_a_flat_table_of_what_data_and_model_were_given() -> None:
    assert hyperparameters(yaml.safe_load(CONFIG)) == {
        "seed_everything": 3,
        "model": "PPO",
        "model.lr": 0.001,
        "model.networks": "Networks",
        "model.networks.hidden": "[64, 64]",
        "data": "RolloutDataModule",
        "data.env": "Env",
        "data.wrappers": "[]",
    }


def test_the_console_shows_what_differs_from_the_defaults() -> None:
    config = yaml.safe_load(CONFIG)
    defaults = {"seed_everything": 3, "trainer": {"max_epochs": -1, "devices": 1}, "early_stopping": {"patience": 15}}
    text = readable(config, defaults)
    shown = yaml.safe_load(text)
    assert list(shown) == ["seed_everything", "trainer", "model", "data"]
    assert shown["trainer"] == {"max_epochs": 5}
    assert "null" not in text
    assert shown["model"]["init_args"]["networks"]["init_args"] == {"hidden": [64, 64], "options": {}}
    assert max(len(line) for line in text.splitlines()) <= 100
