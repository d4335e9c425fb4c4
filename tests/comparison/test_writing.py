"""Files of a comparison in folders of all kinds: complete, or not there at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maze_pl.comparison import writing
from maze_pl.comparison.compare import compare
from maze_pl.config.search_path import ConfigurationError
from maze_pl.envs import GymMazeEnv
from tests.bad_input.project import tree

FILES = {"comparison.csv", "comparison.html", "comparison.json", "comparison.png", "episodes.csv"}


def cart_pole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


def written(to: str) -> None:
    compare("random", env=cart_pole, n_episodes=2, max_steps=3, to=to, views=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writing, "save_picture", lambda path, _: path.write_bytes(b"picture"))
    return tmp_path


def missing() -> None:
    """Nothing is there."""


def empty() -> None:
    Path("to").mkdir()


def link_to_empty_folder() -> None:
    Path("real").mkdir()
    Path("to").symlink_to("real")


def link_to_nothing() -> None:
    Path("to").symlink_to("new/real")


def left_by_a_killed_process() -> None:
    Path("to/.to.123.part").mkdir(parents=True)


@pytest.mark.parametrize("prepare", [missing, empty, link_to_empty_folder, link_to_nothing, left_by_a_killed_process])
def test_files_are_written_to_a_missing_or_empty_folder(prepare: Callable[[], None]) -> None:
    prepare()
    is_link = Path("to").is_symlink()
    before = os.stat("to").st_ino if Path("to").exists() else None
    written("to")
    assert {name for name in os.listdir("to") if not name.startswith(".")} == FILES
    assert Path("to").is_symlink() == is_link
    assert before in (None, os.stat("to").st_ino)  # the same folder: it may be a mount point
    assert not [name for name in os.listdir() if name.endswith(".part")]


@pytest.mark.parametrize("prepare", [missing, empty])
def test_a_folder_may_have_any_name_that_the_file_system_allows(prepare: Callable[[], None]) -> None:
    prepare()
    name = "to".ljust(255, "o")
    if Path("to").exists():
        Path("to").rename(name)
    written(name)
    assert os.listdir() == [name] and set(os.listdir(name)) == FILES


def test_the_page_is_moved_to_an_empty_folder_last(monkeypatch: pytest.MonkeyPatch) -> None:
    empty()
    names: list[str] = []
    rename = os.rename

    def note(source: Path, target: Path) -> None:
        names.append(target.name)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)
    written("to")
    assert set(names) == FILES
    assert names[-1] == "comparison.html"


def test_nothing_is_left_in_an_empty_folder_if_a_file_cannot_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    empty()
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if target == Path("to/comparison.png").absolute():
            raise OSError("input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="input/output error"):
        written("to")
    assert tree(Path()) == {"to": None}


@pytest.mark.parametrize("prepare", [missing, empty])
def test_files_of_others_that_came_meanwhile_are_not_mixed_with(
    prepare: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare()

    def interfere(path: Path, _: Any) -> None:
        path.write_bytes(b"picture")
        Path("to").mkdir(exist_ok=True)
        Path("to", "mine.txt").touch()

    monkeypatch.setattr(writing, "save_picture", interfere)
    with pytest.raises(ConfigurationError, match="the folder to is not empty"):
        written("to")
    assert tree(Path()) == {"to": None, "to/mine.txt": b""}


def test_impossible_folders_are_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("loop").symlink_to("loop")
    Path("file").touch()
    Path("link").symlink_to("file")
    Path("full").mkdir()
    Path("full", "mine.txt").touch()
    Path("to_full").symlink_to("full")
    empty()
    before = tree(Path())
    messages = {
        "loop": "it is a symbolic link that leads to itself",
        "file": "is a file",
        "link": "is a file",
        "to_full": "is not empty",
        "file/below": "is not writable",
        "to": "is not writable",
        "to/below": "is not writable",
        "new/" + "a" * 256: "File name too long",
        "a" * 256: "File name too long",
    }
    monkeypatch.setattr("os.access", lambda path, _: Path(path) != Path("to").absolute())
    monkeypatch.setattr("maze_pl.comparison.playing.rollout", None)
    for name, message in messages.items():
        with pytest.raises(ConfigurationError, match=message):
            written(name)
    assert tree(Path()) == before
