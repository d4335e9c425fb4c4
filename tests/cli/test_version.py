"""`maze-pl --version`, short and verbose."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from maze_pl import __version__
from maze_pl.__main__ import main
from maze_pl.cli import version


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"maze-pl {__version__}\n"


def test_verbose_lists_packages_by_extra(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", "--verbose"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"maze-pl {__version__}"
    assert lines[1].startswith(f"python {sys.version.split()[0]} (")
    assert f"torch {importlib.metadata.version('torch')}" in lines
    assert lines.index("extra serve:") < lines.index(f"  uvicorn {importlib.metadata.version('uvicorn')}")
    assert "extra dev:" not in lines


def test_packages_that_are_not_installed_are_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["torch>=2", "unheard-of>=1; extra == 'strange'"])
    assert version.versions_text().endswith("extra strange:\n  unheard-of not installed")


def test_nothing_heavy_is_imported() -> None:
    command = "from maze_pl.__main__ import main; main(['--version', '--verbose'])"
    code = f"import sys; {command}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
