"""Checkpoints whose weights are an average by a callback of Lightning."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Checkpoint, EMAWeightAveraging

from maze_pl.modules import A2C

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]

N_STEPS = 10 * 4 * 2  # in an epoch


class Saved(Checkpoint):
    """Keeps a checkpoint after the second epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.path)


@pytest.fixture
def path(kit: SimpleNamespace, tmp_path: Path) -> Path:
    averaging = EMAWeightAveraging(decay=0.5)
    module = A2C(actor_critic=kit.make_actor_critic(), lr=0.1)
    kit.fit(module, epochs=2, enable_checkpointing=True, callbacks=[averaging, Saved(tmp_path / "averaged.ckpt")])
    return tmp_path / "averaged.ckpt"


@pytest.mark.parametrize("earlier", [False, True])
def test_the_count_of_steps_is_that_of_the_run(kit: SimpleNamespace, path: Path, earlier: bool) -> None:
    saved = torch.load(path, weights_only=True)
    counts = [int(saved[name]["_extra_state"]) for name in ("state_dict", "current_model_state")]
    assert counts == [2 * N_STEPS, 2 * N_STEPS]
    weight = next(name for name in saved["state_dict"] if name.endswith("weight"))
    assert not torch.equal(saved["state_dict"][weight], saved["current_model_state"][weight])
    if earlier:  # the count at which the weights were copied
        saved["state_dict"]["_extra_state"] = torch.tensor(0)
        torch.save(saved, path)
    module = A2C(actor_critic=kit.make_actor_critic())
    evaluations = kit.Source(module, kit.make_evaluations, 1)
    kit.make_trainer().validate(module, evaluations, ckpt_path=path, verbose=False, weights_only=True)
    assert module.env_steps == 2 * N_STEPS
    assert torch.equal(module.state_dict()[weight], saved["state_dict"][weight])


def test_resuming_needs_the_callback_as_the_optimisers_state_is_not_that_of_the_average(
    kit: SimpleNamespace, path: Path
) -> None:
    with pytest.raises(ValueError, match=r"averaged.ckpt are an average.*EMAWeightAveraging, or use --warm-start"):
        kit.fit(A2C(actor_critic=kit.make_actor_critic()), epochs=3, ckpt_path=path)
    module = A2C(actor_critic=kit.make_actor_critic())
    kit.fit(module, epochs=3, ckpt_path=path, callbacks=[EMAWeightAveraging(decay=0.5)])
    assert module.env_steps == 3 * N_STEPS
