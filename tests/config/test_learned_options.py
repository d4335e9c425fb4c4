"""Options that decide what a run learns."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.config.learned_options import learned_options
from maze_pl.config.search_path import ConfigurationError

CONFIGURATION: dict[str, Any] = {
    "seed_everything": 0,
    "trainer": {
        "max_epochs": 2,
        "logger": None,
        "default_root_dir": None,
        "callbacks": [
            {
                "class_path": "pytorch_lightning.callbacks.ModelCheckpoint",
                "init_args": {"dirpath": "a", "save_top_k": 2},
            }
        ],
    },
    "model": {"class_path": "maze_pl.modules.PPO", "init_args": {"lr": 0.1}},
    "data": {
        "class_path": "maze_pl.datamodules.RolloutDataModule",
        "init_args": {"env": "package.make_env", "n_envs": 2, "seed": 7},
    },
    "hyperparameters": None,
    "best_checkpoint": {"monitor": "eval/return", "dirpath": "outputs/a/best"},
    "last_checkpoint": {"every_n_epochs": 1, "dirpath": None},
    "view": False,
}


def changed(option: str, value: Any) -> dict[str, Any]:
    """The configuration with another value of an option, a dotted path with numbers for places in lists."""
    configuration = copy.deepcopy(CONFIGURATION)
    *keys, last = [int(key) if key.isdigit() else key for key in option.split(".")]
    node: Any = configuration
    for key in keys:
        node = node[key]
    node[last] = value
    return configuration


def learned(run_dir: Path, configuration: Any) -> tuple[dict[str, Any], Any]:
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    return learned_options(run_dir)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hyperparameters", ["model.lr"]),
        ("best_checkpoint.dirpath", "outputs/b/best"),
        ("last_checkpoint.dirpath", "outputs/b/last"),
        ("last_checkpoint.every_n_epochs", 3),
        ("trainer.logger", {"class_path": "maze_pl.callbacks.TensorBoardLog", "init_args": {"save_dir": "logs"}}),
        ("trainer.default_root_dir", "outputs/b"),
        ("trainer.enable_progress_bar", True),
        ("trainer.callbacks.0.init_args.dirpath", "b"),
        ("view", True),
        ("run_dir", "outputs/b"),
        ("data.init_args.env", {"class_path": "package.make_env", "init_args": {}}),
    ],
)
def test_options_that_do_not_affect_learning_make_no_difference(tmp_path: Path, option: str, value: Any) -> None:
    configuration = changed(option, value)
    assert configuration != CONFIGURATION
    assert learned(tmp_path / "b", configuration) == learned(tmp_path / "a", CONFIGURATION)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model.init_args.lr", 0.2),
        ("trainer.max_epochs", 3),
        ("trainer.callbacks.0.init_args.save_top_k", 3),
        ("best_checkpoint.monitor", "eval/kpi/delay"),
        ("data.init_args.env", "package.make_other_env"),
        ("data.init_args.n_envs", 4),
    ],
)
def test_options_of_learning_and_of_the_selected_policy_differ(tmp_path: Path, option: str, value: Any) -> None:
    found, seeds = learned(tmp_path / "b", changed(option, value))
    expected, expected_seeds = learned(tmp_path / "a", CONFIGURATION)
    assert found != expected and seeds == expected_seeds


def test_seeds_are_apart(tmp_path: Path) -> None:
    expected, seeds = learned(tmp_path / "a", CONFIGURATION)
    assert seeds == (0, 7)
    assert learned(tmp_path / "b", changed("seed_everything", 3)) == (expected, (3, 7))
    assert learned(tmp_path / "c", changed("data.init_args.seed", None)) == (expected, (0, None))


def test_a_configuration_without_options_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml is damaged: it holds no options"):
        learned(tmp_path / "a", ["lr"])
