"""Batches of actors name their environments without reading from the device or copying to it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.core.batches import Rollout
from maze_pl.core.rows import Rows
from maze_pl.datamodules import ActorDataModule
from tests.datamodules.drift import Drift
from tests.datamodules.probe import fit
from tests.devices import NoHostReads

pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"actors_batch_size": 2}, [None, None]),
        ({"actors_batch_size": 4}, [[0, 1, 2, 3, 0, 1, 2, 3]] * 2),
        ({"actors_batch_size": 1, "queue_out_of_sync_factor": 2}, [[0, 1], [2, 3]]),
    ],
    ids=str,
)
def test_environments_are_numbered_unless_each_actor_is_there_once_in_order(
    options: dict[str, Any], expected: list[list[int] | None]
) -> None:
    shared: dict[str, Any] = {"n_rollout_steps": 5, "epoch_length": 2, "seed": 3, "evaluators": {}}
    data = ActorDataModule(partial(Drift, None), num_actors=2, n_envs_per_actor=2, **shared, **options)
    found = []
    for rollout in fit(data).rollouts:
        found.append(None if rollout.env_index is None else rollout.env_index.tolist())
    assert found == expected
    with NoHostReads():
        numbers = data._env_index([1, 0])
    assert numbers.tolist() == [2, 3, 0, 1]


def test_numbers_of_environments_stay_on_the_host_which_reads_them() -> None:
    zeros = torch.zeros(2, 3)
    rows = Rows(*[zeros] * 9)
    moved = Rollout(rows, {}, {}, 2, True, env_index=torch.arange(3)).to("meta")
    assert moved.rows.reward.device.type == "meta"
    assert moved.env_index is not None
    assert moved.env_index.tolist() == [0, 1, 2]
