"""`maze-pl new`: the project passes our checks, those of its types in test_types.py; test_readme.py trains in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from maze_pl.__main__ import main

SCRIPTS = Path(sys.executable).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("new") / "My-Shop 2"
    assert main(["new", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def structured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("new") / "workshop"
    assert main(["new", "--structured", str(directory)]) == 0
    return directory


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)


def test_it_has_an_environment_configurations_a_test_and_no_placeholder_left(project: Path) -> None:
    files = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert files == {
        *("README.md", "pyproject.toml", ".gitignore", "my_shop_2/__init__.py", "my_shop_2/stock.py"),
        "my_shop_2/stock_arrays.py",
        *("configs/ppo_stock.yaml", "configs/env/stock.yaml", "configs/experiment/slow_delivery.yaml"),
        "tests/test_stock.py",
    }
    assert not [name for name in files if "{{" in (project / name).read_text(encoding="utf-8")]
    assert "my_shop_2.stock.make_env" in (project / "configs" / "env" / "stock.yaml").read_text(encoding="utf-8")


def test_a_structured_project_has_the_same_kinds_of_files(structured: Path) -> None:
    files = {path.relative_to(structured).as_posix() for path in structured.rglob("*") if path.is_file()}
    assert files == {
        *("README.md", "pyproject.toml", ".gitignore", "workshop/__init__.py", "workshop/repairs.py"),
        "workshop/repairs_arrays.py",
        *("configs/ppo_repairs.yaml", "configs/env/repairs.yaml", "configs/experiment/slow_sharpening.yaml"),
        "tests/test_repairs.py",
    }
    assert not [name for name in files if "{{" in (structured / name).read_text(encoding="utf-8")]


@pytest.mark.slow
def test_the_tests_of_a_structured_project_pass(structured: Path) -> None:
    result = run(structured, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("options", "problem"), [([], "stock"), (["--structured"], "repairs")])
def test_the_command_says_what_to_do_next(
    options: list[str], problem: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "shop", *options]) == 0
    assert f"cd shop\n  maze-pl fit --config ppo_{problem}\n" in capsys.readouterr().out


def test_the_printed_commands_hold_for_folders_with_spaces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my shop"]) == 0
    assert "  cd 'my shop'\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["stock", "Stock-Arrays", "test_shop", "a", "shop__2"])
def test_suitable_names_become_packages_and_distributions(name: str, folder: Path) -> None:
    assert main(["new", name]) == 0
    package = name.lower().replace("-", "_")
    project = tomllib.loads((folder / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    assert project == package
    assert re.fullmatch("[A-Z0-9]|[A-Z0-9][A-Z0-9._-]*[A-Z0-9]", project, re.IGNORECASE | re.ASCII)  # PEP 508
    assert (folder / name / package / "stock.py").is_file()


def test_an_empty_folder_is_filled(folder: Path) -> None:
    (folder / "shop").mkdir()
    assert main(["new", "shop"]) == 0
    assert (folder / "shop" / "shop" / "stock.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["project", "structured"])
def test_its_code_is_in_order(kind: str, request: pytest.FixtureRequest) -> None:
    for command in (
        ["ruff", "check", "--isolated", "--line-length", "120", "."],
        ["ruff", "format", "--isolated", "--check", "--line-length", "120", "."],
    ):
        result = run(request.getfixturevalue(kind), str(SCRIPTS / command[0]), *command[1:])
        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("kind", "experiment", "option"),
    [("project", "slow_delivery", "delivery_days: 5"), ("structured", "slow_sharpening", "rest_hours: 2")],
)
def test_its_experiment_changes_the_simulation(
    kind: str,
    experiment: str,
    option: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(request.getfixturevalue(kind))
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--config", f"experiment/{experiment}", "--print_config"])
    assert option in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("full", "is not empty"),
        ("a_file", "is a file"),
        ("2shops", "is not a valid one: use letters"),
        ("class", "is not a valid one: use letters"),
        ("my.shop", "is not a valid one: use letters"),
        ("Lösung", "is not a valid one: use letters from a to z"),
        ("_stock", "with a letter first"),
        ("stock_", "no underscore last"),
        ("shop-", "no underscore last"),
        ("test_stock", "another folder or file of the project"),
        ("Test-Stock", "another folder or file of the project"),
        ("test_repairs", "another folder or file of the project"),
        ("torch", "is used by an installed package"),
        ("json", "is used by an installed package"),
        ("sys", "is used by an installed package"),
        ("tests", "another folder"),
        ("a_file/shop", "cannot be written"),
    ],
)
def test_what_cannot_become_a_project_is_refused_and_nothing_is_written(
    name: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").write_text("precious", encoding="utf-8")
    (folder / "a_file").write_text("precious", encoding="utf-8")
    before = sorted(folder.rglob("*"))
    assert main(["new", name]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--force", "a"]])
def test_the_command_takes_exactly_one_folder(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *arguments]) == 2
    assert "maze-pl new" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_a_disk_that_fails_in_the_middle_leaves_nothing_behind(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "empty").mkdir()
    (folder / "shop").mkdir()
    (folder / "link").symlink_to(folder / "shop")
    write = Path.write_text

    def fail(path: Path, *arguments: str, **options: str) -> int:
        if path.name == "stock.py":
            raise OSError(28, "No space left on device")
        return write(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", fail)
    for name in ("empty", "fresh", "link"):
        assert main(["new", name]) == 2
        assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in folder.rglob("*")) == ["empty", "link", "shop"]
    assert (folder / "link").is_symlink()
