"""Replay of recorded actions; `tests/runs/test_rollout.py` replays whole rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch
from maze_pl.datasets import ReplayRecordedActionsPolicy
from maze_pl.envs import TrajectoryFiles
from maze_pl.runs.rollout import rollout
from tests.structured import hierarchy


def test_each_row_gets_what_its_episode_has_at_its_act() -> None:
    records = [one.spaces for one in rollout(hierarchy.make_env, "random", 2)]
    policy = ReplayRecordedActionsPolicy(records)
    record = records[1]
    assert record is not None
    key = record.spec.step_keys[record.key_index[5]]
    batch = PolicyBatch(key, {}, record.agent_id[5:6], None, None, None, np.array([1]), np.array([5]))
    place = int((record.key_index[:5] == record.key_index[5]).sum())
    for head, values in policy.act(batch).action.items():
        np.testing.assert_array_equal(values, record.action[key][head][place : place + 1])


class Counted(np.ndarray[Any, Any]):
    """An array that counts the entries that are read in slices."""

    n_read = 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            Counted.n_read += len(range(*place.indices(len(self))))
        return super().__getitem__(place)


def test_replaying_an_episode_reads_it_once() -> None:
    (played,) = rollout(hierarchy.make_env, "random", 1)
    record = played.spaces
    assert record is not None
    n_acts = len(record)
    assert n_acts > 10
    taken = {key: 0 for key in record.spec.step_keys}
    record.key_index = record.key_index.view(Counted)
    Counted.n_read = 0
    policy = ReplayRecordedActionsPolicy([record])
    for act in range(n_acts):
        key = record.spec.step_keys[record.key_index[act]]
        index = np.array([act])
        batch = PolicyBatch(key, {}, record.agent_id[act : act + 1], None, None, None, np.zeros(1, np.int64), index)
        for head, values in policy.act(batch).action.items():
            np.testing.assert_array_equal(values[0], record.action[key][head][taken[key]])
        taken[key] += 1
    assert Counted.n_read <= 2 * n_acts


def test_the_act_of_another_actor_is_refused() -> None:
    records = [one.spaces for one in rollout(hierarchy.make_env, "random", 1)]
    assert records[0] is not None
    others = [key for key in records[0].spec.step_keys if key != records[0].spec.step_keys[records[0].key_index[0]]]
    batch = PolicyBatch(
        others[0], {}, np.zeros(1, np.int64), None, None, None, np.zeros(1, np.int64), np.zeros(1, np.int64)
    )
    with pytest.raises(ValueError, match=r"instead of act 0 of episode 0 .* was recorded"):
        ReplayRecordedActionsPolicy(records).act(batch)


def test_files_are_named_by_paths_of_any_kind_and_other_things_are_refused(tmp_path: Path) -> None:
    played = rollout(hierarchy.make_env, "random", 2)
    writer = TrajectoryFiles(str(tmp_path), name="all")
    for one in played:
        assert one.spaces is not None
        writer.write(one.spaces)
    for path in (tmp_path / "all.spaces", str(tmp_path / "all.spaces")):
        assert len(ReplayRecordedActionsPolicy(path).records) == 2
    assert len(ReplayRecordedActionsPolicy(played[0].spaces).records) == 1
    with pytest.raises(ValueError, match="is a folder, in which episodes have no order; name the file"):
        ReplayRecordedActionsPolicy(tmp_path)
    with pytest.raises(TypeError, match="a Trajectory is not a recorded episode"):
        ReplayRecordedActionsPolicy(played)
