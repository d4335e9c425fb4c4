"""Sources of instances from their descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from maze_pl.envs.vehicle_routing.formats import read_instance
from maze_pl.envs.vehicle_routing.instance import RoutingInstance
from maze_pl.envs.vehicle_routing.instance_source import FixedInstance, InstanceSource
from maze_pl.envs.vehicle_routing.random_instances import RandomInstances


def instance_sources(
    descriptions: Sequence[str | Path | RoutingInstance | InstanceSource],
) -> list[InstanceSource]:
    """Make sources of instances from their descriptions.

    Args:
        descriptions: Descriptions of random instances such as `random(50)`, files, instances, or
            sources.

    Raises:
        ValueError: There is no description, or one of them is wrong.

    Example:
        >>> len(instance_sources(["random(20)", "random(50)"]))
        2
    """
    if isinstance(descriptions, str | Path):
        came = f"instances={str(descriptions)!r} is a text"
        raise ValueError(f"{came}; write a list, [{descriptions}]")
    sources: list[InstanceSource] = []
    for description in descriptions:
        if isinstance(description, InstanceSource):
            sources.append(description)
        elif isinstance(description, RoutingInstance):
            sources.append(FixedInstance(description))
        elif isinstance(description, Path):
            sources.append(FixedInstance(read_instance(description)))
        elif description.startswith("random(") or (
            description.startswith("random") and not Path(description).is_file()
        ):
            sources.append(RandomInstances.parse(description))
        elif Path(description).exists():
            sources.append(FixedInstance(read_instance(description)))
        else:
            raise ValueError(f"{description!r} is neither a file nor random(CUSTOMERS), such as random(50)")
    if not sources:
        raise ValueError("there are no instances; name at least one, such as random(50), or a file")
    return sources
