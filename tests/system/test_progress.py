"""Bars of long work on terminals and in logs."""

from __future__ import annotations

import io
import sys

import pytest
from tqdm import tqdm

from maze_pl.system.progress import bar_options


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("file", "written"), [(Terminal(), True), (io.StringIO(), False)], ids=["terminal", "log"])
def test_short_work_has_a_bar_on_a_terminal_only(
    file: io.StringIO, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", file)
    list(tqdm(range(3), file=file, **bar_options("episodes", True)))
    assert ("episodes: 100%" in file.getvalue()) == written


def test_short_work_has_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    list(tqdm(range(3), file=file, **bar_options("episodes", True)))
    assert "episodes: 100%" in file.getvalue()


@pytest.mark.parametrize("is_shown", [True, False])
def test_without_an_error_stream_there_is_no_bar(is_shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert list(tqdm(range(3), **bar_options("episodes", is_shown))) == [0, 1, 2]


def test_long_work_has_a_line_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with tqdm(total=2, file=file, **bar_options("episodes", True)) as bar:
        bar.start_t -= 11  # as if it had begun 11 s ago
        bar.last_print_t -= 11
        bar.update(1)
        bar.update(1)
    assert "episodes:  50%" in file.getvalue()


def test_without_progress_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    list(tqdm(range(3), file=file, **bar_options("episodes", False)))
    assert file.getvalue() == ""
