"""Published instances by name, and sources of instances from their descriptions."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from maze_pl.envs.job_shop.formats import parse_job_shop, read_instance
from maze_pl.envs.job_shop.instance import JobShopInstance
from maze_pl.envs.job_shop.instance_source import FixedInstance, InstanceSource
from maze_pl.envs.job_shop.random_instances import RandomInstances
from maze_pl.envs.job_shop.taillard import taillard_instance

_FOLDER = resources.files("maze_pl.envs.job_shop") / "instances"
_SPAN = re.compile(r"([a-z]+)(\d+)-\1(\d+)")
_KNOWN = "ft06, ft10, ft20, la01 to la40, ta01 to ta80"


@functools.cache
def best_known() -> dict[str, tuple[int, int]]:
    """Lower bound and best known makespan of each published instance, by its name.

    Both are equal if the makespan is proved to be optimal. The file names its source.
    """
    text = (_FOLDER / "best_known.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    table = {}
    for row in csv.DictReader(lines):
        table[row["name"]] = int(row["lower_bound"]), int(row["best_known"])
    return table


@functools.cache
def published_instance(name: str) -> JobShopInstance:
    """Return a published instance: ft06, ft10, ft20, la01 to la40 or ta01 to ta80.

    Args:
        name: Name of the instance.

    Raises:
        ValueError: There is no instance of this name.

    Example:
        >>> ft06 = published_instance("ft06")
        >>> ft06.n_jobs, ft06.n_machines, ft06.best_known
        (6, 6, 55)
    """
    bounds = best_known().get(name)
    if bounds is None:
        raise ValueError(f"there is no instance {name!r}; published instances are {_KNOWN}")
    if name.startswith("ta"):
        return taillard_instance(int(name[2:]), *bounds)
    instance = parse_job_shop((_FOLDER / f"{name}.txt").read_text(encoding="utf-8"), name)
    return replace(instance, lower_bound=bounds[0], best_known=bounds[1])


def instance_sources(
    descriptions: Sequence[str | Path | JobShopInstance | InstanceSource],
) -> list[InstanceSource]:
    """Make sources of instances from their descriptions.

    Args:
        descriptions: Names of published instances, spans of them such as `ta01-ta10`,
            descriptions of random ones such as `random(15x15)`, files, instances, or sources.

    Raises:
        ValueError: There is no description, or one of them is wrong.

    Example:
        >>> len(instance_sources(["ft06", "ta01-ta10", "random(15x15)"]))
        12
    """
    if isinstance(descriptions, str | Path):
        came = f"instances={str(descriptions)!r} is a text"
        raise ValueError(f"{came}; write a list, [{descriptions}]")
    sources: list[InstanceSource] = []
    for description in descriptions:
        if isinstance(description, InstanceSource):
            sources.append(description)
        elif isinstance(description, JobShopInstance):
            sources.append(FixedInstance(description))
        elif isinstance(description, Path):
            sources.append(FixedInstance(read_instance(description)))
        else:
            sources += _named_sources(description)
    if not sources:
        raise ValueError(f"there are no instances; name at least one, such as random(10x10) or one of {_KNOWN}")
    return sources


def _named_sources(text: str) -> list[InstanceSource]:
    """Sources of a name, a span of names, a description of random instances or a file."""
    if text.startswith("random(") or (text.startswith("random") and not Path(text).is_file()):
        return [RandomInstances.parse(text)]
    span = _SPAN.fullmatch(text)
    if span is not None:
        prefix, first, last = span.groups()
        names = [f"{prefix}{number:02d}" for number in range(int(first), int(last) + 1)]
        if not names:
            raise ValueError(f"{text!r} is an empty span; write the smaller number first")
        return [FixedInstance(published_instance(name)) for name in names]
    if text in best_known():
        return [FixedInstance(published_instance(text))]
    if not Path(text).exists():
        raise ValueError(f"{text!r} is neither a file nor a published instance ({_KNOWN}) nor random(JOBSxMACHINES)")
    return [FixedInstance(read_instance(text))]
