"""An algorithm that keeps what it is given from a replay buffer, and runs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from gymnasium import spaces

from maze_pl.core.batches import ReplayBatch
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import ReplayDataModule
from maze_pl.runs.rollout import rollout
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift

# Lightning asks back where there are no evaluators.

GAMMA = 0.9


class Learner(pl.LightningModule):
    """Acts by numbers from 100 on, which grow with each update; keeps its batches."""

    def __init__(self, gamma: float = GAMMA) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.gamma = Counter(), gamma
        torch.nn.init.constant_(self.policy.weight, 100)
        self.batches: list[ReplayBatch] = []

    def data_requirements(self) -> DataRequirements:
        return DataRequirements(gamma=self.gamma)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.policy.parameters(), lr=1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        raise AssertionError("there is no evaluation")

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        self.batches.append(batch)
        if batch.reprioritise is not None:
            batch.reprioritise({key: acts.reward for key, acts in batch.acts.items()})
        self.policy.weight.grad = -torch.ones(())
        self.optimizers().step()


def make_data(env: Any = Drift, **options: Any) -> ReplayDataModule:
    given = {"initial_buffer_size": 20, "batch_size": 8, "replay_buffer_size": 1000, "epoch_length": 2, "seed": 3}
    return ReplayDataModule(env, **{**given, "evaluators": {}, **options})


def fit(
    data: ReplayDataModule, epochs: int = 1, ckpt_path: Any = None, save: Path | None = None, module: Any = None
) -> Any:
    module = module or Learner()
    trainer = pl.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
        default_root_dir=save and save.parent,
    )
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    if save is not None:
        trainer.save_checkpoint(save)
    return module


def tensors(batches: list[ReplayBatch]) -> list[torch.Tensor]:
    return [tensor for batch in batches for acts in batch.acts.values() for tensor in acts.tensors()]


def same(ours: list[ReplayBatch], theirs: list[ReplayBatch]) -> bool:
    mine, others = tensors(ours), tensors(theirs)
    return len(mine) == len(others) > 0 and all(map(torch.equal, mine, others))


class Sevens:
    """A policy that is configured by its class."""

    def __init__(self, action_spaces_dict: dict[Any, spaces.Dict]) -> None:
        assert list(action_spaces_dict) == [0]

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({"action": np.full((len(batch.agent_id), 1), 7, np.float32)})


class Counting:
    """Counts its acts: the first action is 0, the next one 1, and so on."""

    def __init__(self, action_spaces_dict: dict[Any, spaces.Dict]) -> None:
        self.n_acts = 0

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        n = len(batch.agent_id)
        action = self.n_acts + np.arange(n, dtype=np.float32)
        self.n_acts += n
        return PolicyStep({"action": action[:, None]})


class Picky(Drift):
    """Allows one of three actions, another one each time."""

    def __init__(self) -> None:
        super().__init__()
        parts = {"observation": self.observation_space, "allowed": spaces.MultiBinary(3)}
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(3)

    def step(self, action: Any) -> Any:
        assert action == self.time % 3
        return super().step([action])

    def _observe(self) -> Any:
        return {"observation": super()._observe(), "allowed": np.arange(3, dtype=np.int8) == self.time % 3}


def recorded_episodes() -> list[Any]:
    """Recorded episodes with actions from 1000 on."""

    class Teacher(Sevens):
        def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
            return PolicyStep({"action": np.full((len(batch.agent_id), 1), 1000, np.float32)})

    return [one.spaces if hasattr(one, "spaces") else one for one in rollout(Drift, Teacher, 6, seed=5)]


def shown(batch: ReplayBatch) -> torch.Tensor:
    return batch.acts[0].action["action"][..., 0] == 1000
