"""State of the git repository around a folder: commit, branch, and changes that are not committed.

Commit and branch are read from the repository's files. Only the `git` program can find changes; it
runs in the background, and all else is known without it.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final, TypedDict

_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_RUNS_PROGRAMS: Final = re.compile(r"^\s*\[\s*(filter|include|includeif)\b", re.IGNORECASE | re.MULTILINE)
_LARGEST_FILE: Final = 10_000_000
_STATUS: Final = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty"),
)
_OVERRIDES: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")


class GitState(TypedDict):
    """State of a repository.

    Attributes:
        commit: Hash of the commit that is checked out; None before the first one.
        branch: Name of the branch; None if no branch is checked out.
        is_dirty: Whether tracked files differ from the commit; None if that is not known, because
            there is no `git`, it takes too long, or it would run programs that the repository names.
    """

    commit: str | None
    branch: str | None
    is_dirty: bool | None


class GitProbe:
    """Reads the state of the repository around a folder; starts `git` at once and waits in `result`.

    Args:
        folder: A folder; None means the current one.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        start = Path.cwd() if folder is None else Path(folder).resolve()
        self._git_dir = _git_dir(start)
        self._process: subprocess.Popen[bytes] | None = None
        if self._git_dir is None or _RUNS_PROGRAMS.search(_text(_common_dir(self._git_dir) / "config")):
            return
        environment = {name: value for name, value in os.environ.items() if name not in _OVERRIDES}
        try:
            self._process = subprocess.Popen(
                _STATUS,
                cwd=start,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # there is no such program
            self._process = None

    def close(self) -> None:
        """End `git` if its result has not been asked for."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def result(self, patience: float = 1.0) -> GitState | None:
        """Return the state; None if there is no repository.

        Args:
            patience: Seconds to wait for `git`.
        """
        process = self._process
        self._process = None
        output = None
        if process is not None:
            try:
                output, _ = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        if self._git_dir is None:
            return None
        is_known = process is not None and output is not None and process.returncode == 0
        commit, branch = _head(self._git_dir)
        return {"commit": commit, "branch": branch, "is_dirty": bool(output) if is_known else None}


def _git_dir(folder: Path) -> Path | None:
    """Return the folder with `HEAD` of the repository around a folder, also of a linked work tree."""
    for parent in (folder, *folder.parents):
        entry = parent / ".git"
        if entry.is_dir():
            return entry
        if entry.is_file():
            target = _text(entry).removeprefix("gitdir:").strip()
            return parent / target if target else None
    return None


def _common_dir(git_dir: Path) -> Path:
    """Return the folder that the work trees of a repository share."""
    shared = _text(git_dir / "commondir").strip()
    return git_dir / shared if shared else git_dir


def _head(git_dir: Path) -> tuple[str | None, str | None]:
    """Return commit and branch that are checked out."""
    head = _text(git_dir / "HEAD").strip()
    if not head.startswith("ref:"):
        return (head, None) if _COMMIT.fullmatch(head) else (None, None)
    name = head.removeprefix("ref:").strip()
    branch = name.removeprefix("refs/heads/")
    if ".." in Path(name).parts:
        return None, None
    common = _common_dir(git_dir)
    for folder in (git_dir, common):
        commit = _text(folder / name).strip()
        if _COMMIT.fullmatch(commit):
            return commit, branch
    packed = re.search(rf"^(\S+) {re.escape(name)}$", _text(common / "packed-refs"), re.MULTILINE)
    return packed[1] if packed and _COMMIT.fullmatch(packed[1]) else None, branch


def _text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
