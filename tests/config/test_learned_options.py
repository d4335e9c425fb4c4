"""Options that decide what a run learns."""

from __future__ import annotations

import copy
import json
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
        "init_args": {
            "env": "package.make_env",
            "n_envs": 2,
            "seed": 7,
            "engine": None,
            "evaluators": {"eval": {"n_episodes": 8, "env": "package.make_env"}},
        },
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
        ("data.init_args.evaluators.eval.env", {"class_path": "package.make_env", "init_args": {}}),
        ("data.init_args.engine", {"class_path": "maze_pl.collect.engines.ProcessEngine"}),
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
        ("data.init_args.evaluators.eval.env", "package.make_other_env"),
    ],
)
def test_options_of_learning_and_of_the_selected_policy_differ(tmp_path: Path, option: str, value: Any) -> None:
    found, seeds = learned(tmp_path / "b", changed(option, value))
    expected, expected_seeds = learned(tmp_path / "a", CONFIGURATION)
    assert found != expected and seeds == expected_seeds


@pytest.mark.parametrize("class_path", ["maze_pl.datamodules.ActorDataModule", "package.DataModule"])
def test_the_engine_counts_where_results_may_depend_on_it(tmp_path: Path, class_path: str) -> None:
    configuration = changed("data.class_path", class_path)
    other = copy.deepcopy(configuration)
    other["data"]["init_args"]["engine"] = {"class_path": "maze_pl.collect.engines.ProcessEngine"}
    assert learned(tmp_path / "a", configuration) != learned(tmp_path / "b", other)


def test_seeds_are_apart(tmp_path: Path) -> None:
    expected, seeds = learned(tmp_path / "a", CONFIGURATION)
    assert seeds == (0, 7)
    assert learned(tmp_path / "b", changed("seed_everything", 3)) == (expected, (3, 7))
    assert learned(tmp_path / "c", changed("data.init_args.seed", None)) == (expected, (0, None))


def test_a_configuration_without_options_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml is damaged: it holds no options"):
        learned(tmp_path / "a", ["lr"])


def begun(run_dir: Path, *commands: str) -> dict[str, Any]:
    """Options of a run that some commands have trained, one after another."""
    found, _ = learned(run_dir, {**CONFIGURATION, "warm_start": None})
    assert found["warm_start"] is None
    content = {"commands": [{"command": f"maze-pl fit {command}"} for command in commands]}
    (run_dir / "provenance.json").write_text(json.dumps(content), encoding="utf-8")
    return learned_options(run_dir)[0]


def test_the_run_or_checkpoint_that_training_starts_from_counts(tmp_path: Path) -> None:
    scratch = begun(tmp_path / "a", "--config a")
    warm = begun(tmp_path / "b", "--config a --warm-start 'runs/x y'", "--resume b", "--resume b --ckpt_path c.ckpt")
    assert scratch["warm_start"] is None and warm == {**scratch, "warm_start": str(Path("runs/x y").absolute())}
    assert begun(tmp_path / "f", f"--warm-start '{Path.cwd()}/runs/x y'") == warm
    assert begun(tmp_path / "c", "--warm_start=./runs/x\\ y/") == warm
    assert begun(tmp_path / "d", "--warm-start failed", "--config a") == scratch
    assert begun(tmp_path / "e", "--ckpt_path d/last.ckpt --config a")["ckpt_path"].endswith("/d/last.ckpt")


def test_the_recorded_start_counts_however_the_run_named_it(tmp_path: Path) -> None:
    start = {"warm_start": "/runs/seed_3/best.ckpt"}
    entries = [{"command": "maze-pl fit -c a", "start": start}, {"command": "maze-pl fit --resume a --ckpt_path b"}]
    for name, words in (("a", ""), ("b", " --warm-start runs/seed_3"), ("c", " --ckpt_path x")):
        learned(tmp_path / name, CONFIGURATION)
        entries[0] = {**entries[0], "command": f"maze-pl fit{words}"}
        (tmp_path / name / "provenance.json").write_text(json.dumps({"commands": entries}), encoding="utf-8")
        found = learned_options(tmp_path / name)[0]
        assert found["warm_start"] == "/runs/seed_*/best.ckpt" and "ckpt_path" not in found


def test_seeds_that_start_from_the_seeds_of_one_training_are_of_one_configuration(tmp_path: Path) -> None:
    first, second, other = (
        begun(tmp_path / name, f"--warm-start {start}")
        for name, start in (("a", "runs/seed_0"), ("b", "runs/seed_1"), ("c", "others/seed_0"))
    )
    assert first == second != other


def start(run_dir: Path, *entries: dict[str, Any]) -> Any:
    """Start of a run whose commands have recorded some entries."""
    learned(run_dir, CONFIGURATION)
    (run_dir / "provenance.json").write_text(json.dumps({"commands": entries}), encoding="utf-8")
    return learned_options(run_dir)[0].get("warm_start")


def test_a_run_that_a_file_continues_keeps_its_start(tmp_path: Path) -> None:
    warm = {"command": "maze-pl fit -c a --warm-start R", "start": {"warm_start": "/R/checkpoints/best.ckpt"}}
    continued = {"command": "maze-pl fit --config resume.yaml", "start": {"resume": "/a"}}
    assert start(tmp_path / "a", warm, continued) == "/R"
    assert start(tmp_path / "b", warm, {"command": "maze-pl fit -c a", "start": {}}) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/base/checkpoints/best.ckpt", "/base"),  # as version 0.2.0 records --warm-start base
        ("/base/checkpoints/last.ckpt", "/base/checkpoints/last.ckpt"),
        ("/base/seed_0/checkpoints/best.ckpt", "/base/seed_*"),
        ("/base/seed_1/checkpoints/last.ckpt", "/base/seed_*/checkpoints/last.ckpt"),
        ("/base/seed_1/checkpoints/epoch=3.ckpt", "/base/seed_*/checkpoints/epoch=3.ckpt"),
        ("/base/seed_12", "/base/seed_*"),
    ],
)
def test_the_seeds_of_a_training_are_one_start_if_the_same_checkpoint_was_named(
    tmp_path: Path, path: str, expected: str
) -> None:
    assert start(tmp_path / "a", {"command": "maze-pl fit", "start": {"warm_start": path}}) == expected
    assert start(tmp_path / "b", {"command": f"maze-pl fit --warm-start {path}"}) == expected


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"commands": [1]}',
        '{"commands": [{"command": "fit \'"}]}',
        '{"commands": [{"command": "", "start": 1}]}',
    ],
)
def test_damaged_records_count_for_nothing(tmp_path: Path, content: str) -> None:
    expected, _ = learned(tmp_path / "a", CONFIGURATION)
    (tmp_path / "a" / "provenance.json").write_text(content, encoding="utf-8")
    assert learned_options(tmp_path / "a")[0] == expected
