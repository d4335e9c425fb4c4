"""Event files of TensorBoard: complete, still being written, and damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard import SummaryWriter

import maze_pl
from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.event_files import read_scalars

Points = dict[str, list[tuple[int, float]]]


def write_log(folder: Path, steps: range, restart: int | None = None) -> Path:
    """Write an event file of a folder, of a run that has restarted at a step if one is given."""
    before = set(folder.glob("*"))
    with SummaryWriter(str(folder), filename_suffix=f".{len(before)}") as writer:
        if restart is not None:
            start = SessionLog(status=SessionLog.START)
            writer._get_file_writer().add_event(Event(step=restart, session_log=start))
        for step in steps:
            writer.add_scalar("a", step / 3, step)
            if step % 2:
                writer.add_scalar("b/c", -step, step)
                writer.add_text("text", "nothing to read here", step)
    (file,) = set(folder.glob("*")) - before
    second = 1_000_000_000 + len(before)  # TensorBoard orders files by the seconds in their names
    return file.rename(folder / f"events.out.tfevents.{second}.host")


def by_tensorboard(folder: Path) -> Points:
    """Points according to TensorBoard's own reader."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_points_are_those_of_tensorboard_also_after_restarts(tmp_path: Path) -> None:
    files = [write_log(tmp_path, range(8)), write_log(tmp_path, range(5, 12), 5), write_log(tmp_path, range(3, 6), 3)]
    points = read_scalars(files)
    assert points == by_tensorboard(tmp_path)
    assert [step for step, _ in points["a"]] == [0, 1, 2, 3, 4, 5]
    assert [value for _, value in points["b/c"]] == [-1, -3, -5]


def test_files_of_the_same_second_are_read_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    for counter, steps in ((9, range(8)), (10, range(5, 7))):
        file = write_log(tmp_path, steps, steps.start)
        file.rename(tmp_path / f"events.out.tfevents.1000000000.host.{counter}")
    assert maze_pl.tensorboard_to_dataframe(tmp_path).index.tolist() == [*range(7)]


def test_an_incomplete_last_record_is_left_out(tmp_path: Path) -> None:
    file = write_log(tmp_path, range(3))
    content = file.read_bytes()
    lengths = set()
    for n_bytes in range(1, len(content) + 1, 5):
        file.write_bytes(content[:n_bytes])
        points = read_scalars([file])
        assert points == by_tensorboard(tmp_path)
        lengths.add(len(points.get("a", [])))
    assert {0, 1, 2} <= lengths
    file.write_bytes(content + bytes(1000))  # after a power failure
    assert len(read_scalars([file])["a"]) == 3


def test_each_byte_that_changes_is_found(tmp_path: Path) -> None:
    file = write_log(tmp_path, range(1))
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 8]) + content[place + 1 :])
        with pytest.raises(ConfigurationError, match="is damaged after"):
            read_scalars([file])


def test_a_damaged_file_among_others_is_named(tmp_path: Path) -> None:
    file, _ = write_log(tmp_path, range(8)), write_log(tmp_path, range(5, 12), 5)
    content = file.read_bytes()
    file.write_bytes(content[:-100] + b"?" + content[-99:])
    message = f"the event file {file} is damaged after"
    for path in (tmp_path, file):
        with pytest.raises(ConfigurationError, match=message):
            maze_pl.tensorboard_to_dataframe(path)
    file.unlink()
    assert maze_pl.tensorboard_to_dataframe(tmp_path).index.tolist() == [*range(5, 12)]


def test_what_is_not_an_event_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,a\n10,1.0\n")
    with pytest.raises(ConfigurationError, match=r"metrics.csv is damaged after 0 bytes"):
        maze_pl.tensorboard_to_dataframe(tmp_path / "metrics.csv")


def test_numbers_without_a_finite_value_are_kept(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("a", math.inf, 1)
        writer.add_scalar("a", math.nan, 2)
    frame = maze_pl.tensorboard_to_dataframe(tmp_path)
    assert frame["a"].isna().tolist() == [False, True] and frame["a"][1] == math.inf
