"""Reads the file of an offline run: records of protocol buffers in the log format of LevelDB."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = 32768
_FULL, _LAST = 1, 4


@dataclass
class OfflineRun:
    """What a file holds.

    Attributes:
        run_id: Id of the run.
        config: Its configuration, by the first part of the name.
        metrics: Name or glob of a metric -> name of its x axis.
        history: The rows that were logged, nested names joined by dots.
        summary: The values of its summary.
        exit_code: As the run ended; None if it did not.
    """

    run_id: str = ""
    project: str = ""
    group: str = ""
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read(path: Path) -> OfflineRun:
    from wandb.proto import wandb_internal_pb2

    run = OfflineRun()
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.run_id, run.project = record.run.run_id, record.run.project
            run.group, run.name = record.run.run_group, record.run.display_name
            run.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "config":
            run.config |= {
                ".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.config.update
            }
        elif kind == "metric":
            run.metrics[record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "history":
            items = record.history.item
            run.history.append({".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
        elif kind == "summary":
            items = record.summary.update
            run.summary |= {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def read_finished(path: Path) -> OfflineRun:
    """What the file of a run holds that has ended; the process that writes it may be a moment behind."""
    deadline = time.monotonic() + 60
    while (run := read(path)).exit_code is None:
        assert time.monotonic() < deadline, f"{path} has no end"
        time.sleep(0.05)
    return run


def _records(data: bytes) -> Iterator[bytes]:
    assert data.startswith(b":W&B")
    position, parts = 7, b""
    while position + 7 <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        if position + 7 + length > len(data):  # it is being written
            return
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (_FULL, _LAST):
            yield parts
            parts = b""
