"""In half precision only networks compute with few digits: what they learn from keeps its numbers."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins import HalfPrecision
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchDeltaStateCritic
from maze_pl.core.batches import Batch
from maze_pl.core.population import NoiseTable, PopulationBatch
from maze_pl.core.spaces import leaves
from maze_pl.modules import A2C, ES, IMPALA, PPO, AlgorithmModule
from tests.modules.sac_reference import make, replay_batch

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`", "ignore:with tau="
)


class Observed(pl.Callback):
    """Notes the batches that an algorithm learns from."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note the batch."""
        self.batches.append(batch)


def floats_of(batch: Batch) -> list[Tensor]:
    return [leaf for leaf in leaves(batch) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def assert_kept(found: Batch, given: Batch) -> None:
    pairs = list(zip(floats_of(found), floats_of(given), strict=True))
    assert pairs
    for tensor, other in pairs:
        assert tensor.dtype == other.dtype and torch.equal(tensor, other)


def is_half_and_finite(module: AlgorithmModule) -> bool:
    return all(one.dtype == torch.bfloat16 and bool(one.isfinite().all()) for one in module.networks.parameters())


def delta_networks(kit: SimpleNamespace) -> TorchActorCritic:
    networks = kit.make_actor_critic(kit.flat_spec)
    return TorchActorCritic(networks.policy, TorchDeltaStateCritic([networks.critic.network], kit.flat_spec))


ON_POLICY: dict[str, Any] = {
    "A2C": A2C,
    "PPO": partial(PPO, batch_size=8, target_kl=1.0),
    "IMPALA": IMPALA,
}


@pytest.mark.parametrize("name", ON_POLICY)
@pytest.mark.parametrize("critic", ["shared", "step", "delta"])
@pytest.mark.parametrize("crew_acts", [True, False])
def test_rollouts_keep_their_numbers_with_every_kind_of_critic(
    kit: SimpleNamespace, name: str, critic: str, crew_acts: bool
) -> None:
    is_team = critic != "delta"
    rollouts = partial(kit.make_team_rollout, crew_acts=crew_acts) if is_team else kit.make_flat_rollout
    networks = kit.make_actor_critic(kit.team_spec, critic) if is_team else delta_networks(kit)
    module = ON_POLICY[name](actor_critic=networks, lr=1e-2)
    observed = Observed()
    kit.fit(module, rollouts, precision="bf16-true", callbacks=[observed])
    assert_kept(observed.batches[0], rollouts(seed=0))
    assert is_half_and_finite(module)


@pytest.mark.parametrize("kind", ["continuous", "masked_bits"])
def test_acts_of_replay_keep_their_numbers(kit: SimpleNamespace, kind: str) -> None:
    module, observed = make(kind), Observed()
    kit.fit(module, partial(replay_batch, kind, 2), precision="bf16-true", callbacks=[observed])
    assert_kept(observed.batches[0], replay_batch(kind, 2, 0))
    assert is_half_and_finite(module)


def test_returns_of_populations_keep_their_numbers(kit: SimpleNamespace) -> None:
    returns = torch.tensor([[100.3, 100.4], [100.5, 0.999]])
    module, observed = ES(actor_critic=kit.make_actor_critic()), Observed()

    def population(seed: int) -> PopulationBatch:
        return PopulationBatch(NoiseTable(0, 100), [0, 9], returns)

    kit.fit(module, population, precision="bf16-true", callbacks=[observed])
    assert_kept(observed.batches[0], population(0))
    assert is_half_and_finite(module)


class Weighted(A2C):
    """Multiplies its loss by parameters that it makes with its networks, and by a scheduled option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.weight = self.coefficient("weight", lambda progress: 0.3)

    def configure_model(self) -> None:
        """Make the parameters."""
        super().configure_model()
        first, second, third = (nn.Parameter(torch.tensor(0.2).log()) for _ in range(3))
        self.log_weight = first
        self.by_name = nn.ParameterDict({"log_weight": second})
        self.in_order = nn.ParameterList([third])

    def log_weights(self) -> list[Tensor]:
        """Return the parameters."""
        return [self.log_weight, self.by_name["log_weight"], self.in_order[0]]

    def loss(self, minibatch: Any) -> Tensor:
        """Compute the loss."""
        return self.weight * torch.stack(self.log_weights()).exp().prod() * super().loss(minibatch)


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_parameters_and_options_of_the_algorithm_itself_keep_their_digits(kit: SimpleNamespace, capture: Any) -> None:
    module = Weighted(actor_critic=kit.make_actor_critic(), lr=1e-4, capture=capture)
    kit.fit(module, precision="bf16-true")
    assert is_half_and_finite(module) and module.capture_refusal is None
    assert float(module.weight) == float(torch.tensor(0.3))
    moved = float(module.log_weight.detach()) - math.log(0.2)
    assert 1e-5 < abs(moved) < 3e-4, "two steps of Adam"
    for log_weight in module.log_weights():
        assert float(log_weight.detach()) == float(module.log_weight.detach())


class Remembers(A2C):
    """Notes the default type in which it learns."""

    default: torch.dtype | None = None

    def training_step(self, rollout: Any, batch_idx: int) -> None:
        """Learn from a rollout."""
        self.default = torch.get_default_dtype()
        super().training_step(rollout, batch_idx)


class Plain(pl.LightningModule):
    """A module that has nothing to do with maze_pl."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.types: list[torch.dtype] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """Note the types of the batch, and of new tensors."""
        self.types += [batch.dtype, torch.zeros(1).dtype]
        return self.layer(batch).sum()

    def configure_optimizers(self) -> Any:
        """Create an optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_new_tensors_are_of_single_precision_and_other_modules_are_left_alone(kit: SimpleNamespace) -> None:
    module, plain = Remembers(actor_critic=kit.make_actor_critic()), Plain()
    trainer = kit.fit(module, precision="bf16-true")
    assert module.default == torch.float32
    assert type(trainer.precision_plugin) is HalfPrecision
    trainer.fit_loop.max_epochs += 1
    trainer.fit(plain, torch.utils.data.DataLoader(torch.ones(1, 3)))
    assert plain.types == [torch.bfloat16, torch.bfloat16]
