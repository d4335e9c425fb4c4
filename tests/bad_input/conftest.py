"""A folder with a finished run and with files that are wrong in all ways, for commands that must be refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from maze_pl.__main__ import main
from tests.bad_input.project import FIT, TEXTS, write_checkpoints, write_episodes


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that each test gets a copy of."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MAZE_PL_RUN_DIR", raising=False)
        assert main([*FIT[:-2], "--run_dir", "run"]) == 0
    shutil.copy(Path(__file__).with_name("broken_environments.py"), folder)
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.yaml").write_bytes(bytes(range(128, 256)))
    (folder / "folder.yaml").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("mine", encoding="utf-8")
    write_episodes(folder)
    write_checkpoints(folder, torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True))
    yield folder


@pytest.fixture
def project(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with all these files."""
    folder = tmp_path / "project"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder
