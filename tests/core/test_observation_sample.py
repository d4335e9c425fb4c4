"""Samples of observations: what they keep, of which data, and after an interruption."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.core import observation_sample
from maze_pl.core.batches import ReplayBatch, Rollout, TransitionBatch
from maze_pl.core.observation_sample import ObservationSample, places_of
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.modules import PPO
from maze_pl.runs.rollout import rollout
from tests.devices import NoHostReads
from tests.envs.structured_example import make_heap_env
from tests.envs.tensors.tensor_envs import ENVS
from tests.equality import assert_equal

KEY = (0, "x")


def added(values: np.ndarray, n_at_once: int = 64) -> ObservationSample:
    sample = ObservationSample()
    for start in range(0, len(values), n_at_once):
        sample.add(0, {"x": values[start : start + n_at_once]})
    return sample


def test_few_observations_are_all_kept() -> None:
    values = np.arange(200.0).reshape(100, 2)
    sample = added(values)
    np.testing.assert_array_equal(sample.overall[KEY], values)
    np.testing.assert_array_equal(sample.recent[KEY], values)


def test_of_many_observations_a_uniform_sample_and_the_last_ones_are_kept() -> None:
    values = np.arange(100_000.0)[:, np.newaxis]
    sample = added(values)
    kept = sample.overall[KEY].ravel()
    assert kept.shape == (4096,) and len(set(kept.tolist())) == 4096
    counts = np.histogram(kept, bins=10, range=(0, 100_000))[0]
    assert (abs(counts - 409.6) < 5 * 409.6**0.5).all(), "each tenth of the training is represented equally"
    np.testing.assert_array_equal(sample.recent[KEY], values[-1024:])


def test_of_large_observations_some_numbers_are_kept() -> None:
    assert places_of(4).tolist() == [0, 1, 2, 3]
    assert places_of(0).tolist() == []
    places = places_of(84 * 84)
    assert (len(places), places[0], places[-1]) == (64, 0, 84 * 84 - 1)
    images = np.random.default_rng(0).integers(0, 255, (5, 84, 84)).astype(np.uint8)
    np.testing.assert_array_equal(added(images).overall[KEY], images.reshape(5, -1)[:, places])


def test_an_interruption_changes_nothing() -> None:
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    whole = added(values)
    first = added(values[:12_800])
    resumed = ObservationSample()
    resumed.load_state_dict(first.state_dict())
    for start in range(12_800, len(values), 64):
        resumed.add(0, {"x": values[start : start + 64]})
    np.testing.assert_array_equal(resumed.overall[KEY], whole.overall[KEY])
    np.testing.assert_array_equal(resumed.recent[KEY], whole.recent[KEY])


def collected(make_env: Any, max_agents: dict[Any, int] | None = None) -> Rollout:
    spec = Spec.of(make_env(), max_agents)
    vector = SequentialVectorEnv([make_env] * 4, seed=1, spec=spec)
    masks = {key: step.masks for key, step in spec.steps.items()}
    policy = RandomPolicy({key: step.action_space for key, step in spec.steps.items()}, masks)
    batch = Collector(vector, 8, torch.Generator().manual_seed(0)).collect(policy)
    vector.close()
    return batch


@pytest.mark.parametrize("name", ["flat", "agents"])
def test_rollouts(name: str) -> None:
    make_env = partial(GymMazeEnv, "CartPole-v1") if name == "flat" else make_heap_env
    batch = collected(make_env, None if name == "flat" else {"work": 3})
    sample = ObservationSample()
    sample.add_batch(batch)
    for (key, observation), rows in sample.overall.items():
        segment = batch.segments[key]
        acts = {tuple(row.ravel()) for row in segment.observation[observation][segment.active].numpy()}
        assert len(rows) == 64 and {tuple(row) for row in rows} <= acts, "only of acts that exist"


def test_every_16th_drawn_batch_is_looked_at() -> None:
    acts = TransitionBatch({"x": torch.ones(2, 10, 3)}, {}, torch.zeros(2, 10, dtype=torch.int64))
    sample = ObservationSample()
    for _ in range(17):
        sample.add_batch(ReplayBatch({0: acts}, 0))
    assert sample.overall[KEY].shape == (128, 3)


def test_other_data_and_empty_batches_are_passed_over() -> None:
    sample = ObservationSample()
    sample.add_batch("a population")
    none = TransitionBatch({"x": torch.ones(2, 0, 3)}, {}, torch.zeros(2, 0, dtype=torch.int64))
    sample.add_batch(ReplayBatch({0: none}, 0))
    assert not sample.overall


def test_recorded_episodes() -> None:
    played = rollout(partial(GymMazeEnv, "CartPole-v1"), episodes=3, max_steps=10)
    records = [trajectory.spaces for trajectory in played]
    sample = ObservationSample.of(records)
    seen = np.concatenate([record.observation[0]["observation"] for record in records if record is not None])
    np.testing.assert_array_equal(sample.overall[0, "observation"], seen)


def test_observations_in_bfloat16_are_kept_as_their_numbers() -> None:
    values = torch.arange(32.0).reshape(16, 2)
    samples = []
    for dtype in (torch.float32, torch.bfloat16):
        sample = ObservationSample()
        sample._add_tensors(0, {"x": values.to(dtype)}, 1, None)
        samples.append(sample.overall[KEY])
    assert samples[0].dtype == samples[1].dtype == np.float32
    np.testing.assert_array_equal(*samples)


def dense_rollout() -> Rollout:
    """A rollout of an environment in tensors with two sub-steps."""
    spec = Spec.of(ENVS["structured"]())
    vector = TensorVector(ENVS["structured"](), 4, spec, torch.device("cpu"))
    return TensorCollector(vector, 20, torch.Generator().manual_seed(0)).collect(PPO(spec=spec).policy).clone()


def test_dense_rollouts_are_sampled_as_any_others_without_looking_for_acts() -> None:
    rollout = dense_rollout()
    dense, other = ObservationSample(), ObservationSample()
    with NoHostReads():
        dense.add_batch(rollout)
    other.add_batch(replace(rollout, dense=False))
    assert dense.overall.keys() == other.overall.keys()
    for key, rows in dense.overall.items():
        np.testing.assert_array_equal(rows, other.overall[key])


@pytest.mark.parametrize("is_limited", [False, True])
def test_observations_that_are_fetched_late_give_the_same_sample(
    is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = dense_rollout()
    at_once, late = ObservationSample(), ObservationSample()
    with monkeypatch.context() as patch:
        patch.setattr(late, "fetch", lambda: None)  # as on a device
        for _ in range(5):
            at_once.add_batch(rollout)
            late.add_batch(rollout)
    assert not late.overall
    assert late._n_waiting_bytes == sum(rows.nbytes for one in late._waiting for rows in one.rows.values()) > 0
    if is_limited:
        late.fetch()
        assert (late._waiting, late._n_waiting_bytes) == ([], 0)
    found, expected = late.state_dict(), at_once.state_dict()  # which fetches
    assert_equal(found, expected)


@pytest.mark.parametrize("n_acts", [1, 2, 7, 80])
def test_acts_on_a_device_are_chosen_equally_often(n_acts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = ObservationSample()
    counts = np.zeros(n_acts)
    arange = torch.arange
    monkeypatch.setattr(torch, "arange", lambda n, device: arange(n))  # on the CPU
    for number in range(400):
        sample._n_batches = number
        chosen = sample._choices(0, n_acts, torch.device("meta"))
        assert chosen.shape == (64,)
        counts += np.bincount(chosen.numpy(), minlength=n_acts)
    assert counts.sum() == 400 * 64
    assert abs(counts / counts.mean() - 1).max() < 0.35


@pytest.mark.parametrize("n_elements", [1, 2, 63, 64, 65, 66, 100, 127, 128, 1000, 84 * 84, 4 * 84 * 84, 999_983])
def test_the_same_numbers_are_looked_at_on_every_device(n_elements: int) -> None:
    numbers = torch.arange(n_elements)[None]
    with NoHostReads():
        found = observation_sample._looked_at(numbers)
    assert found[0].tolist() == places_of(n_elements).tolist()


def test_of_images_on_a_device_only_the_numbers_wait_that_are_looked_at() -> None:
    sample = ObservationSample()
    for _ in range(20):
        sample._add_tensors(0, {"x": torch.empty(100, 4, 84, 84, device="meta", dtype=torch.uint8)}, 1, None)
    assert len(sample._waiting) == 20 and sample._n_waiting_bytes == 20 * 64 * 64
    image, waiting = torch.randint(256, (8, 3, 10, 10), dtype=torch.uint8), ObservationSample()
    waiting.add(0, {"x": image.numpy()})
    late = ObservationSample()
    late._waiting.append(
        observation_sample._Waiting(0, {"x": observation_sample._looked_at(image.flatten(1))}, {"x": 300})
    )
    late.fetch()
    assert_equal(late.state_dict(), waiting.state_dict())


def test_much_that_waits_on_a_device_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_sample, "_MOST_WAITING", 3 * 64 * 4 * 4)
    fetched = []
    sample = ObservationSample()
    monkeypatch.setattr(sample, "fetch", lambda: fetched.append(len(sample._waiting)))
    for _ in range(4):
        sample._add_tensors(0, {"x": torch.empty(100, 4, device="meta")}, 1, None)
    assert fetched == [4]
