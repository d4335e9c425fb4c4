"""Statistics of observations need nobody's care: wherever environments are made, they have those of the training."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs.wrappers import (
    PreProcessingWrapper,
    RangeZeroOneObservationNormalizationStrategy,
    UnSqueezePreProcessor,
)
from tests.datamodules.probe import NORMALIZED, Probe, equal, evaluation_envs, fit, make_data, make_trainer, validate
from tests.envs.structured_example import make_heap_env

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")

COPY = {"observation": "observation", "class_path": UnSqueezePreProcessor, "keep_original": True, "config": {"dim": 0}}
TWICE: dict[str, Any] = {
    "wrappers": [
        partial(NORMALIZED, default_strategy=RangeZeroOneObservationNormalizationStrategy),
        partial(PreProcessingWrapper, pre_processor_mapping=[COPY]),
        NORMALIZED,
    ],
    "evaluators": {
        "often": RolloutEvaluator(n_episodes=2),
        "noisy": RolloutEvaluator(n_episodes=3, deterministic=False),
    },
}


def checkpoint(data: RolloutDataModule, path: Path) -> tuple[Path, Probe]:
    module, trainer = Probe(), make_trainer(2)
    trainer.fit(module, data)
    trainer.save_checkpoint(path / "run.ckpt")
    return path / "run.ckpt", module


def statistics(data: RolloutDataModule) -> dict[str, str]:
    return {name: str(state) for name, state in data.state_dict()["shared"].items()}


@pytest.mark.slow
def test_a_wrapper_that_occurs_twice_keeps_both_statistics_in_processes_and_when_resumed(tmp_path: Path) -> None:
    whole = make_data(**TWICE)
    expected = fit(whole, max_epochs=4)
    first, second = statistics(whole).values()
    assert first != second
    path, begun = checkpoint(make_data(**TWICE, vectorization="subprocess"), tmp_path)
    torch.load(path, weights_only=True)
    resumed = make_data(**TWICE)
    ended = fit(resumed, max_epochs=4, ckpt_path=path)
    assert statistics(resumed) == statistics(whole)
    assert equal([*begun.rollouts, *ended.rollouts], expected.rollouts)
    for name in ("often", "noisy"):
        assert [*begun.returns(name), *ended.returns(name)] == expected.returns(name)


def test_validating_a_checkpoint_uses_its_statistics(tmp_path: Path) -> None:
    data = make_data(**TWICE)
    path, module = checkpoint(data, tmp_path)
    other = make_data(**{**TWICE, "n_normalization_samples": 3})  # would be others if they were estimated
    validated = validate(other, ckpt_path=path, weights_only=True)
    assert statistics(other) == statistics(data)
    assert validated.returns("often") == module.returns("often")[-1:]


def test_a_warm_start_takes_statistics_over_and_estimates_what_nobody_has_learned() -> None:
    data = make_data(wrappers=[NORMALIZED])
    expected = data.make_env().reset(seed=1)[0]["observation"]
    warm = make_data(wrappers=[NORMALIZED], n_normalization_samples=3)
    warm.warm_start(data.wrapper_statistics())
    np.testing.assert_array_equal(warm.make_env().reset(seed=1)[0]["observation"], expected)
    anew = make_data(wrappers=[NORMALIZED])
    anew.warm_start(make_data().wrapper_statistics())  # a run that did not normalise
    np.testing.assert_array_equal(anew.make_env().reset(seed=1)[0]["observation"], expected)


def test_statistics_of_structured_environments_hold_in_evaluation() -> None:
    data = RolloutDataModule(make_heap_env, wrappers=[NORMALIZED], n_envs=2, seed=5, n_normalization_samples=60)
    env = data.make_env()
    data.evaluate("eval", RandomPolicy(env.action_spaces_dict, env.action_masks_dict))
    (shared,) = {str(state) for state in evaluation_envs(data).shared_states()}
    assert shared == str(data.wrapper_statistics())
    data.teardown("validate")
    (known,) = data.wrapper_statistics().values()
    raw, _ = make_heap_env().reset(seed=3)
    expected = (raw["heap"] - known["heap"]["mean"]) / known["heap"]["std"]
    np.testing.assert_allclose(env.reset(seed=3)[0]["heap"], expected, rtol=1e-6)
