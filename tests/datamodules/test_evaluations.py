"""Each episode of an evaluation stands alone: wrappers begin it in their first state, with the current statistics."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.collect.engines import InProcessEngine
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv, StructuredEnv
from maze_pl.envs.arrays import CartPoleArrayEnv
from maze_pl.modules import A2C
from tests.datamodules.trainers import make_trainer
from tests.envs.stateful_wrappers import GrowingLimitWrapper, RisingPriceWrapper, TurningWrapper, make_walk

WRAPPERS = [RisingPriceWrapper, GrowingLimitWrapper, TurningWrapper]
EVALUATOR = {"eval": RolloutEvaluator(n_episodes=5, n_envs=2)}


class SeveralPlayers(InProcessEngine):
    """Three players, each with separate environments."""

    n_workers = 3


class SharedPriceWrapper(RisingPriceWrapper):
    """The price is common to all copies, and evaluations take it from training."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.is_frozen = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        level = self.level
        result = super().reset(seed=seed, options=options)
        if self.is_frozen:
            self.level = level
        return result

    def shared_state(self) -> dict[str, Any]:
        return self.state_dict()

    def load_shared_state(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)

    def freeze(self) -> None:
        self.is_frozen = True


class Evaluated(A2C):
    """Keeps the mean returns of its evaluations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.returns: list[float] = []

    def on_validation_epoch_end(self) -> None:
        super().on_validation_epoch_end()
        self.returns.append(float(self.trainer.callback_metrics["eval/return"]))


def make_data(wrappers: list[Any], **options: Any) -> RolloutDataModule:
    small: dict[str, Any] = {"n_envs": 2, "n_rollout_steps": 7, "epoch_length": 1, "seed": 3, "evaluators": EVALUATOR}
    return RolloutDataModule(**{"env": make_walk, "wrappers": wrappers, **small, **options})


def returns(wrappers: list[Any], folder: Path, max_epochs: int, ckpt_path: Path | None = None) -> list[float]:
    """Train, and return the mean return of each evaluation; the last checkpoint is `run.ckpt`."""
    pl.seed_everything(1, verbose=False)
    data = make_data(wrappers)
    module = Evaluated(networks="auto", spec=data.spec)
    trainer = make_trainer(folder, max_epochs=max_epochs, is_evaluated=True)
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    trainer.save_checkpoint(folder / "run.ckpt")
    return module.returns


def evaluations(data: RolloutDataModule, n_times: int) -> list[list[float]]:
    """The returns of each evaluation with random actions."""
    policy = RandomPolicy({key: step.action_space for key, step in data.spec.steps.items()})
    found = []
    for _ in range(n_times):
        found.append([summary.reward for summary in data.evaluate("eval", policy).summaries])
    data.teardown("validate")
    return found


@pytest.mark.parametrize("engine", [InProcessEngine, SeveralPlayers])
@pytest.mark.parametrize(("wrapper", "expected"), [(RisingPriceWrapper, 10.0), (GrowingLimitWrapper, 3.0)])
def test_every_episode_of_every_evaluation_is_the_first_one_of_its_wrappers(
    wrapper: Any, expected: float, engine: Any
) -> None:
    assert evaluations(make_data([wrapper], engine=engine()), 3) == [[expected] * 5] * 3


@pytest.mark.parametrize("vectorization", ["sequential", "array"])
def test_the_final_evaluation_plays_other_episodes_which_are_the_same_for_all_players(vectorization: str) -> None:
    made: dict[str, Any] = {"sequential": partial(GymMazeEnv, "CartPole-v1"), "array": CartPoleArrayEnv}
    found: list[list[float]] = []
    for engine, n_times in ((InProcessEngine(), 2), (SeveralPlayers(), 1)):
        data = make_data([], env=made[vectorization], engine=engine)
        policy = RandomPolicy({key: step.action_space for key, step in data.spec.steps.items()})
        first = data.evaluate("eval", policy).summaries
        for _ in range(n_times):
            with data.final_episodes():
                final = data.evaluate("eval", policy).summaries
            assert [one.episode_index for one in final] == [1_000_000 + index for index in range(5)]
            found.append([one.reward for one in final])
        assert [one.reward for one in data.evaluate("eval", policy).summaries] == [one.reward for one in first]
        assert {one.reward for one in first} != set(found[-1])
        data.teardown("validate")
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_evaluations_in_processes_are_the_same() -> None:
    data = make_data([RisingPriceWrapper], vectorization="subprocess")
    assert evaluations(data, 2) == [[10.0] * 5] * 2


@pytest.mark.slow
def test_evaluations_of_a_resumed_run_are_those_of_the_whole_one(tmp_path: Path) -> None:
    whole = returns(WRAPPERS, tmp_path, 3)
    assert whole == [3.0] * 3
    first = returns(WRAPPERS, tmp_path, 1)
    assert first + returns(WRAPPERS, tmp_path, 3, tmp_path / "run.ckpt") == whole


@pytest.mark.slow
def test_shared_state_still_comes_from_training(tmp_path: Path) -> None:
    whole = returns([SharedPriceWrapper], tmp_path, 4)
    # Seven steps of episodes of ten steps: an epoch ends in the first, second, third and third episode.
    assert whole == [10.0 * (1 + episode) for episode in (1, 2, 3, 3)]
    first = returns([SharedPriceWrapper], tmp_path, 2)
    assert first + returns([SharedPriceWrapper], tmp_path, 4, tmp_path / "run.ckpt") == whole
