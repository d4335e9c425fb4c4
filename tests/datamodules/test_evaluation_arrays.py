"""Training and evaluators play single episodes or arrays, in any combination."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.collect.engines import InProcessEngine
from maze_pl.datamodules import (
    RolloutDataModule,
)
from maze_pl.envs import CartPoleArrayEnv
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    RandomResetWrapper,
)
from maze_pl.modules import PPO
from tests.datamodules.held_out import CARTPOLE, LIMIT, SHORT, both, lengths
from tests.datamodules.probe import SCALE, make_trainer, validate


class Evaluated(PPO):
    """Keeps the returns of the last evaluation."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, batch_idx, dataloader_idx)
        self.returns = [one.reward for one in batch.summaries]


@pytest.mark.parametrize("training", [CARTPOLE, CartPoleArrayEnv, CartPoleTensorEnv])
@pytest.mark.parametrize("held_out", [CARTPOLE, CartPoleArrayEnv, CartPoleTensorEnv])
@pytest.mark.parametrize("wrappers", [[], [ObservationNormalizationWrapper, LIMIT]])
def test_training_and_evaluation_have_either_form(training: Any, held_out: Any, wrappers: list[Any]) -> None:
    options: dict[str, Any] = {"wrappers": wrappers, "seed": 3, "n_envs": 2, "n_normalization_samples": 50}
    data = RolloutDataModule(training, evaluators=both(5, env=held_out), **options)
    module = Evaluated(spec=data.spec)
    make_trainer().validate(module, data, verbose=False)
    data.trainer = None  # type: ignore[assignment]
    reference = RolloutDataModule(CARTPOLE, evaluators=both(5), **options)
    expected = reference.evaluate("held_out", module.policy, data.wrapper_statistics()).summaries
    reference.teardown("validate")
    assert len(module.returns) == 5
    if held_out is not CartPoleTensorEnv:  # which starts episodes in another way
        assert module.returns == [one.reward for one in expected]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_a_run_in_arrays_is_evaluated_in_single_episodes_and_the_other_way_round() -> None:
    returns = set()
    for training, held_out in [(CartPoleArrayEnv, CARTPOLE), (CARTPOLE, CartPoleArrayEnv), (CARTPOLE, CARTPOLE)]:
        pl.seed_everything(1, verbose=False)
        data = RolloutDataModule(
            training,
            [ObservationNormalizationWrapper, SCALE],
            n_envs=2,
            n_rollout_steps=8,
            epoch_length=2,
            seed=3,
            evaluators=both(env=held_out),
        )
        trainer = make_trainer(2)
        trainer.fit(PPO(spec=data.spec, batch_size=16), data)
        returns.add(float(trainer.callback_metrics["held_out/return"]))
    assert len(returns) == 1


def test_an_array_environment_can_be_played_if_those_of_training_have_processes() -> None:
    data = RolloutDataModule(
        CARTPOLE, vectorization="subprocess", n_envs=1, seed=3, evaluators=both(5, env=CartPoleArrayEnv)
    )
    assert len(lengths(data)) == 5


def test_native_environments_are_those_of_evaluators_too() -> None:
    options: dict[str, Any] = {"vectorization": "native", "n_envs": 2, "seed": 3}
    data = RolloutDataModule(CARTPOLE, evaluators=both(6, env=SHORT), **options)
    assert lengths(data) == [5] * 6
    data = RolloutDataModule(CARTPOLE, evaluators=both(6, wrappers=[LIMIT]), **options)
    assert lengths(data) == [5] * 6
    data = RolloutDataModule(CARTPOLE, evaluators=both(env=CartPoleArrayEnv), **options)
    message = r"evaluators\['held_out'\]: vectorization=native needs a gymnasium environment with a vector entry point"
    with pytest.raises(ValueError, match=message):
        data.setup("validate")


@pytest.mark.parametrize(
    ("options", "data_options", "message"),
    [
        ({"render": True}, {}, r"evaluators\['held_out'\] cannot render an array environment"),
        ({}, {"engine": InProcessEngine(step_timeout=9.0)}, r"evaluators\['held_out'\]: step_timeout cannot interrupt"),
        (
            {"wrappers": [partial(RandomResetWrapper, min_skip_steps=0, max_skip_steps=2)]},
            {},
            r"evaluators\['held_out'\]: .*RandomResetWrapper changes single episodes and has no array form",
        ),
    ],
)
def test_array_environments_refuse_in_evaluators_what_they_refuse_in_training(
    options: dict[str, Any], data_options: dict[str, Any], message: str
) -> None:
    data = RolloutDataModule(CARTPOLE, evaluators=both(env=CartPoleArrayEnv, **options), n_envs=1, **data_options)
    with pytest.raises(ValueError, match=message):
        validate(data)


@pytest.mark.slow
def test_a_step_timeout_holds_for_single_episodes_of_evaluators() -> None:
    data = RolloutDataModule(CARTPOLE, engine=InProcessEngine(step_timeout=9.0), evaluators=both(4, env=SHORT))
    assert max(lengths(data)) == 5
