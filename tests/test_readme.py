"""What the README shows works as it stands there."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from tests import documentation
from tests.documentation import shell

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return [block.text for block in documentation.blocks(README.read_text(encoding="utf-8")) if block.kind == language]


def commands() -> list[str]:
    return [line for block in blocks("") for line in documentation.commands(block)]


def shortened(command: str) -> str:
    """The same training with fewer epochs and rollouts, where nothing is said of what it reaches."""
    if command.startswith("maze-pl fit --config ppo_cartpole"):
        command += " --data.epoch_length 2"
    if command.endswith("slow_delivery") or "--wandb" in command:
        command += " --trainer.max_epochs 1"
    return command


def test_the_commands_of_the_readme_are_found() -> None:
    assert {command.split()[1] for command in commands() if command.startswith("maze-pl")} >= {"fit", "list", "new"}
    assert len(commands()) >= 15


def test_the_yaml_of_the_readme_is_well_formed() -> None:
    assert [next(iter(yaml.safe_load(text))) for text in blocks("yaml")] == ["data", "base"]


@pytest.mark.slow
def test_its_commands_and_programs_run_in_their_order(tmp_path: Path) -> None:
    (use,) = blocks("python")
    (tmp_path / "use.py").write_text(use, encoding="utf-8")
    shell("\n".join(["set -x", *map(shortened, commands()), "python use.py"]), tmp_path)
    assert {"first", "second"} <= {folder.name for folder in (tmp_path / "outputs").iterdir()}
    (metrics,) = (tmp_path / "my_project" / "outputs" / "ppo_stock").glob("*/metrics.csv")
    with metrics.open(encoding="utf-8") as file:
        *_, last = csv.DictReader(file)
    assert float(last["eval_BaseEnvEvents/reward/mean"]) >= 180  # orders at random make 27, the best rule 194
    assert float(last["eval_BaseEnvEvents/kpi/mean/service_level"]) >= 0.8
    assert float(last["train_StockEvents/sold/mean_episode_total"]) > 0
