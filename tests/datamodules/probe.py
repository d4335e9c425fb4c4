"""A module that does nothing but count its updates and keep what it is given."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch

from maze_pl.collect.engines import InProcessEngine
from maze_pl.core.batches import Evaluation, Rollout
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift

NORMALIZED = partial(ObservationNormalizationWrapper, default_strategy_config={"axis": 0})
SCALE = partial(ReturnNormalizationRewardWrapper, gamma=0.9)
WRAPPERS: dict[str, Any] = {"wrappers": [NORMALIZED, SCALE]}
EVAL = {"eval": RolloutEvaluator(n_episodes=7)}


class Probe(pl.LightningModule):
    """Each update adds 1 to the weight of its policy."""

    def __init__(self, fails_in: int | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy = Counter()
        self.fails_in = fails_in
        self.rollouts: list[Rollout] = []
        self.evaluations: list[Evaluation] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def training_step(self, batch: Rollout, batch_idx: int) -> None:
        assert self.policy.training
        if len(self.rollouts) == self.fails_in:
            raise ArithmeticError("the update broke")
        self.rollouts.append(batch.clone())
        self.policy.weight.grad = -torch.ones(())
        self.optimizers().step()

    def validation_step(self, batch: Evaluation, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.evaluations.append(batch)

    def returns(self, name: str = "eval") -> list[list[float]]:
        """The returns of each evaluation by an evaluator."""
        return [[one.reward for one in batch.summaries] for batch in self.evaluations if batch.name == name]


def make_data(log: Any = None, env: Any = Drift, data_class: Any = RolloutDataModule, **options: Any) -> Any:
    given = {"n_envs": 2, "n_rollout_steps": 7, "epoch_length": 2, "seed": 3, "evaluators": {}, **options}
    return data_class(partial(env, log), **given)


def make_trainer(max_epochs: int = 1) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
    )


def fit(data: RolloutDataModule, max_epochs: int = 1, fails_in: int | None = None, ckpt_path: Any = None) -> Probe:
    module = Probe(fails_in)
    make_trainer(max_epochs).fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    return module


def numbers(rollouts: list[Rollout]) -> list[list[torch.Tensor]]:
    """What was seen, done and given in each rollout."""
    return [
        [part.segments[0].observation["observation"], part.segments[0].action["action"], part.rows.reward]
        for part in rollouts
    ]


def equal(ours: list[Rollout], theirs: list[Rollout]) -> bool:
    """Whether rollouts are the same, bit for bit."""
    return len(ours) == len(theirs) and all(
        torch.equal(a, b)
        for one, other in zip(numbers(ours), numbers(theirs), strict=True)
        for a, b in zip(one, other, strict=True)
    )


def validate(data: RolloutDataModule, times: int = 1, **options: Any) -> Probe:
    module = Probe()
    trainer = make_trainer()
    for _ in range(times):
        trainer.validate(module, data, verbose=False, **options)
    return module


def learned(data: RolloutDataModule, kind: type) -> dict[str, Any]:
    """What the wrapper of a kind has learned, as a checkpoint holds it."""
    (state,) = [state for name, state in data.state_dict()["shared"].items() if name.endswith(kind.__name__)]
    return state


def evaluation_envs(data: RolloutDataModule, name: str = "eval") -> Any:
    """The environments in which the actor of this process plays the episodes of an evaluator."""
    assert isinstance(data.engine, InProcessEngine) and data.engine._host is not None
    return data.engine._host.players[0].vectors[name]


def next_batch(data: Any) -> Any:
    """What a data module gives to the trainer next."""
    return next(iter(data.train_dataloader()))
