"""Digests of configurations change with what a command reads, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.config.digest import configuration_digest
from maze_pl.config.search_path import ConfigurationError

COMMAND = ["fit", "--config", "mine.yaml", "--data.env", "env/mine", "--data.wrappers", "wrappers.yaml"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "configs" / "env").mkdir(parents=True)
    (folder / "mine.yaml").write_text("base: common\nmodel: {lr: 0.1, init_args: {table: table.yaml}}\n")
    (folder / "table.yaml").write_text("- [1, 2]\n")
    (folder / "configs" / "common.yaml").write_text("trainer: {max_epochs: 2}\n")
    (folder / "configs" / "env" / "mine.yaml").write_text("class_path: mine.Env\n")
    (folder / "wrappers.yaml").write_text("class_path: mine.Wrapper\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["mine.yaml", "table.yaml", "configs/common.yaml", "configs/env/mine.yaml", "wrappers.yaml"]
)
def test_a_change_in_a_file_that_is_read_changes_the_digest(project: Path, name: str) -> None:
    before = configuration_digest(COMMAND)
    text = (project / name).read_text()
    (project / name).write_text(text.replace("1", "3").replace("2", "5").replace("mine", "yours"))
    assert configuration_digest(COMMAND) != before
    (project / name).write_text(text)
    assert configuration_digest(COMMAND) == before


def test_a_change_of_an_option_changes_the_digest(project: Path) -> None:
    assert configuration_digest([*COMMAND, "--model.lr", "1"]) != configuration_digest([*COMMAND, "--model.lr", "2"])


def test_comments_other_files_and_the_place_of_the_project_do_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = configuration_digest(COMMAND)
    with (project / "mine.yaml").open("a") as file:
        file.write("# a comment\n")
    (project / "other.yaml").write_text("{}")
    project.rename(project.parent / "moved")
    monkeypatch.chdir(project.parent / "moved")
    assert configuration_digest(COMMAND) == before


def test_a_missing_file_is_named(project: Path) -> None:
    (project / "mine.yaml").unlink()
    with pytest.raises(ConfigurationError, match=r"there is no configuration 'mine.yaml'"):
        configuration_digest(COMMAND)
