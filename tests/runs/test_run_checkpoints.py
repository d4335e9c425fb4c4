"""Folders of a run's checkpoints: commands look where its configuration has them written, also after a move."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.config.search_path import ConfigurationError
from maze_pl.reports.run_facts import folder_facts
from maze_pl.runs.checkpoint_files import best_or_last, checkpoint_path, named_checkpoint
from maze_pl.runs.provenance import append_provenance, collect_provenance
from maze_pl.runs.run_checkpoints import (
    checkpoint_folders,
    configured_checkpoints,
    directory_of_run,
    holds_checkpoints,
    run_checkpoints,
)

OURS = "maze_pl.callbacks"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(run_dir: str, configuration: dict[str, Any], files: Sequence[str] = (), command: str = "") -> Path:
    run = Path(run_dir)
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    append_provenance(run, collect_provenance(["maze-pl", "fit", *(command or f"--run_dir {run_dir}").split()], 0))
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name, encoding="utf-8")
    return run


def callback(name: str, dirpath: str | None, module: str = OURS) -> dict[str, Any]:
    return {"class_path": f"{module}.{name}", "init_args": {"dirpath": dirpath}}


@pytest.mark.parametrize(
    ("configuration", "best", "last"),
    [
        ({}, "run/checkpoints", "run/checkpoints"),
        ({"best_checkpoint": None, "trainer": None}, "run/checkpoints", "run/checkpoints"),
        ({"best_checkpoint": {"dirpath": "a"}}, "a", "run/checkpoints"),
        ({"last_checkpoint": {"dirpath": "a"}}, "run/checkpoints", "a"),
        ({"trainer": {"default_root_dir": "a"}, "best_checkpoint": {"dirpath": "b"}}, "b", "a/checkpoints"),
        ({"trainer": {"callbacks": [callback("BestCheckpoint", "a")]}}, "a", "run/checkpoints"),
        (
            {"trainer": {"callbacks": callback("LastCheckpoint", "a", f"{OURS}.last_checkpoint")}},
            "run/checkpoints",
            "a",
        ),
        (  # a configured callback replaces the one that each run has
            {"trainer": {"callbacks": [callback("BestCheckpoint", None)]}, "best_checkpoint": {"dirpath": "b"}},
            "run/checkpoints",
            "run/checkpoints",
        ),
        ({"trainer": {"callbacks": [callback("BestCheckpoint", "a", "mine")]}}, "run/checkpoints", "run/checkpoints"),
    ],
)
def test_checkpoints_are_where_the_configuration_has_them_written(
    configuration: dict[str, Any], best: str, last: str
) -> None:
    expected = {"best": f"{best}/best.ckpt", "last": f"{last}/last.ckpt"}
    found = configured_checkpoints("run", configuration)
    assert {name: str(place.file) for name, place in found.items()} == expected
    written("run", configuration, list(expected.values()))
    assert {name: str(place.file) for name, place in run_checkpoints("run").items()} == expected
    for name in expected:
        assert str(checkpoint_path("run", (name,))) == str(named_checkpoint("run", name)) == expected[name]


def test_the_best_checkpoint_of_a_run_is_found_in_its_folder_without_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = ["run/best/best.ckpt", "run/checkpoints/last.ckpt", "run/best/epoch=3.ckpt"]
    written("run", {"best_checkpoint": {"dirpath": "run/best"}}, files)
    assert [str(path) for path in (checkpoint_path("run"), best_or_last("run"))] == [files[0]] * 2
    assert str(named_checkpoint("run", "epoch=3")) == files[2]
    assert capsys.readouterr().err == ""
    assert folder_facts(Path("run"))["checkpoints"].keys() == {"best", "last", "epoch=3"}
    Path(files[0]).unlink()
    assert str(best_or_last("run")) == files[1]
    message = f"run has no best.ckpt, because no evaluation has selected one; using {files[1]}"
    assert message in capsys.readouterr().err
    Path("run", "final_evaluation.json").touch()
    assert str(best_or_last("run")) == files[1]
    message = "run has no best.ckpt, though its final evaluation played with one: the file has been removed; using"
    assert message in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match=r"neither lost nor run/checkpoints/lost.ckpt nor run/best/lost.ckpt"):
        named_checkpoint("run", "lost")
    Path(files[1]).unlink()
    with pytest.raises(ConfigurationError, match=f"none of run, {files[0]}, {files[1]} is a file"):
        checkpoint_path("run")


@pytest.mark.parametrize("how", ["moved", "copied", "entered", "absolute"])
def test_folders_in_a_run_directory_are_found_wherever_the_run_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    start = str(folder / "old") if how == "absolute" else "old"
    configuration = {"best_checkpoint": {"dirpath": f"{start}/best"}, "last_checkpoint": {"dirpath": start}}
    written(start, configuration, [f"{start}/best/best.ckpt", f"{start}/last.ckpt"])
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    run = "."
    if how == "moved":
        shutil.move(folder / "old", "new")
        run = "new"
    elif how == "copied":
        shutil.copytree(folder / "old", "new")
        run = "new"
    elif how == "entered":
        monkeypatch.chdir(folder / "old")
    else:
        run = start
    assert checkpoint_path(run) == Path(run, "best", "best.ckpt")
    assert checkpoint_path(run, ("last",)) == Path(run, "last.ckpt")
    assert best_or_last(run) == Path(run, "best", "best.ckpt")


def test_a_folder_outside_that_is_not_found_is_not_replaced_by_another_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ["kept/best.ckpt", "run/checkpoints/last.ckpt", "run/checkpoints/best.ckpt"]
    written("run", {"best_checkpoint": {"dirpath": "kept"}}, files)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    for find in (checkpoint_path, best_or_last, named_checkpoint):
        with pytest.raises(ConfigurationError) as error:
            find("../run")
        remedy = "repeat this in the folder where the run was started, or name a checkpoint file"
        assert str(error.value) == f"--best_checkpoint.dirpath kept of the run ../run does not exist: {remedy}"
    assert named_checkpoint("../run", "last") == Path("../run/checkpoints/last.ckpt")
    assert checkpoint_path("../kept/best.ckpt") == Path("../kept/best.ckpt")


def test_a_run_is_known_by_its_folders_for_checkpoints_and_a_checkpoint_knows_its_run(folder: Path) -> None:
    run = written("run", {"best_checkpoint": {"dirpath": "run/a/b"}, "last_checkpoint": {"dirpath": "run"}})
    assert holds_checkpoints(run) and checkpoint_folders(run) == [
        Path(run, name) for name in ("checkpoints", "a/b", ".")
    ]
    assert not holds_checkpoints(written("played", {"env": None}))
    assert not holds_checkpoints(folder)
    for file in ("run/last.ckpt", "run/checkpoints/last.ckpt", "run/a/b/best.ckpt", "run"):
        assert directory_of_run(file) == folder / "run"
    assert directory_of_run("other/checkpoints/best.ckpt") == folder / "other"


def test_a_configuration_that_cannot_be_read_leaves_the_folders_unknown() -> None:
    run = written("run", {}, ["run/checkpoints/best.ckpt"])
    (run / "config.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"run/config\.yaml cannot be read"):
        checkpoint_path(run)
    assert folder_facts(run)["checkpoints"].keys() == {"best"}
    (run / "config.yaml").unlink()
    assert checkpoint_path(run) == Path("run/checkpoints/best.ckpt")
