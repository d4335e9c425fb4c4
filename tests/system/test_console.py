"""A console that cannot show something, or that nothing reads any longer, ends no command."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl.callbacks.console_log import ConsoleLog
from maze_pl.system.console import ConsoleStream, tolerant_console


def closed_pipe() -> io.TextIOWrapper:
    """Return the writing end of a pipe that nothing reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w", encoding="utf-8")


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "? = 1 ?"), ("latin-1", "? = 1 ±"), ("utf-8", "μ = 1 ±")])
def test_letters_that_an_encoding_lacks_are_replaced(encoding: str, shown: str) -> None:
    file = io.BytesIO()
    stream = ConsoleStream(io.TextIOWrapper(file, encoding=encoding))
    assert stream.write("μ = 1 ±") == 7
    stream.writelines(["\n", "a"])
    stream.flush()
    assert file.getvalue().decode(encoding) == f"{shown}\na"
    assert stream.encoding == encoding


def test_the_output_to_a_closed_pipe_is_dropped() -> None:
    with closed_pipe() as pipe:
        stream = ConsoleStream(pipe)
        for _ in range(3):
            stream.write("a line\n" * 2000)  # more than is buffered
            stream.write("b")
            stream.flush()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("is_buffered", [True, False])
def test_output_that_cannot_be_written_is_an_error_with_the_name_of_the_stream(
    is_buffered: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8") as full:
        if not is_buffered:
            full.reconfigure(write_through=True)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert main(["list", "algorithms"]) == 2
            full.write("dropped")
            full.flush()
    assert capsys.readouterr().err == "maze-pl: error: standard output: No space left on device\n"


def test_run_log_holds_what_the_console_could_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        with ConsoleLog() as log:
            log.open(tmp_path / "run.log")
            for _ in range(2):
                print("to nobody μ", flush=True)
            print("in ascii μ", file=sys.stderr, flush=True)
        monkeypatch.undo()
    assert (tmp_path / "run.log").read_text(encoding="utf-8") == "to nobody μ\n" * 2 + "in ascii μ\n"


def test_commands_end_as_usual_if_nothing_reads_their_output(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["--help"]) == 0
        assert sys.stdout is pipe
        monkeypatch.undo()


def test_the_streams_are_restored_after_an_error() -> None:
    before = (sys.stdout, sys.stderr)
    with pytest.raises(ValueError, match="of the command"), tolerant_console():
        assert isinstance(sys.stdout, ConsoleStream)
        raise ValueError("of the command")
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_without_standard_streams(closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m maze_pl list algorithms {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("PPO" in done.stdout) == (not closed.startswith((">", "<")))
