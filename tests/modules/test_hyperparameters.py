"""Arguments of algorithms: checkpoints hold those that are plain values, also if a subclass saves them again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim import AdamW

from maze_pl.modules import PPO
from maze_pl.schedules import Linear


class Saves(PPO):
    """Saves its arguments, as Lightning's pages recommend."""

    def __init__(self, *, alpha: float = 0.1, rule: Any = None, saved: list[Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.save_hyperparameters(*(saved or []), ignore="saved")
        self.alpha = alpha


def test_arguments_that_a_subclass_saves_leave_out_other_objects(kit: SimpleNamespace, tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 20, "lr": Linear(1e-3, 0.0), "optimizer": AdamW}
    module = Saves(actor_critic=kit.make_actor_critic(), alpha=0.3, rule=print, clip_range=Linear(0.2, 0.1), **options)
    texts = {name: PPO(**options).hparams[name] for name in ("lr", "optimizer")}
    kit.fit(module).save_checkpoint(tmp_path / "x.ckpt")
    found = torch.load(tmp_path / "x.ckpt", weights_only=True)["hyper_parameters"]
    assert (found["alpha"], found["batch_size"]) == (0.3, 20)
    assert {name: found[name] for name in texts} == texts  # which no constructor accepts
    assert isinstance(found["clip_range"], str)
    assert not {"rule", "actor_critic", "saved"} & {*found, *module.hparams_initial}
    options = {"lr": 1e-3, "optimizer": "adam", "clip_range": 0.2, "actor_critic": kit.make_actor_critic()}
    assert Saves.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True, **options).alpha == 0.3


@pytest.mark.parametrize("saved", [["alpha"], ["alpha", "rule"], [{"alpha": 0.3, "rule": print}]])
def test_a_subclass_may_name_what_it_saves(kit: SimpleNamespace, saved: list[Any]) -> None:
    module = Saves(actor_critic=kit.make_actor_critic(), alpha=0.3, rule=print, saved=saved, batch_size=20)
    assert module.hparams["alpha"] == module.hparams_initial["alpha"] == 0.3
    assert module.hparams["batch_size"] == 20
    assert not {"rule", "actor_critic"} & {*module.hparams, *module.hparams_initial}
