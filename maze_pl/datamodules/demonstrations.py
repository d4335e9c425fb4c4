"""Demonstrations for replay: acts of recorded episodes with their outcomes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Array
from maze_pl.core.spaces import mapped
from maze_pl.core.spec import Spec
from maze_pl.datasets import (
    IdentityTrajectoryProcessor,
    IdentityWithNextObservationTrajectoryProcessor,
    TrajectoryProcessor,
)
from maze_pl.datasets.in_memory_dataset import InMemoryDataset
from maze_pl.records.columns import Columns

_PLAIN: tuple[type[TrajectoryProcessor], ...]
_PLAIN = (IdentityTrajectoryProcessor, IdentityWithNextObservationTrajectoryProcessor)


def demonstrated_acts(
    dataset: InMemoryDataset, gamma: float, make_env: Callable[[], Any], spec: Spec
) -> Iterator[tuple[StepKey, Columns, Array | None]]:
    """Read demonstrations, and yield the acts of each sub-step.

    Args:
        dataset: Recorded episodes that were not read yet.
        gamma: Discount of one environment step.
        make_env: Makes the environment whose wrappers process the observations.
        spec: Specification of the environment.

    Yields:
        Step key, fields of a `TransitionBatch` of n acts, and the number of acts of each episode; None if
        successors of acts are unknown.

    Raises:
        ValueError: The trajectory processor of the dataset makes no next observations.
    """
    is_plain = type(dataset.processor) in _PLAIN
    if is_plain:
        dataset.processor = IdentityWithNextObservationTrajectoryProcessor(gamma)
    dataset.load(make_env, spec)
    acts = dataset.batch(torch.arange(len(dataset))).acts
    for (key, transitions), lengths in zip(acts.items(), dataset.lengths.T, strict=True):
        columns = mapped(Tensor.numpy, vars(transitions))
        if any(columns[name] is None for name in ("next_observation", "reward", "discount")):
            whose = f"demonstrations by {type(dataset.processor).__name__}"
            raise ValueError(f"{whose} hold no next observations: leave out trajectory_processor")
        # other processors may leave out acts, so that successors are unknown
        yield key, columns, lengths if is_plain else None
