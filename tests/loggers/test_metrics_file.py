from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, LearningRateMonitor

from maze_pl.callbacks import MetricsFile


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert float(row.pop("time_wall_clock")) >= 0
    return rows


def test_values_of_one_step_share_a_row_and_new_names_become_columns(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path / "run"))
    metrics.log_metrics({"train/a": 1.0}, step=10)
    metrics.log_metrics({"eval/b": torch.tensor(2.5)}, step=10)
    metrics.log_metrics({"train/a": 3}, step=20)
    metrics.log_metrics({"train/a": 4, "eval/c": 1e-9}, step=30)
    assert read(tmp_path / "run") == [
        {"step": "10", "train/a": "1.0", "eval/b": "2.5", "eval/c": ""},
        {"step": "20", "train/a": "3", "eval/b": "", "eval/c": ""},
        {"step": "30", "train/a": "4", "eval/b": "", "eval/c": "1e-09"},
    ]


def test_a_shorter_value_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 123456.789, "b": 1}, step=1)
    metrics.log_metrics({"a": 1}, step=1)
    assert read(tmp_path) == [{"step": "1", "a": "1", "b": "1"}]


def test_a_resumed_run_goes_on_and_rows_that_it_will_write_again_are_dropped(tmp_path: Path) -> None:
    first = MetricsFile(str(tmp_path))
    for step in (10, 20, 30):
        first.log_metrics({"a": step, "b": 1}, step=step)
    resumed = MetricsFile(str(tmp_path))
    resumed.log_metrics({"a": 200}, step=20)
    resumed.log_metrics({"c": 2}, step=20)
    assert [(row["step"], row["a"], row["b"], row["c"]) for row in read(tmp_path)] == [
        ("10", "10", "1", ""),
        ("20", "200", "", "2"),
    ]


def test_steps_beyond_single_precision_stay_exact(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 1}, step=2**24 + 1)
    assert read(tmp_path)[0]["step"] == "16777217"


class Counting(pl.LightningModule):
    """Counts ten env steps in a batch, and logs what it counted after each epoch and evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.env_steps = 0

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.env_steps += 10

    def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    def on_train_epoch_end(self) -> None:
        self.loggers[0].log_metrics({"train/a": float(self.env_steps)}, step=self.env_steps)

    def on_validation_epoch_end(self) -> None:
        self.loggers[0].log_metrics({"eval/a": float(-self.env_steps)}, step=self.env_steps)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["env_steps"] = self.env_steps

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.env_steps = checkpoint["env_steps"]


class Save(Callback):
    """Writes a checkpoint after each epoch."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir, f"{trainer.current_epoch + 1}.ckpt"))


def make_trainer(folder: Path, max_epochs: int, *callbacks: Callback, metrics: MetricsFile | None = None) -> pl.Trainer:
    return pl.Trainer(
        default_root_dir=folder,
        max_epochs=max_epochs,
        callbacks=[Save(), *callbacks],
        logger=metrics or MetricsFile(str(folder)),
        accelerator="cpu",
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def train(folder: Path, max_epochs: int, length: int, ckpt_path: Path | None = None, **options: Any) -> None:
    trainer = make_trainer(folder, max_epochs, LearningRateMonitor(), **options)
    batches: Any = [0] * length
    trainer.fit(Counting(), batches, [0], ckpt_path=ckpt_path, weights_only=True)


def expected(*epochs: tuple[int, int]) -> list[dict[str, str]]:
    """Rows of epochs of (number of batches, env steps at the end); the rate of a batch is logged before it."""
    rows: dict[int, dict[str, str]] = {}
    for length, end in epochs:
        for step in range(end - 10 * length, end + 10, 10):
            rows.setdefault(step, {"step": str(step), "lr-SGD": "", "train/a": "", "eval/a": ""})
            rows[step]["lr-SGD"] = "0.5"
        rows[end] |= {"lr-SGD": "", "train/a": f"{end}.0", "eval/a": f"-{end}.0"}
    return list(rows.values())


def test_values_of_lightnings_callbacks_are_in_the_rows_of_their_env_steps(tmp_path: Path) -> None:
    train(tmp_path, 3, 2)
    assert read(tmp_path) == expected((2, 20), (2, 40), (2, 60))


def test_a_resumed_run_drops_what_lies_beyond_its_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    train(tmp_path, 3, 2)
    train(tmp_path, 4, 3, tmp_path / "2.ckpt")  # rows from 50 to 60 are those of other epochs
    assert read(tmp_path) == expected((2, 20), (2, 40), (3, 70), (3, 100))


def test_one_object_may_log_a_run_and_the_run_that_continues_it(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    train(tmp_path, 3, 2, metrics=metrics)
    train(tmp_path, 3, 2, tmp_path / "1.ckpt", metrics=metrics)
    assert read(tmp_path) == expected((2, 20), (2, 40), (2, 60))


def test_an_evaluation_of_an_earlier_checkpoint_drops_no_row(tmp_path: Path) -> None:
    train(tmp_path, 3, 2)
    rows = read(tmp_path)
    trainer = make_trainer(tmp_path, 3)
    trainer.validate(Counting(), [0], ckpt_path=tmp_path / "1.ckpt", verbose=False, weights_only=True)
    assert read(tmp_path) == [*rows, {"step": "20", "lr-SGD": "", "train/a": "", "eval/a": "-20.0"}]


def test_a_new_run_keeps_the_file_of_another_one_under_another_name(tmp_path: Path) -> None:
    earlier = []
    for _ in range(2):
        train(tmp_path, 2, 2)
        earlier.append((tmp_path / "metrics.csv").read_bytes())
    train(tmp_path, 1, 3)
    assert read(tmp_path) == expected((3, 30))
    assert [(tmp_path / f"metrics.{number}.csv").read_bytes() for number in (1, 2)] == earlier


def test_a_run_that_starts_again_in_its_run_directory_replaces_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    train(tmp_path, 2, 2)
    train(tmp_path, 1, 3)
    assert read(tmp_path) == expected((3, 30))
    assert list(tmp_path.glob("metrics*")) == [tmp_path / "metrics.csv"]


@pytest.mark.parametrize("name", ["a\u2028b", "a\x1cb", "a\x85b", "a\nb", 'a",b'])
def test_any_name_of_a_value_survives_further_columns(tmp_path: Path, name: str) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({name: 1.5}, step=1)
    metrics.log_metrics({name: 2.5, "c": 3}, step=2)
    with (tmp_path / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = [{key: row[key] for key in ("step", name, "c")} for row in csv.DictReader(file)]
    assert rows == [{"step": "1", name: "1.5", "c": ""}, {"step": "2", name: "2.5", "c": "3"}]


CONTENT = b"step,a,time_wall_clock\r\n10,1.0,2.5\r\n20,173250.0,5.0\r\n"


@pytest.mark.parametrize("n_lost", [*range(2, 14)])
def test_half_a_last_row_never_becomes_a_row(tmp_path: Path, n_lost: int) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(CONTENT[:-n_lost])
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 7}, step=30)
    metrics.log_metrics({"b": 8}, step=30)
    assert [(row["step"], row["a"], row["b"]) for row in read(tmp_path)] == [("10", "1.0", ""), ("30", "7", "8")]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + CONTENT, CONTENT + b"\0\0\0", CONTENT.replace(b"\r", b"")])
def test_marks_of_spreadsheets_and_zeros_of_a_power_failure_do_no_harm(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    MetricsFile(str(tmp_path)).log_metrics({"a": 7}, step=30)
    assert [(row["step"], row["a"]) for row in read(tmp_path)] == [("10", "1.0"), ("20", "173250.0"), ("30", "7")]
    assert len(list(tmp_path.iterdir())) == 1


def test_steps_that_another_program_has_written_as_fractions_are_understood(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_bytes(b"step,a,time_wall_clock\n10.0,1,0\n20.0,2,0\n")
    MetricsFile(str(tmp_path)).log_metrics({"a": 7}, step=20)
    assert read(tmp_path) == [{"step": "10.0", "a": "1"}, {"step": "20", "a": "7"}]


DAMAGED = {
    b"\xff\xfe\n": "is damaged: 'utf-8' codec can't decode",
    b"step,a\n10,1.0,1.5\n": "is damaged: line 2 has 3 values for 2 columns",
    b"step,a\n10\n20,1.0\n": "is damaged: line 2 has 1 values for 2 columns",
    b"step,a\n10,1.0\n\0\0\0,2\n": "is damaged: line 3 has",
    b'step,a\n10,"1.0"3\n': "is damaged: ',' expected after",
    b"[]\n": "has no metrics of maze_pl: its first line must name",
    b"step;a\n10;1\n": "has no metrics of maze_pl: its first line must name",
    b"no table": "is damaged: its first line is incomplete",
}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_put_aside_before_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("MAZE_PL_RUN_DIR", str(tmp_path))
    said: list[str] = []
    monkeypatch.setattr("maze_pl.loggers.log_folder.rank_zero_info", said.append)
    (tmp_path / "metrics.csv").write_bytes(content)
    metrics = MetricsFile(str(tmp_path))
    metrics.log_graph(torch.nn.Identity())
    kept = tmp_path / "metrics.1.csv"
    assert list(tmp_path.iterdir()) == [kept] and kept.read_bytes() == content
    assert len(said) == 1
    assert said[0].startswith(f"{tmp_path}/metrics.csv {DAMAGED[content]}") and said[0].endswith(f"; it is now {kept}")
    metrics.log_metrics({"a": 7}, step=30)
    assert read(tmp_path) == [{"step": "30", "a": "7"}]


class Listing(Callback):
    """Names of the files of a folder at the first batch."""

    names: list[str] | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self.names is None:
            self.names = sorted(path.name for path in Path(trainer.default_root_dir).iterdir())


def test_a_resumed_run_with_a_damaged_file_goes_on(tmp_path: Path) -> None:
    train(tmp_path, 1, 2)
    path = tmp_path / "metrics.csv"
    damaged = path.read_bytes() + b"\0\0\n"
    path.write_bytes(damaged)
    listing = Listing()
    batches: Any = [0, 0, 0]
    make_trainer(tmp_path, 2, listing).fit(Counting(), batches, [0], ckpt_path=tmp_path / "1.ckpt", weights_only=True)
    assert listing.names == ["1.ckpt", "metrics.1.csv"]
    assert [row["step"] for row in read(tmp_path)] == ["50"]
    assert (tmp_path / "metrics.1.csv").read_bytes() == damaged


def test_a_file_that_is_damaged_while_a_run_writes_it_does_not_end_the_run(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": 1}, step=10)
    (tmp_path / "metrics.csv").write_bytes(b"[]\n")
    metrics.log_metrics({"b": 2}, step=20)
    assert read(tmp_path) == [{"step": "20", "a": "", "b": "2"}]


def test_a_folder_in_its_place_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        MetricsFile(str(tmp_path)).log_graph(torch.nn.Identity())


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    metrics = MetricsFile(str(tmp_path))
    metrics.log_metrics({"a": True, "b": float("nan"), "c": float("-inf")}, step=10)
    metrics.log_metrics({"d": 1}, step=20)
    assert [(row["a"], row["b"], row["c"], row["d"]) for row in read(tmp_path)] == [
        ("1", "nan", "-inf", ""),
        ("", "", "", "1"),
    ]
