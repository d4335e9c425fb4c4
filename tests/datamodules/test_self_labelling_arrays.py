"""Self-labelling in arrays: the same episodes and records as with environments of single episodes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.datamodules import SelfLabellingDataModule
from maze_pl.envs import CartPoleArrayEnv, PendulumArrayEnv, make_gym_maze_env
from maze_pl.envs.cutting_2d import StructuredCutting2DArrayEnvironment, masked_struct_env_factory
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from maze_pl.modules import BC
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.datamodules.trainers import make_trainer

CYCLE = [(1, 2), (2, 2), (1, 1)]
SCALED: Any = [partial(RewardScalingWrapper, scale=0.5)]
LIMITED: Any = [partial(TimeLimitWrapper, max_episode_steps=12)]
ENVS: dict[str, tuple[Any, Any, Any]] = {
    "cartpole": (CartPoleArrayEnv, partial(make_gym_maze_env, "CartPole-v1"), SCALED),
    "boxes": (PendulumArrayEnv, partial(make_gym_maze_env, "Pendulum-v1"), LIMITED),
    "structured with masks": (
        partial(StructuredCutting2DArrayEnvironment, 10, (4, 3), CYCLE, masked=True),
        partial(masked_struct_env_factory, 10, (4, 3), CYCLE),
        LIMITED,
    ),
}


def played(env: Any, wrappers: Any, folder: Path, **options: Any) -> tuple[SelfLabellingDataModule, list[Any]]:
    """A data module in the hands of a trainer, and the episodes of two epochs."""
    small: dict[str, Any] = {"n_starts": 3, "n_samples": 5, "epoch_length": 2, "evaluators": {}, "seed": 3}
    data = SelfLabellingDataModule(env, wrappers, **{**small, **options})
    torch.manual_seed(1)
    module = BC(spec=data.spec, lr=1e-3)
    trainer = make_trainer(folder, max_epochs=1)
    trainer.strategy.connect(module)
    data.trainer = trainer
    epochs = [data.play(epoch) for epoch in (0, 1)]
    data.teardown("fit")
    return data, epochs


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("options", [{}, {"max_steps": 7}], ids=["whole", "limited"])
def test_episodes_in_arrays_equal_those_of_single_environments(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    arrays, single, wrappers = ENVS[name]
    epochs = [played(env, wrappers, tmp_path, **options)[1] for env in (arrays, single)]
    n_acts = 0
    for epoch, expected in zip(*epochs, strict=True):
        assert epoch.measures == pytest.approx(expected.measures)
        assert [one.env_steps for one in epoch.summaries] == [one.env_steps for one in expected.summaries]
        assert len(epoch.records) == len(expected.records) == 3
        for one, other in zip(epoch.records, expected.records, strict=True):
            record, reference = (SpacesTrajectoryRecord.from_bytes(bytearray(content)) for content in (one, other))
            for field in ("key_index", "agent_id", "env_time", "actor_done"):
                assert getattr(record, field).tolist() == getattr(reference, field).tolist(), field
            np.testing.assert_allclose(record.reward, reference.reward)
            np.testing.assert_equal(record.observation, reference.observation)
            np.testing.assert_equal(record.action, reference.action)
            np.testing.assert_equal(record.last_observation, reference.last_observation)
            for field in ("terminated", "truncated", "last_env_time", "last_actor"):
                assert getattr(record, field) == getattr(reference, field), field
            n_acts += len(record)
    assert n_acts > 40
    ids = {SpacesTrajectoryRecord.from_bytes(bytearray(one)).episode_id for epoch in epochs[0] for one in epoch.records}
    assert len(ids) == 6


@pytest.mark.parametrize("kind", [0, 1], ids=["arrays", "single"])
def test_the_best_episode_has_the_largest_return_after_wrappers(kind: int, tmp_path: Path) -> None:
    env = ENVS["cartpole"][kind]
    _, epochs = played(env, [partial(RewardScalingWrapper, scale=-1.0)], tmp_path)
    for epoch in epochs:
        worst = [min(one.reward for one in epoch.summaries[5 * start : 5 * start + 5]) for start in range(3)]
        records = [SpacesTrajectoryRecord.from_bytes(bytearray(content)) for content in epoch.records]
        assert [-float(record.reward.sum()) for record in records] == worst
        assert epoch.measures["best_return"] == pytest.approx(np.mean(worst))
        assert len({one.reward for one in epoch.summaries}) > 3


def test_runs_in_arrays_learn_the_same(tmp_path: Path) -> None:
    arrays, single, wrappers = ENVS["cartpole"]
    weights = []
    for env in (arrays, single):
        torch.manual_seed(2)
        data = SelfLabellingDataModule(
            env, wrappers, n_starts=2, n_samples=4, batch_size=16, epoch_length=3, evaluators={}, seed=3
        )
        module = BC(spec=data.spec, lr=1e-2)
        make_trainer(tmp_path, max_epochs=2).fit(module, data)
        weights.append(torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]))
    torch.testing.assert_close(*weights)
