from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.config.search_path import (
    ConfigurationError,
    config_folder,
    project_folder,
    read,
    shipped_folder,
    suggestion,
)


@pytest.mark.parametrize(
    ("path", "folder", "project"),
    [
        ("shop/configs/train.yaml", "shop/configs", "shop"),
        ("shop/configs/experiment/a.yaml", "shop/configs", "shop"),
        ("shop/outputs/train/now/config.yaml", "shop/outputs/train/now", "shop"),
        ("shop/loose.yaml", "shop", "shop"),
        ("src/package/inner/configs/train.yaml", "src/package/inner/configs", "src"),
    ],
)
def test_a_file_knows_the_folders_that_it_belongs_to(path: str, folder: str, project: str, tmp_path: Path) -> None:
    package = tmp_path / "src" / "package" / "inner"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    assert config_folder(tmp_path / path) == tmp_path / folder
    assert project_folder(tmp_path / path) == tmp_path / project


def test_files_that_come_with_maze_pl_make_nothing_importable() -> None:
    assert project_folder(shipped_folder() / "ppo_cartpole.yaml") is None
    assert project_folder(shipped_folder() / "env" / "gym_env.yaml") is None


def test_only_names_that_are_close_are_suggested() -> None:
    assert suggestion("polcy", ["policy", "critic"]) == "; did you mean policy?"
    assert suggestion("zzz", ["policy", "critic"]) == ""
    kpis = ["corrections_per_day", "cycles_per_day", "profit_per_day"]
    assert suggestion("profit_per_days", kpis) == "; did you mean profit_per_day?"
    assert suggestion("per_day", kpis).count(" or ") == 2


def test_a_tab_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("base: ppo_cartpole\nmodel:\n\tlr: 1\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as error:
        read(path)
    assert (
        str(error.value) == f"{path} cannot be read: line 3 is indented by a tab, which YAML does not allow: use spaces"
    )
    path.write_text('a: "\t"\nb: [1\n', encoding="utf-8")  # another fault
    with pytest.raises(ConfigurationError) as error:
        read(path)
    assert "by a tab" not in str(error.value)
