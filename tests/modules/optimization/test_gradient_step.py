"""Optimisation steps are counted and seen by whom they concern, and numbers that are not finite end a run."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor

from maze_pl.core.batches import Rollout
from maze_pl.modules import A2C, PPO, AlgorithmModule
from maze_pl.modules.optimization.gradient_step import GradientSteps

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


def make(kit: SimpleNamespace, algorithm: Any = PPO, **options: Any) -> Any:
    sizes = {"batch_size": 10, "n_optimization_epochs": 2} if algorithm is PPO else {}
    return algorithm(actor_critic=kit.make_actor_critic(), **{"max_grad_norm": 0.5, **sizes, **options})


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1).clone() for parameter in module.parameters()])


class Observer(Callback):
    """Sees every gradient."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: Any) -> None:
        self.norms.append(float(optimizer.gradient.norm()))


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_callbacks_and_optimiser_hooks_see_every_step_and_change_nothing(kit: SimpleNamespace, capture: str) -> None:
    alone, observed, hooked = (make(kit, capture=capture) for _ in range(3))
    observer, calls = Observer(), []

    class Hook(Callback):
        def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
            trainer.optimizers[0].register_step_post_hook(lambda *_: calls.append(1))

    trainers = [kit.fit(alone), kit.fit(observed, callbacks=[observer]), kit.fit(hooked, callbacks=[Hook()])]
    assert [trainer.global_step for trainer in trainers] == [16, 16, 16]
    assert len(observer.norms) == len(calls) == 16
    assert 0.0 < max(observer.norms) <= 0.5 + 1e-5, "what is seen is limited already"
    assert torch.equal(flat(alone), flat(observed))
    assert torch.equal(flat(alone), flat(hooked))


@pytest.mark.slow
def test_a_batch_that_was_saved_may_return_a_loss_besides_its_steps(kit: SimpleNamespace, tmp_path: Path) -> None:
    class Reporting(PPO):
        def training_step(self, rollout: Rollout, batch_idx: int) -> Any:
            super().training_step(rollout, batch_idx)
            return {"loss": torch.zeros(())}

    kit.fit(make(kit, Reporting, batch_size=10, n_optimization_epochs=2), callbacks=[Saving(tmp_path)])
    assert len(list(tmp_path.iterdir())) == 2

    class Returning(Reporting):
        def training_step(self, rollout: Rollout, batch_idx: int) -> Any:
            return torch.zeros(()) if batch_idx else super().training_step(rollout, batch_idx)

    with pytest.raises(TypeError, match=r"training_step of Returning returned a loss.* and took no gradient step"):
        kit.fit(make(kit, Returning, batch_size=10, n_optimization_epochs=2), callbacks=[Saving(tmp_path)])


def test_profilers_count_optimisation_steps(kit: SimpleNamespace) -> None:
    trainer = kit.fit(make(kit), profiler="simple")
    assert len(trainer.profiler.recorded_durations["optimizer_step"]) == 16


@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_a_module_that_has_learned_can_be_copied(kit: SimpleNamespace, algorithm: Any) -> None:
    module = make(kit, algorithm)
    kit.fit(module)
    other = copy.deepcopy(module)
    assert isinstance(other._gradient_steps, GradientSteps)
    before = flat(module)
    kit.fit(other)
    assert torch.equal(flat(module), before)
    assert not torch.equal(flat(other), before)


@pytest.mark.parametrize("limit", [0.0, 1e-3])
def test_recorded_norms_are_those_before_the_limit(kit: SimpleNamespace, limit: float) -> None:
    names = [f"ActorCriticEvents/{network}_grad_norm/substep_0" for network in ("policy", "critic")]
    numbers = []
    for options in ({"capture": "auto"}, {"capture": "off"}, {"capture": "off", "max_grad_norm": 0.0}):
        module = make(kit, batch_size=40, **{"max_grad_norm": limit, **options})
        kit.fit(module, length=1)
        numbers.append([module.epoch_statistics["train"][name] for name in names])
    assert min(numbers[2]) > 1e-3
    assert numbers[0] == pytest.approx(numbers[2], rel=1e-4)
    assert numbers[1] == pytest.approx(numbers[2], rel=1e-4)


# ----------------------------------------------------------------------------------- numbers that are not finite


def spoiled(kit: SimpleNamespace, reward: float) -> Any:
    """Makes rollouts of which the second has one wrong reward."""

    def make_rollout(seed: int) -> Rollout:
        rollout: Rollout = kit.make_flat_rollout(seed=seed)
        if seed:
            rollout.rows.reward[3, 1] = reward
        return rollout

    return make_rollout


class Saving(Callback):
    """Writes a checkpoint as early as a callback can."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


@pytest.mark.parametrize(
    ("algorithm", "capture", "reward"),
    [(A2C, "auto", float("inf")), (A2C, "off", 1e30), (PPO, "auto", float("nan")), (PPO, "off", float("nan"))],
)
def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_saved(
    kit: SimpleNamespace, tmp_path: Path, algorithm: Any, capture: str, reward: float
) -> None:
    module = make(kit, algorithm, capture=capture)
    message = r"loss.* of step key 0 became NaN or infinite in epoch 0, at env step 80 .*lower lr=.*max_grad_norm"
    with pytest.raises(ValueError, match=message):
        kit.fit(module, make=spoiled(kit, reward), length=3, callbacks=[Saving(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["1.ckpt" if algorithm is A2C else "8.ckpt"]


@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("capture", ["auto", "off"])
def test_a_gradient_that_is_not_finite_is_noticed_behind_a_finite_loss(
    kit: SimpleNamespace, capture: str, limit: float
) -> None:
    class Edge(PPO):
        def loss(self, minibatch: Any) -> Tensor:
            bias = next(self.policy.parameters()).sum()
            return super().loss(minibatch) + (bias - bias.detach()).sqrt()  # 0, with an infinite slope

    networks, sizes = kit.make_actor_critic(), {"batch_size": 40, "n_optimization_epochs": 1}
    module = Edge(actor_critic=networks, max_grad_norm=limit, capture=capture, **sizes)
    with pytest.raises(ValueError, match=r"gradient.* became NaN or infinite in epoch 0"):
        kit.fit(module, length=1)


def test_a_users_loss_is_watched_too(kit: SimpleNamespace) -> None:
    class Broken(AlgorithmModule):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            total = sum(parameter.sum() for parameter in self.policy.parameters())
            self.gradient_step(total / (0.0 if batch_idx else 1.0))

    with pytest.raises(ValueError, match=r"^loss became NaN or infinite .*optimisation step 1 of 1"):
        kit.fit(Broken(actor_critic=kit.make_actor_critic()))
