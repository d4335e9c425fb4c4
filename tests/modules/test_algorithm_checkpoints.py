"""What checkpoints of algorithms hold, and runs that are resumed from them."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import OnExceptionCheckpoint

from maze_pl.callbacks import LastCheckpoint
from maze_pl.core.batches import Rollout
from maze_pl.core.checkpoint_content import CHECKPOINT_FORMAT
from maze_pl.modules import A2C, PPO
from maze_pl.modules.run_statistics import RunStatistics
from tests.faults.moments import FailAt
from tests.modules.small_algorithms import GradientAscent, flat

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


@pytest.mark.parametrize(("algorithm", "precision"), [(A2C, "32-true"), (PPO, "32-true"), (PPO, "64-true")])
def test_four_epochs_equal_two_and_two_more(
    kit: SimpleNamespace, tmp_path: Path, algorithm: Any, precision: str
) -> None:
    options = {"batch_size": 10} if algorithm is PPO else {}

    def make(**overrides: Any) -> Any:
        return algorithm(actor_critic=kit.make_actor_critic(), max_grad_norm=0.5, **options, **overrides)

    whole, first, second = make(lr_schedule="linear"), make(lr_schedule="linear"), make(lr_schedule="linear")
    kit.fit(whole, epochs=4, precision=precision)
    assert flat(whole).dtype == (torch.float64 if precision == "64-true" else torch.float32)
    path = tmp_path / "half.ckpt"

    class SaveHalf(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(path)

    kit.fit(first, epochs=4, callbacks=[SaveHalf()], precision=precision)
    noise = torch.rand(3)  # moves the global generator, which must not matter
    trainer = kit.fit(second, epochs=4, ckpt_path=path, precision=precision)
    assert noise.shape == (3,)
    assert torch.equal(flat(whole), flat(second))
    assert second.env_steps == whole.env_steps == 320
    assert trainer.global_step == (8 if algorithm is A2C else 8 * 16)
    for source in ("train", "eval"):
        table, resumed = whole.epoch_statistics[source], second.epoch_statistics[source]
        assert {k: v for k, v in table.items() if "/time_" not in k} == {
            k: v for k, v in resumed.items() if "/time_" not in k
        }


def test_checkpoint_in_mid_epoch_keeps_what_was_not_logged_yet(kit: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / "middle.ckpt"

    class SaveMiddle(Callback):
        def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
            if trainer.fit_loop.epoch_loop.total_batch_idx == 1:
                trainer.save_checkpoint(path)

    whole = PPO(actor_critic=kit.make_actor_critic(), batch_size=20)
    kit.fit(whole, length=4, callbacks=[SaveMiddle()])
    state = torch.load(path, weights_only=True)["maze_pl"]
    assert state["ranks"][0]["unfinished_batches"] == 2
    statistics = RunStatistics()
    statistics.load_rank_state_dict(state["ranks"][0]["statistics"])
    table = statistics.finish_training()
    assert table.metrics["return"] == 20.0
    assert table.values["ActorCriticEvents/learning_rate"] == pytest.approx(2.5e-4)


def test_checkpoint_loads_with_weights_only_and_tells_what_it_is(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(kit.team_spec), batch_size=24, lr=1e-3)
    trainer = kit.fit(module, make=kit.make_team_rollout)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    checkpoint = torch.load(tmp_path / "x.ckpt", weights_only=True)
    state = checkpoint["maze_pl"]
    assert state["class_path"] == "maze_pl.modules.ppo.PPO"
    assert state["format"] == CHECKPOINT_FORMAT
    assert state["env_steps"] == 48
    assert type(kit.team_spec).from_dict(state["spec"]).step_keys == ("lead", "crew")
    assert checkpoint["hyper_parameters"]["lr"] == 1e-3
    assert checkpoint["hyper_parameters"]["batch_size"] == 24
    assert not {"actor_critic", "networks", "spec"} & set(checkpoint["hyper_parameters"])


class Composer:
    def __init__(self, kit: SimpleNamespace) -> None:
        self.kit = kit

    def compose(self, spec: Any) -> Any:
        return self.kit.make_actor_critic(spec)


def test_networks_are_built_from_the_specification_or_the_checkpoint(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = A2C(networks=Composer(kit), spec=kit.flat_spec.to_dict(), gamma=0.5)
    trainer = kit.fit(module)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = A2C.load_from_checkpoint(tmp_path / "x.ckpt", networks=Composer(kit), weights_only=True)
    assert torch.equal(flat(loaded), flat(module))
    assert loaded.gamma == 0.5
    assert loaded.env_steps == 80
    with pytest.raises(RuntimeError, match="not built yet"):
        _ = A2C(networks=Composer(kit)).policy
    with pytest.raises(ValueError, match="networks need a specification"):
        kit.fit(A2C(networks=Composer(kit)))


def test_learning_rate_given_on_resuming_wins(kit: SimpleNamespace, tmp_path: Path) -> None:
    first = A2C(actor_critic=kit.make_actor_critic(), lr=1e-3)
    kit.fit(first).save_checkpoint(tmp_path / "x.ckpt")
    second = A2C(actor_critic=kit.make_actor_critic(), lr=7e-3)
    trainer = kit.fit(second, epochs=2, ckpt_path=tmp_path / "x.ckpt")
    assert trainer.optimizers[0].param_groups[0]["lr"] == 7e-3
    assert second.epoch_statistics["train"]["ActorCriticEvents/learning_rate"] == pytest.approx(7e-3)


@pytest.mark.slow
def test_other_number_of_ranks_is_said(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=20)
    kit.fit(module).save_checkpoint(tmp_path / "x.ckpt")
    checkpoint = torch.load(tmp_path / "x.ckpt", weights_only=True)
    checkpoint["maze_pl"]["ranks"] *= 2
    torch.save(checkpoint, tmp_path / "y.ckpt")
    with pytest.warns(UserWarning, match="the checkpoint was written by 2 ranks, not 1"):
        kit.fit(PPO(actor_critic=kit.make_actor_critic(), batch_size=20), epochs=2, ckpt_path=tmp_path / "y.ckpt")


def test_checkpoint_of_another_format_is_refused(kit: SimpleNamespace) -> None:
    module = A2C(actor_critic=kit.make_actor_critic())
    with pytest.raises(ValueError, match=r"has format 99 \(maze_pl 7\.0\)"):
        module.on_load_checkpoint({"maze_pl": {"format": 99, "version": "7.0"}})
    module.on_load_checkpoint({})
    assert module.env_steps == 0


def test_global_generators_continue_after_resuming(kit: SimpleNamespace, tmp_path: Path) -> None:
    import random

    import numpy as np

    drawn: list[tuple[float, float, float]] = []

    class Drawing(GradientAscent):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            super().training_step(rollout, batch_idx)
            drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))

    kit.fit(Drawing(actor_critic=kit.make_actor_critic()), length=1).save_checkpoint(tmp_path / "x.ckpt")
    expected = (random.random(), float(np.random.rand()), float(torch.rand(())))
    torch.manual_seed(5)
    kit.fit(Drawing(actor_critic=kit.make_actor_critic()), epochs=2, length=1, ckpt_path=tmp_path / "x.ckpt")
    assert drawn[1] == expected
    assert sys.modules["random"] is random


def test_checkpoint_after_an_exception_does_not_wait_for_other_ranks(
    kit: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_answers(value: Any) -> list[Any]:
        raise AssertionError("the other ranks may not be there any more")

    class Failing(GradientAscent):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            super().training_step(rollout, batch_idx)
            raise RuntimeError("broken")

    class SaveOnException(Callback):
        def on_exception(self, trainer: Trainer, *args: Any) -> None:
            trainer.save_checkpoint(tmp_path / "last.ckpt")

    monkeypatch.setattr("maze_pl.modules.run_module.gather_objects", nobody_answers)
    with pytest.raises(RuntimeError, match="broken"):
        kit.fit(Failing(actor_critic=kit.make_actor_critic()), callbacks=[SaveOnException()])
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["maze_pl"]
    assert state["env_steps"] == 40
    assert len(state["ranks"]) == 1


class Bag(Callback):
    """A callback with any state."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def state_dict(self) -> dict[str, Any]:
        return {"content": self.content}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.content = state["content"]


def test_a_callback_may_hold_numbers_of_numpy_and_other_objects_are_refused_at_once(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    quiet: dict[str, Any] = {"enable_checkpointing": True, "default_root_dir": tmp_path}
    path = tmp_path / "checkpoints" / "last.ckpt"
    module = A2C(actor_critic=kit.make_actor_critic())
    kit.fit(module, length=1, callbacks=[Bag(np.float64(1.5)), LastCheckpoint()], **quiet)
    written = path.read_bytes()
    bag = Bag(None)
    with pytest.raises(ValueError, match=r"^callbacks\['Bag'\]\['content'\] of the checkpoint is a numpy.ndarray"):
        kit.fit(module, length=1, epochs=3, callbacks=[Bag(np.arange(3)), LastCheckpoint()], **quiet)
    assert path.read_bytes() == written
    kit.fit(module, length=1, epochs=2, callbacks=[bag, LastCheckpoint()], ckpt_path=path, **quiet)
    assert type(bag.content) is float
    assert bag.content == 1.5


@pytest.mark.filterwarnings("ignore:.*ckpt_path=")
def test_an_error_before_there_are_networks_is_not_replaced_by_one_of_saving(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    callbacks = [FailAt("setup"), OnExceptionCheckpoint(tmp_path)]
    with pytest.raises(ZeroDivisionError, match="a mistake in a callback"):
        kit.fit(A2C(), callbacks=callbacks, enable_checkpointing=True)
