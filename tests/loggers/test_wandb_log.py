from __future__ import annotations

from pathlib import Path

import pytest
import wandb

from maze_pl.loggers import wandb_log
from maze_pl.loggers.wandb_log import WandbLog, is_logged_in
from tests.run_directory import wandb_file


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


@pytest.mark.slow
def test_a_run_does_not_join_another_one_of_the_same_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    first = WandbLog(str(tmp_path / "first"))
    first.log_metrics({"loss": 1.0}, 10)
    first.finalize("success")
    other = wandb.init(dir=str(tmp_path), project="other", mode="offline", settings=wandb.Settings(silent=True))
    log = WandbLog(str(tmp_path / "run"))
    log.log_metrics({"loss": 1.0}, 10)
    own = log.experiment.id
    log.finalize("success")
    assert own != other.id
    assert wandb.run is other
    other.finish()


def test_configuration_and_final_results_are_config_and_summary_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for env_steps in (0, 10):  # the second one is resumed
        log = WandbLog(str(tmp_path / "run"))
        log.begin(f"model: {{lr: 0.{env_steps + 1}}}\n", "maze-pl fit", env_steps)
        log.conclude({"final_eval/best/return": 5.0 + env_steps}, env_steps + 10)
        log.finalize("success")
    files = sorted(tmp_path.glob("run/wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns)
    runs = [wandb_file.read_finished(path) for path in files]
    assert len({run.run_id for run in runs}) == 1
    assert [run.config["model"] for run in runs] == [{"lr": 0.1}, {"lr": 0.11}]
    assert runs[0].summary["final_eval/best/return"] == 5.0 and runs[0].summary["final_env_steps"] == 10
    assert runs[1].summary["final_eval/best/return"] == 15.0 and runs[1].summary["final_env_steps"] == 20
    assert not [row for run in runs for row in run.history if "final_eval/best/return" in row]


def test_a_page_is_logged_as_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    log = WandbLog(str(tmp_path))
    log.log_page("view", "<p>an episode</p>", None, 10)
    log.finalize("success")
    (file,) = tmp_path.rglob("media/html/*.html")
    assert "<p>an episode</p>" in file.read_text(encoding="utf-8")


def ids_of(folder: Path) -> dict[str, list[float]]:
    """Id of each W&B run -> its values of `loss`."""
    values: dict[str, list[float]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns):
        run = wandb_file.read_finished(path)
        values.setdefault(run.run_id, []).extend(row["loss"] for row in run.history if "loss" in row)
    return values


def log_loss(save_dir: Path, value: float, begins_at: int, step: int) -> None:
    log = WandbLog(str(save_dir))
    log.begin("seed_everything: 0", "maze-pl fit", begins_at)
    log.log_metrics({"loss": value}, step)
    log.finalize("success")


def test_runs_with_one_folder_are_several_runs_and_each_continues_as_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    monkeypatch.setenv("WANDB_MODE", "offline")
    shared = tmp_path / "shared"
    for run_dir, value, begins_at, step in (("a", 1.0, 0, 10), ("b", 2.0, 0, 10), ("a", 3.0, 10, 20), ("a", 4.0, 0, 5)):
        monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path / run_dir))
        log_loss(shared, value, begins_at, step)
    assert sorted(ids_of(shared).values()) == [[1.0, 3.0], [2.0]]  # the last one was logged at an earlier step


def test_without_a_run_directory_a_run_that_begins_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for value, begins_at, step in ((1.0, 0, 10), (2.0, 0, 10), (3.0, 10, 20)):
        log_loss(tmp_path, value, begins_at, step)
    assert sorted(ids_of(tmp_path).values()) == [[1.0], [2.0, 3.0]]


@pytest.mark.slow
def test_a_run_of_an_earlier_version_continues_from_the_record_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    record = tmp_path / "shared" / "wandb" / "maze_pl.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"id": "abc", "logged": {"loss": 10}}', encoding="utf-8")
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path / "run"))
    log_loss(tmp_path / "shared", 1.0, 10, 20)
    assert ids_of(tmp_path / "shared") == {"abc": [1.0]}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"{}", b'{"id": 5}', b'{"id": "abc", "logged": []}', b"[" * 100_000]
)
def test_a_run_whose_record_is_damaged_goes_on_as_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    record = tmp_path / "wandb" / "maze_pl.json"
    record.parent.mkdir()
    record.write_bytes(content)
    assert wandb_log._read_record(record) is None
    assert not record.exists() and record.with_name("maze_pl.1.json").read_bytes() == content
    record.write_bytes(content)
    log_loss(tmp_path, 1.0, 10, 20)
    assert record.with_name("maze_pl.2.json").read_bytes() == content
    whole = wandb_log._read_record(record)
    assert whole is not None and whole[1] == {"loss": 20}


def test_a_damaged_record_is_named_and_the_next_command_continues_the_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", "")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_loss(tmp_path, 1.0, 0, 10)
    record = tmp_path / "wandb" / "maze_pl.json"
    record.write_bytes(record.read_bytes()[:9])
    with caplog.at_level("INFO"):
        for value, step in ((2.0, 20), (3.0, 30)):
            log_loss(tmp_path, value, step - 10, step)
    (message,) = [entry.getMessage() for entry in caplog.records if "maze_pl.json" in entry.getMessage()]
    assert message.endswith(f"it is now {record.with_name('maze_pl.1.json')}") and "damaged" in message
    assert sorted(ids_of(tmp_path).values()) == [[1.0], [2.0, 3.0]]
