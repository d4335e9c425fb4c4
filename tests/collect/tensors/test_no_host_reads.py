"""Collecting on a device reads nothing from it, shown on a device without data, for the shipped environments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maze_pl.callbacks import TrainingObservations
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_episodes import TensorEpisodes
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core.batches import Rollout
from maze_pl.core.spec import Spec
from maze_pl.envs.cutting_2d import MixedPeriodicDemand, UniformDemand
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import TensorEnv
from maze_pl.envs.tensors.tensor_wrapper import faults_within
from maze_pl.modules import PPO
from tests.devices import NoHostReads
from tests.envs.tensors.tensor_envs import ENVS, WRAPPED

META = torch.device("meta")
N_ENVS, N_STEPS = 6, 4
cutting = partial(StructuredCutting2DTensorEnvironment, 8, (4, 3), max_episode_steps=12)
MAKERS: dict[str, Callable[[], TensorEnv]] = {
    **ENVS,
    **WRAPPED,
    "mixed demand": partial(cutting, MixedPeriodicDemand(3, 12, True)),
    "uniform demand": partial(cutting, UniformDemand((2, 2))),
}


def policy_on_meta(spec: Spec) -> Any:
    policy = copy.deepcopy(PPO(spec=spec).policy).to_empty(device=META).eval()
    for parts in policy._steps.values():
        parts.inputs._reference = next(parts.networks[0].parameters())
    return policy


def collector_of(make: Callable[[], TensorEnv]) -> tuple[TensorCollector, Any]:
    """A collector on a device without data, whose random numbers are those of the global generator."""
    spec = Spec.of(make())
    generator: Any = None
    vector = TensorVector(make(), N_ENVS, spec, META, seed=3, merges=True)
    collector = TensorCollector(vector, N_STEPS, generator, records=False)
    collector.start()
    return collector, policy_on_meta(spec)


def collect(collector: TensorCollector, policy: Any) -> Rollout:
    """Collect a rollout after the trial step of the first one."""
    storage = collector._storage
    storage.forget_first_starts()
    collector._row.zero_()
    for _ in range(N_STEPS):
        collector._step(policy)
    storage.store_last(collector.env.observe(collector._first_key))
    rollout = storage.rollout(collector._starting)
    record = storage.record(collector._played, False, 0, "env", faults_within(collector.env))
    collector.vector.load_shared_states(collector.vector.shared_states()[0])
    rollout.summaries = TensorEpisodes(record, collector._statistics)
    return rollout


@pytest.mark.parametrize("name", MAKERS)
@torch.no_grad()
def test_rollouts_and_what_callbacks_keep_of_them_stay_on_the_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # unknown to this device
    collector, policy = collector_of(MAKERS[name])
    collector._step(policy, collector._checks)
    callback = TrainingObservations()
    trainer: Any = SimpleNamespace(is_global_zero=True)
    with NoHostReads():
        for index in range(2):
            rollout = collect(collector, policy)
            policy.note_log_probs(rollout)
            callback.on_train_batch_start(trainer, None, rollout, index)  # type: ignore[arg-type]
            joined = Rollout.concatenated([rollout])
    for segment in joined.segments.values():
        assert {tensor.device for tensor in (*segment.observation.values(), segment.log_prob)} == {META}  # type: ignore[union-attr]
    assert not callback.sample.overall, "observations stay on the device, too"
    rows = [tensor for waiting in callback.sample._waiting for tensor in waiting.rows.values()]
    assert {(tensor.device, len(tensor)) for tensor in rows} == {(META, 64)}
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        callback.on_train_epoch_end(None, None)  # type: ignore[arg-type]


READS: dict[str, Callable[[torch.Tensor], object]] = {
    "a number": float,
    "a comparison": lambda tensor: torch.equal(tensor, tensor),
    "places": lambda tensor: tensor.expand(3).nonzero(),
    "flags as an index": lambda tensor: tensor.expand(3)[tensor.expand(3) > 0],
    "a copy": lambda tensor: tensor.to("meta"),
    "a copy into a tensor": lambda tensor: torch.zeros((), device="meta").copy_(tensor),
}


@pytest.mark.parametrize("read", READS)
def test_what_would_wait_for_a_device_is_found(read: str) -> None:
    number = torch.tensor(2.0)
    with NoHostReads(), pytest.raises(AssertionError):
        READS[read](number)
    with NoHostReads():
        assert (number.expand(3)[torch.arange(2)] + 1).shape == (2,)
