"""Parameters that callbacks freeze or add while a run goes on, as by Lightning's `BaseFinetuning`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BaseFinetuning
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.modules import PPO, ParameterGroup
from maze_pl.modules.optimization.flat_adam import FlatAdam
from maze_pl.modules.optimization.frozen_parameters import frozen_names, restore_frozen
from maze_pl.modules.optimization.optimizer_options import flattened
from maze_pl.modules.optimization.step_plan import LossOwner, make_plan
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

VARIANTS: dict[str, Any] = {
    "adam": partial(Adam, lr=0.01, weight_decay=0.1),
    "adamw": partial(AdamW, lr=0.01, weight_decay=0.1),
    "sgd": partial(SGD, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
}


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


# ------------------------------------------------------------------------------------------------- flat optimisers


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def groups(network: nn.Sequential) -> list[dict[str, Any]]:
    return [{"params": list(network[index].parameters())} for index in (0, 2)]


def train(network: nn.Module, optimizer: Optimizer, seeds: range) -> None:
    for seed in seeds:
        optimizer.zero_grad()
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed))
        (network(x) - x.sum(-1, keepdim=True)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("frozen", [["0.weight"], ["0.bias"], ["2.weight", "2.bias"], ["0.weight", "2.bias"]])
def test_freezing_and_unfreezing_have_the_effect_that_they_have_in_torch(variant: str, frozen: list[str]) -> None:
    results = []
    for convert in (flattened, lambda optimizer: optimizer):
        network = make_network()
        optimizer = convert(VARIANTS[variant](groups(network)))
        for is_frozen, seeds in ((False, range(3)), (True, range(3, 9)), (False, range(9, 12))):
            for name in frozen:
                network.get_parameter(name).requires_grad_(not is_frozen)
            before = {name: network.get_parameter(name).detach().clone() for name in frozen}
            train(network, optimizer, seeds)
            for name, value in before.items():
                assert torch.equal(network.get_parameter(name), value) is is_frozen
        results.append((flat(network), optimizer.state_dict()["state"]))
    (ours, our_state), (theirs, their_state) = results
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for index, entry in their_state.items():
        for name, value in entry.items():
            if isinstance(value, Tensor):
                torch.testing.assert_close(our_state[index][name], value, rtol=0, atol=1e-6)


def test_counts_of_steps_that_differ_within_a_group_survive_saving_and_loading() -> None:
    def interrupted(is_saved: bool) -> Tensor:
        network = make_network()
        optimizer = FlatAdam(network.parameters(), lr=0.01)
        for name, seeds in (("2.bias", range(4)), ("0.weight", range(4, 6))):
            network.requires_grad_(True).get_parameter(name).requires_grad_(False)
            train(network, optimizer, seeds)
        network.requires_grad_(True)
        if is_saved:
            state = optimizer.state_dict()
            optimizer = FlatAdam(network.parameters(), lr=0.01)
            optimizer.load_state_dict(state)
        assert [float(optimizer.state[one]["step"]) for one in network.parameters()] == [4.0, 6.0, 6.0, 2.0]
        train(network, optimizer, range(6, 9))
        return flat(network)

    assert torch.equal(interrupted(is_saved=False), interrupted(is_saved=True))


# -------------------------------------------------------------------------------------------------------- algorithms


class Frozen(pl.Callback):
    """Freezes a layer of the policy from one epoch to another, and keeps its values at the end of each epoch."""

    def __init__(self, first: int, end: int) -> None:
        self.epochs = range(first, end)
        self.values: list[Tensor] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.layer(pl_module).requires_grad_(trainer.current_epoch not in self.epochs)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.values.append(flat(self.layer(pl_module)))

    @staticmethod
    def layer(module: Any) -> nn.Module:
        layer: nn.Module = module.policy.networks[0][0].body[0]
        return layer


def fitted(
    callback: pl.Callback, epochs: int = 3, ckpt_path: Path | None = None, **options: Any
) -> tuple[Any, pl.Trainer]:
    torch.manual_seed(1)
    given = {"batch_size": 20, "n_optimization_epochs": 2, "lr": 0.01, "max_grad_norm": 0.5, "capture": "off"}
    module = PPO(actor_critic=KIT.make_actor_critic(), **{**given, **options})
    return module, KIT.fit(module, epochs=epochs, length=2, callbacks=[callback], ckpt_path=ckpt_path)


@pytest.mark.parametrize("optimizer", ["adam", RMSprop])
@pytest.mark.parametrize("capture", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_layer_frozen_by_a_callback_is_not_trained_traced_or_not(capture: str, optimizer: Any) -> None:
    callback = Frozen(1, 2)
    module, _ = fitted(callback, capture=capture, optimizer=optimizer)
    first, second, third = callback.values
    assert torch.equal(first, second) and not torch.equal(second, third)
    if capture == "auto":
        assert module.capture_refusal is None and module.n_traces == 2
        eager, _ = fitted(Frozen(1, 2), optimizer=optimizer)
        torch.testing.assert_close(flat(module), flat(eager), rtol=1e-4, atol=1e-6)
    else:
        never, _ = fitted(Frozen(9, 9), optimizer=optimizer)
        assert not torch.allclose(flat(module), flat(never), rtol=1e-2, atol=1e-4)


def test_a_loss_is_traced_again_for_other_parameters() -> None:
    keys = []

    class Keys(Frozen):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            owner = LossOwner(pl_module, (), ())
            plan = make_plan(pl_module, 0, 0.5, owner)
            assert plan.owner is not None
            keys.append((len(plan.parameters), plan.owner.settings[1]))

    fitted(Keys(1, 2))
    assert keys[:2] == keys[4:] == [(8, ())] * 2
    assert keys[2:4] == [(6, (0, 1))] * 2


def test_a_run_with_everything_frozen_changes_nothing() -> None:
    class Everything(Frozen):
        @staticmethod
        def layer(module: Any) -> nn.Module:
            return module.networks  # type: ignore[no-any-return]

    callback = Everything(1, 3)
    fitted(callback)
    assert torch.equal(callback.values[0], callback.values[2])


class Unfreeze(BaseFinetuning):
    """Trains the first layer of the policy from the second epoch on, with a smaller learning rate."""

    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(Frozen.layer(pl_module))

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Optimizer) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(Frozen.layer(pl_module), optimizer, lr=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", RMSprop])
def test_parameters_that_a_callback_adds_keep_its_learning_rate(optimizer: Any) -> None:
    module, trainer = fitted(Unfreeze(), optimizer=optimizer, lr_schedule="linear")
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    assert rates == pytest.approx([0.01 / 6, 0.01 / 6, 1e-5])
    moved = flat(Frozen.layer(module)) - flat(KIT.make_actor_critic().policy.networks[0][0].body[0])
    assert 0.0 < float(moved.abs().max()) < 1e-3  # at most 16 steps of about 1e-5; RMSprop begins with larger ones
    grouped = {"*.bias": ParameterGroup(lr=0.002)}
    _, trainer = fitted(Unfreeze(), optimizer=optimizer, optimizer_groups=grouped)
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == [0.01, 0.002, 0.01, 0.002, 1e-5]


def continued(path: Path, optimizer: Any, *, is_earlier: bool = False) -> tuple[Any, pl.Trainer]:
    """Train two epochs, and continue to four with another module.

    Args:
        path: File of the checkpoint.
        optimizer: The optimiser.
        is_earlier: Whether the checkpoint is that of an earlier version, without names of frozen parameters.
    """
    fitted(Unfreeze(), epochs=2, optimizer=optimizer)[1].save_checkpoint(path)
    if is_earlier:
        content = torch.load(path, weights_only=True)
        del content[CHECKPOINT_KEY]["frozen"]
        torch.save(content, path)
    return fitted(Unfreeze(), epochs=4, optimizer=optimizer, ckpt_path=path)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", RMSprop])
def test_a_run_that_is_resumed_after_unfreezing_continues_as_the_whole_run(optimizer: Any, tmp_path: Path) -> None:
    whole, _ = fitted(Unfreeze(), epochs=4, optimizer=optimizer)
    resumed, trainer = continued(tmp_path / "two.ckpt", optimizer)
    assert torch.equal(flat(resumed), flat(whole))
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == [0.01, 0.01, 1e-5]


def test_batch_normalisation_that_was_unfrozen_continues_to_keep_its_statistics() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    first, second = cast(Any, network[1]), cast(Any, network[2])
    optimizer = SGD(network.parameters(), lr=0.1)
    BaseFinetuning.freeze(network, train_bn=False)
    restore_frozen(network, [optimizer], {"frozen": ["2.weight", "2.bias"]}, "two.ckpt")
    assert first.track_running_stats and not second.track_running_stats
    assert frozen_names(network, [optimizer]) == ["2.weight", "2.bias"]
    network(torch.ones(4, 2))
    assert int(first.num_batches_tracked) == 1 and int(second.num_batches_tracked) == 0


def test_checkpoints_of_earlier_versions_leave_frozen_what_callbacks_freeze(tmp_path: Path) -> None:
    resumed, _ = continued(tmp_path / "two.ckpt", "adam", is_earlier=True)
    assert not any(parameter.requires_grad for parameter in Frozen.layer(resumed).parameters())


def test_a_run_that_starts_with_the_weights_of_another_one_freezes_again(tmp_path: Path) -> None:
    fitted(Unfreeze(), epochs=2)[1].save_checkpoint(tmp_path / "two.ckpt")
    torch.manual_seed(1)
    module = PPO(actor_critic=KIT.make_actor_critic(), batch_size=20, n_optimization_epochs=1, capture="off")
    content = torch.load(tmp_path / "two.ckpt", weights_only=True)
    module.load_state_dict(content["state_dict"])
    module.on_load_checkpoint(content)
    before = flat(Frozen.layer(module))
    KIT.fit(module, epochs=1, length=2, callbacks=[Unfreeze()])
    assert torch.equal(flat(Frozen.layer(module)), before)
