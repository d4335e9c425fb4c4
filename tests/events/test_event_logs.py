from __future__ import annotations

import ast
import csv
import errno
import importlib.util
import io
import mmap
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from maze_pl.events import EventLogFiles
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.deferred_files import deferred_files
from tests.events.yard import yard


def read(folder: Path, name: str) -> pd.DataFrame:
    deferred_files().flush()
    path = folder / f"{name}.parquet"
    return pd.read_parquet(path) if path.exists() else pd.read_csv(folder / f"{name}.csv")


COLUMNS = ["episode_id", "episode_started", "env_time"]
FORMATS = pytest.mark.parametrize("format", ["csv", "parquet"])


@FORMATS
def test_each_kind_of_event_has_a_file_with_its_attributes_as_columns(tmp_path: Path, format: Any) -> None:
    before = time.time()
    writer = EventLogFiles(str(tmp_path), format)
    events, context = yard(writer)
    cargo = [1, 2]
    events.arrived('a, "b"\nc', 1.5, cargo=cargo)
    cargo.append(3)
    context.env_time = 1
    events.arrived(lorry="d", weight=np.float32(0.5), axles=np.int64(3), cargo=np.array([[1.0, 2.0]]), late=True)
    events.left()
    writer.close()
    frame = read(tmp_path, "YardEvents.arrived")
    assert frame.columns.tolist() == [*COLUMNS, "lorry", "weight", "axles", "cargo", "late"]
    assert (before <= frame["episode_started"]).all()
    assert (frame["episode_started"] <= time.time()).all()
    assert frame["episode_id"].tolist() == [context.episode_id] * 2
    assert frame["env_time"].tolist() == [0, 1]
    assert frame["lorry"].tolist() == ['a, "b"\nc', "d"]
    assert frame["weight"].tolist() == [1.5, 0.5]
    assert frame["axles"].tolist() == [2, 3]
    assert frame["late"].tolist() == [False, True]
    assert [ast.literal_eval(text) for text in frame["cargo"]] == [[1, 2], [[1.0, 2.0]]]
    assert [frame[name].dtype.kind for name in ("env_time", "weight", "axles", "late")] == ["i", "f", "i", "b"]
    assert read(tmp_path, "YardEvents.left")["env_time"].tolist() == [1]
    assert len(list(tmp_path.iterdir())) == 2


@FORMATS
def test_numbers_of_torch_are_numbers(tmp_path: Path, format: Any) -> None:
    writer = EventLogFiles(str(tmp_path), format)
    events, _ = yard(writer)
    cargo = torch.tensor([1, 2])
    events.arrived("a", torch.tensor(0.5), axles=torch.tensor(3), cargo=cargo, late=torch.tensor(True))
    cargo += 1
    events.arrived("b", torch.tensor(2.0, dtype=torch.bfloat16), cargo=torch.tensor(7.5, requires_grad=True))
    writer.close()
    frame = read(tmp_path, "YardEvents.arrived")
    assert frame["weight"].tolist() == [0.5, 2.0]
    assert frame["axles"].tolist() == [3, 2]
    assert frame["late"].tolist() == [True, False]
    assert frame["cargo"].tolist() == ["[1, 2]", "7.5"]
    assert [frame[name].dtype.kind for name in ("weight", "axles", "late")] == ["f", "i", "b"]


@FORMATS
def test_attributes_named_like_the_first_columns_keep_their_own(tmp_path: Path, format: Any) -> None:
    writer = EventLogFiles(str(tmp_path), format)
    events, _ = yard(writer)
    events.renamed(episode_id=7, env_time="noon")
    writer.close()
    frame = read(tmp_path, "YardEvents.renamed")
    assert frame.columns.tolist() == [*COLUMNS, "episode_id_", "env_time_"]
    assert frame.iloc[0, 3:].tolist() == [7, "noon"]


@FORMATS
def test_missing_values_are_missing_in_every_part(tmp_path: Path, format: Any) -> None:
    writer = EventLogFiles(str(tmp_path), format)
    writer.n_rows = 1
    events, _ = yard(writer)
    for weight in (None, 2.0, 3):
        events.arrived("a", weight)
    frame = read(tmp_path, "YardEvents.arrived")
    assert frame["weight"].fillna(-1.0).tolist() == [-1.0, 2.0, 3.0]
    assert frame["cargo"].isna().all()


def test_rows_are_written_when_an_episode_ends_and_when_there_are_enough(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path))
    writer.n_rows = 3
    events, _ = yard(writer)
    events.left()
    assert list(tmp_path.iterdir()) == []
    writer.end_episode()
    assert len(read(tmp_path, "YardEvents.left")) == 1
    for _ in range(3):
        events.left()
    assert len(read(tmp_path, "YardEvents.left")) == 4


def test_parts_are_not_made_smaller_by_the_end_of_an_episode(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path), "parquet")
    writer.n_rows = 2
    events, _ = yard(writer)
    for n_parts in (0, 1, 1, 2):
        events.left()
        writer.end_episode()
        deferred_files().flush()
        assert len(list(tmp_path.rglob("*.parquet"))) == (n_parts + 1 if n_parts else 0)
    assert len(read(tmp_path, "YardEvents.left")) == 4


@FORMATS
def test_several_environments_and_later_ones_share_the_files(tmp_path: Path, format: Any) -> None:
    for seeds in ([0, 1], [2]):
        writers = [EventLogFiles(str(tmp_path), format) for _ in seeds]
        sources = [yard(writer, seed) for writer, seed in zip(writers, seeds, strict=True)]
        for _ in range(3):
            for events, _ in sources:
                events.left()
        for writer in writers:
            writer.close()
    frame = read(tmp_path, "YardEvents.left")
    assert len(frame) == 9
    assert frame.groupby("episode_id").size().tolist() == [3, 3, 3]


def test_a_copy_does_not_write_the_same_rows_again(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path))
    events, _ = yard(writer)
    events.left()
    copy = pickle.loads(pickle.dumps(events))
    copy.left()
    copy._pubsub.subscribers[0].close()
    writer.close()
    assert len(read(tmp_path, "YardEvents.left")) == 2


def test_what_does_not_belong_into_logs_is_left_out(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path))
    events, context = yard(writer)
    context.is_logged = False
    events.left()
    context.is_logged = True
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_no_row_crosses_the_border_of_a_page_where_a_killed_process_could_leave_half_of_it(tmp_path: Path) -> None:
    for seed in range(3):
        writer = EventLogFiles(str(tmp_path))
        writer.n_rows = 40
        events, _ = yard(writer, seed)
        for number in range(100):
            events.arrived("a, b" * (number % 7), float(number))
        writer.close()
    content = (tmp_path / "YardEvents.arrived.csv").read_bytes()
    assert len(content) > 5 * mmap.PAGESIZE
    for end in range(mmap.PAGESIZE, len(content), mmap.PAGESIZE):
        assert content[end - 1 : end] == b"\n"
        frame = pd.read_csv(io.BytesIO(content[:end]))
        assert frame["weight"].tolist() == [float(number) for _ in range(3) for number in range(100)][: len(frame)]
    assert len(read(tmp_path, "YardEvents.arrived")) == 300


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "YardEvents.left.csv").write_text("episode_id,time\n", encoding="utf-8")
    writer = EventLogFiles(str(tmp_path))
    events, _ = yard(writer)
    events.left()
    with pytest.raises(ValueError, match=r"YardEvents.left.csv has columns other than \['episode_id', .*'env_time'\]"):
        writer.close()


def test_zeros_in_place_of_the_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "YardEvents.left.csv"
    content = bytes(200) + b"e,1.5,3\n"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="has columns other than"):
        EventLogFiles(str(tmp_path)).append("YardEvents.left", dict.fromkeys(COLUMNS, "str"), [("e", 1.5, 3)])
    assert path.read_bytes() == content


def test_half_a_row_that_a_power_failure_has_left_is_not_completed_by_the_next_row(tmp_path: Path) -> None:
    columns = {"episode_id": "str", "episode_started": "float", "env_time": "int", "note": "str"}
    rows = [("e", 1.5, 3, "plain"), ("e", 1.5, 4, 'two\nlines, "quoted"\n'), ("e", 1.5, 5, "last")]
    files = EventLogFiles(str(tmp_path))
    path = tmp_path / "YardEvents.noted.csv"
    files.append("YardEvents.noted", columns, rows)
    content = path.read_bytes()
    with path.open(newline="") as file:
        expected = [*csv.reader(file)]
    for n_bytes in range(len(content) + 1):
        if content[:n_bytes].count(b'"') % 2 and content[n_bytes - 1 : n_bytes] == b"\n":
            continue  # it looks complete
        path.write_bytes(content[:n_bytes] + bytes(n_bytes % 2))
        files.append("YardEvents.noted", columns, rows[2:])
        with path.open(newline="") as file:
            found = [*csv.reader(file)]
        assert found[:-1] == expected[: len(found) - 1]
        assert found[-1] == expected[-1] and len(found) >= 2


def test_an_attribute_that_is_not_what_it_is_declared_as_is_named(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path), "parquet")
    events, _ = yard(writer)
    events.arrived("a", 1.0, axles=2.5)
    with pytest.raises(TypeError, match=r"YardEvents.arrived: the attribute 'axles' is declared as int: .*2\.5"):
        writer.close()


def test_a_missing_package_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    EventLogFiles(str(tmp_path))
    with pytest.raises(ImportError, match=r"pip install 'maze-pl\[parquet\]'"):
        EventLogFiles(str(tmp_path), "parquet")


def test_a_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="format='xml' must be 'csv' or 'parquet'"):
        EventLogFiles(format="xml")  # type: ignore[arg-type]


def test_a_full_disk_leaves_whole_rows(tmp_path: Path) -> None:
    writer = EventLogFiles(str(tmp_path))
    writer.n_rows = 10
    events, _ = yard(writer)
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, former[1]))
    try:
        with pytest.raises(OSError, match=r"YardEvents.left.csv cannot be written: File too large") as raised:
            for _ in range(100):
                events.left()
        assert raised.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert len(read(tmp_path, "YardEvents.left")) == 20
    assert (tmp_path / "YardEvents.left.csv").read_bytes().endswith(b",0\n")


def test_a_relative_folder_lies_in_the_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    assert EventLogFiles("logs").folder == tmp_path / "logs"
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    assert EventLogFiles("logs").folder == Path("logs")


WRITE_FOR_EVER = """
import sys
from maze_pl.events import EventLogFiles
from tests.events.yard import yard
writer = EventLogFiles(sys.argv[1], sys.argv[2])
writer.n_rows = 200
events, _ = yard(writer, int(sys.argv[3]))
for number in range(10**9):
    events.arrived("lorry, with a comma", float(number))
"""


@FORMATS
@pytest.mark.slow
def test_files_of_several_processes_are_whole_when_these_are_killed(tmp_path: Path, format: str) -> None:
    commands = [[sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path), format, str(seed)] for seed in range(2)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        while len({*episodes(tmp_path)}) < 2:
            assert all(process.poll() is None for process in processes)
            time.sleep(0.05)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    frame = read(tmp_path, "YardEvents.arrived")
    assert frame.isna().sum().sum() == len(frame)  # of cargo alone
    for _, rows in frame.groupby("episode_id"):
        assert rows["weight"].tolist() == list(range(len(rows)))
        assert format == "csv" or len(rows) % 200 == 0


def episodes(folder: Path) -> list[str]:
    """Episodes of which there are rows, also while somebody writes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    if not any(path.stat().st_size for path in files):
        return []
    return list(read(folder, "YardEvents.arrived")["episode_id"].unique())
