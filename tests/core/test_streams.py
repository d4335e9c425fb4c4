"""Streams of a rollout written out by hand."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from maze_pl.core.batches import Rollout
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.core.streams import act_streams, dense_streams
from tests.collect.collectors import collector_of, random_policy
from tests.collect.scripted import Act, Episode, Script, make_env
from tests.nondeterministic import RefuseCumulativeSums

GAMMA = 0.5


def test_sub_steps_are_not_discounted_against_each_other_and_open_acts_are_marked() -> None:
    """Two sub-steps an environment step; rewards 1, 2 | 3, 4 | 5, 6, and the rollout ends in the running episode.

    Key 0: R_0 = 1 + 2 = 3, D_0 = 0.5; R_1 = 3 + 4 = 7, D_1 = 0.5; R_2 = 5 + 6 = 11, D_2 = 0.5 and a final observation.
    Key 1: R_0 = 2 + 0.5 * 3 = 3.5, R_1 = 4 + 0.5 * 5 = 6.5, D = 0.5; its third act is open.
    """
    acts = [Act(t % 2, 0, float(t + 1), 0.0, t % 2) for t in range(20)]
    script = Script((1, 1), False, ((Episode(tuple(acts), False, (0, 0)),),))
    collector = collector_of([partial(make_env, script, 0)], 3)
    streams = act_streams(collector.collect(random_policy(collector)), GAMMA)
    assert streams[0].reward.T.tolist() == [[3.0, 7.0, 11.0]]
    assert streams[0].discount.T.tolist() == [[0.5, 0.5, 0.5]]
    assert streams[0].final.T.tolist() == [[-1, -1, 0]]
    assert streams[0].cut.T.tolist() == [[False, False, True]]
    assert streams[1].reward[:2].T.tolist() == [[3.5, 6.5]]
    assert streams[1].discount[:2].T.tolist() == [[0.5, 0.5]]
    assert streams[1].open.T.tolist() == [[False, False, True]]
    assert streams[1].cut.T.tolist() == [[False, True, True]], "the open act only bootstraps the one before it"
    assert not torch.cat([streams[0].terminated, streams[1].terminated]).any()


@pytest.mark.parametrize("n_keys", [1, 2, 4])
def test_streams_of_dense_rollouts_add_rewards_in_a_fixed_order(n_keys: int) -> None:
    """On a GPU, `torch.cumsum` of floats is refused in deterministic mode, and may round differently in each call."""
    shape = (n_rows, n_envs) = (7, 3)
    generator = torch.Generator().manual_seed(n_keys)
    reward = torch.randn((n_keys, *shape), generator=generator, dtype=torch.float64)
    zeros = torch.zeros(shape, dtype=torch.int64)
    filled = torch.ones(shape, dtype=torch.bool)
    terminated = torch.rand(shape, generator=generator) < 0.2
    truncated = (torch.rand(shape, generator=generator) < 0.2) & ~terminated
    segments = {
        key: Segment({}, {}, filled, zeros + key, zeros, reward[key], ~filled, ~filled) for key in range(n_keys)
    }
    rows = Rows(filled, reward.sum(0), terminated, truncated, zeros + 1, zeros, zeros, zeros, zeros)
    finals = {0: FinalObservations(*truncated.nonzero(as_tuple=True), zeros[0, :1], zeros[0, :1], {})}
    with RefuseCumulativeSums():
        streams = dense_streams(Rollout(rows, segments, finals, n_rows, n_keys == 1, dense=True), GAMMA)
    for key in range(n_keys):
        for t in range(n_rows):
            for n in range(n_envs):
                expected = sum(reward[later, t, n].item() for later in range(key, n_keys))
                if not terminated[t, n] and not truncated[t, n] and t + 1 < n_rows:
                    expected += GAMMA * sum(reward[earlier, t + 1, n].item() for earlier in range(key))
                assert streams[key].reward[t, n].item() == pytest.approx(expected, abs=1e-12)


def test_an_actor_that_is_done_early_ends_its_own_stream_with_its_environment_step() -> None:
    """Agents 0, 1, 2 act in each step; agent 1 is done in the first: it gets 2 + 4, and the others go on."""
    first = [Act(0, 0, 1.0, 0.0, 0), Act(0, 1, 2.0, 0.0, 0, True), Act(0, 2, 4.0, 0.0, 1)]
    second = [Act(0, 0, 8.0, 0.0, 0), Act(0, 2, 16.0, 0.0, 1)]
    script = Script((3,), False, ((Episode((*first, *second), False, (0, 0)),),))
    collector = collector_of([partial(make_env, script, 0)], 2)
    streams = act_streams(collector.collect(random_policy(collector)), GAMMA)[0]
    assert streams.reward[0].tolist() == [7.0, 6.0, 8.0]
    assert streams.discount[0].tolist() == [0.5, 0.0, 0.5]
    assert streams.terminated[0].tolist() == [False, True, False]
    assert streams.reward[1].tolist() == [24.0, 0.0, 16.0]
    assert streams.row[1].tolist() == [1, -1, 1]
