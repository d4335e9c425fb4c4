"""What is kept of what the console said."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from maze_pl.__main__ import main
from maze_pl.callbacks.console_log import ConsoleLog
from maze_pl.config.search_path import ConfigurationError
from maze_pl.system.console import tolerant_console
from maze_pl.system.signals import StoppedBySignal


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_everything_that_is_said_is_kept_from_before_there_was_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("pytorch_lightning")
    handler = logging.StreamHandler()  # holds on to the standard error of now, as Lightning's does
    logger.addHandler(handler)
    try:
        with ConsoleLog() as log:
            print("before")
            log.open(tmp_path / "run.log")
            print("after", file=sys.stderr)
            logger.warning("from Lightning")
            sys.stdout.writelines(["a\n", "b\n"])
        print("outside")
    finally:
        logger.removeHandler(handler)
    text = read(tmp_path / "run.log")
    assert text.startswith("before\nafter\n")
    assert text.endswith("from Lightning\na\nb\n")
    shown = capsys.readouterr()
    assert shown.out == "before\na\nb\noutside\n"
    assert "from Lightning" in shown.err
    assert not isinstance(sys.stdout, ConsoleLog)


def test_progress_bars_and_colours_are_left_out(tmp_path: Path) -> None:
    with ConsoleLog() as log:
        log.open(tmp_path / "run.log")
        for position in (0, 1):
            for _ in tqdm(range(3), file=sys.stdout, position=position, mininterval=0):
                tqdm.write("a line", file=sys.stdout)
        print("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[0m")
    lines = [line for line in read(tmp_path / "run.log").split("\n") if line]
    assert lines == ["a line"] * 6 + ["red and bold"]
    assert not set(read(tmp_path / "run.log")) & {"\r", "\x1b", "█"}


def test_a_later_run_adds_to_the_file(tmp_path: Path) -> None:
    for word in ("first", "second"):
        with ConsoleLog() as log:
            log.open(tmp_path / "run.log")
            print(word)
    assert read(tmp_path / "run.log") == "first\nsecond\n"


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (ValueError("a bug"), "ValueError: a bug"),
        (ConfigurationError("no such file"), "maze-pl: error: no such file"),
        (StoppedBySignal(2), "stopped"),
    ],
)
def test_how_a_run_failed_is_kept_though_it_is_shown_later(tmp_path: Path, error: BaseException, last: str) -> None:
    with pytest.raises(type(error)), ConsoleLog() as log:
        log.open(tmp_path / "run.log")
        print("stopped")
        raise error
    lines = read(tmp_path / "run.log").splitlines()
    assert lines[-1] == last
    assert ("Traceback (most recent call last):" in lines) == (type(error) is ValueError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_log_that_cannot_be_written_does_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleLog() as log:
        log.open("/dev/full")
        print("one")
        print("two")
    captured = capsys.readouterr()
    assert captured.out == "one\ntwo\n"
    assert captured.err.count("run.log ends here") == 1


FIT = ["fit", "--config", "ppo_cartpole", "--run_dir", "run", "--trainer.max_epochs", "1", "--data.epoch_length", "1"]
SMALL = ["--data.n_envs", "2", "--data.n_rollout_steps", "32", "--model.batch_size", "32"]
THRESHOLD = ["--stop_at_return.threshold", "1000", "--data.evaluators", '{"eval": {"n_episodes": 1}}']


@pytest.mark.slow
def test_a_run_keeps_what_it_says_from_its_configuration_to_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*FIT, *SMALL, *THRESHOLD]) == 1
    text, shown = read(tmp_path / "run" / "run.log"), capsys.readouterr()
    assert "class_path: maze_pl.modules.PPO" in text
    assert "class_path: maze_pl.modules.PPO" not in shown.out
    for said in (
        "configuration: ppo_cartpole, with\n  model.batch_size: 32 (instead of 100)",
        "all options: run/config.yaml",
        "command: maze-pl fit",
        "epoch 1 | 64 env steps",
        "next:",
        "ended:",
    ):
        assert said in text
        assert said in shown.out
    assert text.splitlines()[-1].startswith("maze-pl: eval/return reached ")


def test_a_run_that_fails_keeps_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*FIT, *SMALL, "--best_checkpoint.monitor", "eval/kpi/none", "--data.evaluators.eval.n_episodes", "1"])
    assert read(tmp_path / "run" / "run.log").splitlines()[-1].startswith("maze-pl: error: BestCheckpoint(monitor=")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize(("stream", "name"), [("stdout", "standard output"), ("stderr", "standard error")])
def test_a_stream_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, stream: str, name: str) -> None:
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:
        monkeypatch.setattr(sys, stream, full)
        with tolerant_console(), ConsoleLog(), pytest.raises(OSError, match="No space left") as raised:
            print("lost", file=getattr(sys, stream))
        monkeypatch.undo()
    assert raised.value.filename == name
