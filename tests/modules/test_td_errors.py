"""Errors are kept in the order of the minibatches, and only for a buffer that samples by them."""

from __future__ import annotations

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import ReplayBatch
from maze_pl.modules.td_errors import TDErrors


def test_sizes_of_all_minibatches_are_reported_by_sub_step() -> None:
    reported: list[dict[StepKey, Tensor]] = []
    batch = ReplayBatch({}, collected=0, reprioritise=reported.append)
    kept = TDErrors()
    kept.begin(batch)
    for value in (1.0, 2.0):
        kept.keep("first", torch.tensor([-value, 3 * value], requires_grad=True))
        kept.keep("second", torch.tensor([value]))
    kept.report(batch)
    (errors,) = reported
    assert errors["first"].tolist() == [[1.0, 3.0], [2.0, 6.0]]
    assert errors["second"].tolist() == [[1.0], [2.0]]
    assert not errors["first"].requires_grad


def test_errors_of_a_batch_that_failed_are_not_reported_with_the_next() -> None:
    reported: list[dict[StepKey, Tensor]] = []
    batch = ReplayBatch({}, collected=0, reprioritise=reported.append)
    kept = TDErrors()
    kept.begin(batch)
    kept.keep(0, torch.ones(2))
    kept.begin(batch)
    kept.keep(0, torch.zeros(2))
    kept.report(batch)
    assert reported[0][0].tolist() == [[0.0, 0.0]]


def test_nothing_is_kept_where_no_buffer_wants_it() -> None:
    reported: list[dict[StepKey, Tensor]] = []
    kept = TDErrors()
    kept.begin(ReplayBatch({}, collected=0, reprioritise=reported.append))
    assert kept.are_wanted
    plain = ReplayBatch({}, collected=0)
    kept.begin(plain)
    assert not kept.are_wanted
    kept.keep(0, torch.ones(2))
    kept.report(plain)
    prioritised = ReplayBatch({}, collected=0, reprioritise=reported.append)
    kept.report(prioritised)
    assert reported == [{}]
