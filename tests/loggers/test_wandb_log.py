from __future__ import annotations

from pathlib import Path

import pytest
import wandb

from maze_pl.loggers.wandb_log import WandbLog, is_logged_in


@pytest.fixture(autouse=True)
def logged_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_nobody_is_logged_in_without_a_key() -> None:
    assert not is_logged_in()


def test_a_key_in_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert is_logged_in()


def test_an_empty_key_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    assert not is_logged_in()


def test_a_login_counts_for_its_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine example.com\n  login user\n  password secret\n", encoding="utf-8")
    netrc.chmod(0o600)
    assert not is_logged_in()
    monkeypatch.setenv("WANDB_BASE_URL", "https://example.com")
    assert is_logged_in()
    monkeypatch.delenv("WANDB_BASE_URL")
    netrc.write_text("machine api.wandb.ai\n  login user\n  password secret\n", encoding="utf-8")
    assert is_logged_in()


def test_a_run_does_not_join_another_one_of_the_same_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    other = wandb.init(dir=str(tmp_path), project="other", mode="offline", settings=wandb.Settings(silent=True))
    log = WandbLog(str(tmp_path / "run"))
    log.log_metrics({"loss": 1.0}, 10)
    own = log.experiment.id
    log.finalize("success")
    assert own != other.id
    assert wandb.run is other
    other.finish()
