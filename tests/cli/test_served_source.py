"""The source of a served policy: faults in the code of a run, and signals during its export, leave the server sound."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import IO

import pytest

from maze_pl.__main__ import main
from maze_pl.cli.served_source import ServedSource
from maze_pl.config.search_path import ConfigurationError
from tests.cli.faulty_runs import make_run, set_mode

SECONDS = 120.0  # after which a test that waits for the server fails
BODY = json.dumps({"observation": {"observation": [0.0, 0.1, 0.0, -0.1]}}).encode()


@pytest.mark.slow
def test_what_an_export_refuses_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^there is no checkpoint: none of .*last\.ckpt is a file$"):
        ServedSource(tmp_path, 8).load()


def test_the_export_has_no_token_and_a_new_folder_and_shows_tracebacks_if_it_is_debugged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The export is replaced by one that writes what it got to standard error, and fails."""
    shown = "print(sys.argv[1:], os.environ.get('MAZE_PL_SERVE_TOKEN'), file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr("maze_pl.cli.served_source.program", lambda: [sys.executable, "-c", f"import os, sys; {shown}"])
    monkeypatch.setenv("MAZE_PL_SERVE_TOKEN", "secret")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = ServedSource(tmp_path, 8, debug=True)
    targets = []
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="ended with exit status 3"):
            source.load()
        output = capfd.readouterr().err
        words = ast.literal_eval(output[: output.index("]") + 1])
        assert "--debug" in words and "secret" not in output
        targets.append(Path(words[words.index("--to") + 1]))
    assert targets[0] != targets[1] and not any(tmp_path.iterdir())


def test_the_option_debug_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    received = []
    monkeypatch.setattr("maze_pl.cli.serve.run", lambda arguments, *_: received.append(arguments.is_debugged) or 0)
    assert [main(["serve", "agent.bundle", *words]) for words in ([], ["--debug"])] == [0, 0]
    assert received == [False, True]


def test_a_source_that_was_stopped_is_not_exported(tmp_path: Path) -> None:
    source = ServedSource(tmp_path, 8)
    source.stop()
    with pytest.raises(ConfigurationError, match="was stopped, as the server ends"):
        source.load()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("faulty"))


def lines_until(stream: IO[str], end: str) -> str:
    """What comes until a line that contains a text."""
    lines = [stream.readline()]
    while lines[-1] and end not in lines[-1]:
        lines.append(stream.readline())
    assert lines[-1], "".join(lines)
    return "".join(lines)


def start_server(run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "maze_pl", "serve", str(run), "--trust", "--port", "0"]
    return subprocess.Popen(command, cwd=run.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.long
def test_a_server_outlives_faults_in_the_code_of_its_run_and_ends_during_an_export(run: Path) -> None:
    folder = run.parent
    set_mode(folder, "works")
    process = start_server(run)
    try:
        assert process.stdout is not None and process.stderr is not None
        found = re.search(r"serving on http://127.0.0.1:(\d+)", process.stdout.readline())
        assert found is not None, process.communicate()[1]

        def decide() -> None:
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"http://127.0.0.1:{found[1]}/act", BODY, headers)
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                assert json.loads(answer.read())["action"]["action"] in (0, 1)

        set_mode(folder, "exits")
        process.send_signal(signal.SIGHUP)
        output = lines_until(process.stderr, "the bundle in use stays")
        assert "faulty_shop.py" in output and "called sys.exit(3)" in output
        decide()
        set_mode(folder, "has no data")
        process.send_signal(signal.SIGHUP)
        output = lines_until(process.stderr, "the bundle in use stays")
        assert "Traceback (most recent call last)" in output and "FileNotFoundError" in output
        assert "ended with exit status 1" in output
        decide()
        set_mode(folder, "works")
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline().startswith("reloaded: sha256 ")
        set_mode(folder, "hangs")
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + SECONDS
        while not (folder / "hangs").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        decide()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_fault_in_the_code_of_a_run_ends_the_start_with_its_traceback(run: Path) -> None:
    set_mode(run.parent, "has no data")
    process = start_server(run)
    error = process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 2
    assert "Traceback (most recent call last)" in error and "demand.csv" in error
    assert error.splitlines()[-1].endswith("ended with exit status 1; the server's standard error has the reason")
