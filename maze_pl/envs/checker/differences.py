"""Differences between what two environments have returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from maze_pl.core.episode import EpisodeSummary
from maze_pl.envs.structured_env import Array


def content_of(summary: EpisodeSummary) -> dict[str, Any]:
    """Content of a summary, by names for messages."""
    content: dict[str, Any] = {"episode length": summary.env_steps, "episode return": summary.reward}
    content |= {f"KPI {name!r}": value for name, value in sorted(summary.kpis.items())}
    for (topic, event, statistic, groups), value in {**summary.statistics, **summary.samples}.items():
        name = "/".join(part for part in (topic, event, statistic, *groups) if part is not None)
        content[f"statistic {name!r}"] = asdict(value) if is_dataclass(value) else value
    return content


def differences(one: Any, other: Any, where: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Differences of two trees of dicts, sequences, arrays and primitives, each with its place."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in [*one, *(name for name in other if name not in one)]:
            place = f"{where} {name!r}" if where else str(name)
            yield from differences(one.get(name, "nothing"), other.get(name, "nothing"), place)
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{where}[{index}]")
    elif isinstance(one, str) or isinstance(other, str) or one is None or other is None:
        if not (isinstance(one, str | None) and isinstance(other, str | None) and one == other):
            yield where, (one, other)
    else:
        left, right = np.asarray(one), np.asarray(other)
        if left.shape != right.shape:
            yield f"{where}, its shape", (str(left.shape), str(right.shape))
        else:
            index_of = first_difference(left, right)
            if index_of is not None:
                inner = f"[{', '.join(map(str, index_of))}]" if index_of else ""
                yield f"{where}{inner}", (left[index_of], right[index_of])


def first_difference(one: Array, other: Array) -> tuple[int, ...] | None:
    """Index of the first element in which two arrays of the same shape differ; NaN equals NaN."""
    is_different = np.asarray(one != other)
    if not is_different.any():
        return None
    if one.dtype.kind == "f":
        is_different &= ~(np.isnan(one) & np.isnan(other))
    places = np.argwhere(is_different)
    return tuple(int(place) for place in places[0]) if len(places) else None
