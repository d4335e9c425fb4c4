"""Replay of environments in tensors."""

from __future__ import annotations

from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.collect.tensors import tensor_collector
from maze_pl.datamodules import ReplayDataModule
from maze_pl.modules import DQN
from tests.envs.tensors.tensor_envs import ENVS

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:Total length of .* is zero")


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", ["flat", "structured"])
def test_replay_is_filled_by_random_actions_within_masks_and_learned_from(
    name: str, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_collector, "uses_graphs", lambda device: records)
    pl.seed_everything(0, verbose=False)
    data: Any = ReplayDataModule(
        ENVS[name], num_actors=4, n_rollout_steps=5, batch_size=16, initial_buffer_size=150, epoch_length=6,
        evaluators={}, seed=0,
    )  # fmt: skip
    module = DQN(spec=data.spec)
    weights = [parameter.detach().clone() for parameter in module.parameters()]
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    assert not all(torch.equal(one, other) for one, other in zip(weights, module.parameters(), strict=True))
    drawn = data._filled.draw(1, 500).acts
    for key, step in data.spec.steps.items():
        acts = drawn[key]
        for head, mask in step.masks.items():
            chosen = acts.action[head][0].long().unsqueeze(-1)
            assert (acts.observation[mask][0].gather(1, chosen) > 0).all()
        for head in step.action_space.spaces:
            assert len(acts.action[head][0].unique()) > 1
