from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from maze_pl.system.git_state import GitProbe


def git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    command = ["git", *author, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "code.py").write_text("a = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_commit_branch_and_changes_are_told(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    (repository / "untracked.txt").touch()
    assert GitProbe(below).result() == {"commit": commit, "branch": "main", "is_dirty": False}
    (repository / "code.py").write_text("a = 2\n")
    assert GitProbe(below).result() == {"commit": commit, "branch": "main", "is_dirty": True}


def test_packed_references_detached_heads_and_linked_work_trees_are_read(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "pack-refs", "--all")
    assert GitProbe(repository).result() == {"commit": commit, "branch": "main", "is_dirty": False}
    git(repository, "worktree", "add", "-q", "-b", "side/branch", "linked")
    assert GitProbe(repository / "linked").result() == {"commit": commit, "branch": "side/branch", "is_dirty": False}
    git(repository, "checkout", "-q", "--detach")
    assert GitProbe(repository).result() == {"commit": commit, "branch": None, "is_dirty": False}


def test_a_folder_without_repository_and_an_empty_repository(tmp_path: Path) -> None:
    assert GitProbe(tmp_path).result() is None
    git(tmp_path, "init", "-q", "-b", "main")
    assert GitProbe(tmp_path).result() == {"commit": None, "branch": "main", "is_dirty": False}


def test_without_git_the_commit_is_known_and_changes_are_not(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", str(repository))
    assert GitProbe(repository).result() == {"commit": commit, "branch": "main", "is_dirty": None}


def test_a_slow_git_is_not_waited_for(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 30\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    began = time.perf_counter()
    state = GitProbe(repository).result(patience=0.1)
    assert state is not None and state["is_dirty"] is None
    assert time.perf_counter() - began < 10


def test_programs_that_a_repository_names_do_not_run(repository: Path) -> None:
    for name, value in (("core.fsmonitor", "touch watched"), ("filter.own.clean", "touch filtered; cat")):
        git(repository, "config", name, value)
        (repository / ".gitattributes").write_text("*.py filter=own\n")
        (repository / "code.py").write_text("a = 3\n")
        assert GitProbe(repository).result() is not None
    assert not list(repository.glob("*ed"))
