"""Algorithms and data modules that do not fit together are refused in one line, before environments are made."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from maze_pl.core.batches import Experience, ReplayBatch, Rollout, TrajectoryBatch
from maze_pl.core.population import PopulationBatch
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import (
    ActorDataModule,
    PopulationDataModule,
    ReplayDataModule,
    RolloutDataModule,
    TrajectoryDataModule,
)
from maze_pl.datasets import InMemoryDataset
from maze_pl.modules import A2C, BC, ES, IMPALA, PPO, SAC, AlgorithmModule
from tests.modules.kit import KIT

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`", "ignore:Total length of"
)

LEARNED = {A2C: Rollout, PPO: Rollout, IMPALA: Rollout, SAC: ReplayBatch, BC: TrajectoryBatch, ES: PopulationBatch}


@pytest.fixture
def kit() -> SimpleNamespace:
    """Small networks and rollouts made by hand."""
    return KIT


def unwanted() -> Any:
    raise AssertionError("no environment is needed to find out")


def data_modules() -> dict[type, Any]:
    return {
        Rollout: RolloutDataModule(unwanted, n_envs=1),
        ReplayBatch: ReplayDataModule(unwanted),
        TrajectoryBatch: TrajectoryDataModule(InMemoryDataset("nowhere"), unwanted),
        PopulationBatch: PopulationDataModule(unwanted, shared_noise_table_size=10),
    }


def refusal(kit: SimpleNamespace, module: Any, data: Any) -> str:
    with pytest.raises(ValueError) as error:
        kit.make_trainer(1).fit(module, datamodule=data)
    message = str(error.value)
    assert "\n" not in message
    return message


class Plain(AlgorithmModule):
    """Steps without a look at the data."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.gradient_step(sum((parameter.sum() for parameter in self.policy.parameters()), torch.zeros(())))


class Declaring(Plain):
    batch_type = ReplayBatch


class Annotated(Plain):
    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)


class Lenient(Plain):
    def training_step(self, batch: Experience, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA, BC, ES])
@pytest.mark.parametrize("delivered", [Rollout, ReplayBatch, TrajectoryBatch, PopulationBatch])
def test_batches_of_another_class_are_refused_before_environments_are_made(
    kit: SimpleNamespace, algorithm: Any, delivered: type
) -> None:
    learned = LEARNED[algorithm]
    data = data_modules()[delivered]
    module = algorithm(actor_critic=kit.make_actor_critic())
    if learned is delivered:
        return
    message = refusal(kit, module, data)
    start = f"{algorithm.__name__} learns from {learned.__name__} batches, but {type(data).__name__} delivers "
    assert message.startswith(start + delivered.__name__)
    others = {Rollout: "ActorDataModule or ", TrajectoryBatch: "SelfLabellingDataModule or "}
    assert f"use {others.get(learned, '')}{type(data_modules()[learned]).__name__}" in message


@pytest.mark.parametrize("algorithm", LEARNED)
def test_every_algorithm_and_data_module_declares_its_batches(algorithm: Any) -> None:
    assert algorithm.batch_type is LEARNED[algorithm]
    declared = {kind.batch_type for kind in (ActorDataModule, *(type(data) for data in data_modules().values()))}
    assert declared == set(LEARNED.values())


def test_other_algorithms_for_the_data_are_named(kit: SimpleNamespace) -> None:
    message = refusal(kit, PPO(actor_critic=kit.make_actor_critic()), data_modules()[ReplayBatch])
    others = message.partition("or an algorithm that learns from ReplayBatch: ")[2]
    assert "SAC" in re.split(", | or ", others)


@pytest.mark.parametrize("own", [Declaring, Annotated])
def test_own_modules_are_checked_by_their_declaration_or_else_by_their_annotation(
    kit: SimpleNamespace, own: Any
) -> None:
    message = refusal(kit, own(actor_critic=kit.make_actor_critic()), data_modules()[Rollout])
    assert message.startswith(f"{own.__name__} learns from ReplayBatch batches, but RolloutDataModule delivers Rollout")
    assert "ReplayDataModule" in message
    with pytest.raises(ValueError, match=f"^{own.__name__} learns from ReplayBatch batches, not from a Rollout: use "):
        kit.fit(own(actor_critic=kit.make_actor_critic()))


class OfLightning(pl.LightningModule):
    """Derives from no class of maze_pl."""

    def training_step(self, batch: ReplayBatch, batch_idx: int) -> None:
        raise AssertionError("no batch fits")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        raise AssertionError("there is no evaluation")

    def configure_optimizers(self) -> None:
        return None


def test_modules_of_lightning_are_checked_by_the_data_module(kit: SimpleNamespace) -> None:
    message = refusal(kit, OfLightning(), data_modules()[Rollout])
    assert message.startswith("OfLightning learns from ReplayBatch batches, but RolloutDataModule delivers Rollout")


@pytest.mark.parametrize("own", [Plain, Lenient])
def test_a_module_that_accepts_more_is_given_it(kit: SimpleNamespace, own: Any) -> None:
    assert kit.fit(own(actor_critic=kit.make_actor_critic())).global_step == 2


class OwnData(pl.LightningDataModule):
    """Delivers lists without a word about it."""

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader([1, 2])  # type: ignore[arg-type]


class TensorData(OwnData):
    batch_type = Tensor


def test_batches_of_own_data_modules_are_checked_when_they_come(kit: SimpleNamespace) -> None:
    message = refusal(kit, PPO(actor_critic=kit.make_actor_critic()), OwnData())
    assert message.startswith("PPO learns from Rollout batches, not from a Tensor: use ")
    message = refusal(kit, PPO(actor_critic=kit.make_actor_critic()), TensorData())
    assert message.startswith("PPO learns from Rollout batches, but TensorData delivers Tensor: use ")


class OwnLearner(Plain):
    """Learns from an own class of batches that nobody delivers."""

    class OwnBatch:
        pass

    batch_type = OwnBatch


def test_a_class_of_batches_that_no_data_module_delivers_is_named(kit: SimpleNamespace) -> None:
    message = refusal(kit, OwnLearner(actor_critic=kit.make_actor_critic()), data_modules()[Rollout])
    assert "use a data module whose batch_type is OwnBatch" in message


def test_a_batch_size_that_fits_no_rollout_is_refused_before_environments_are_made(kit: SimpleNamespace) -> None:
    module = PPO(actor_critic=kit.make_actor_critic(), batch_size=48)
    for data in (
        RolloutDataModule(unwanted, n_envs=1, n_rollout_steps=100),
        ActorDataModule(unwanted, num_actors=6, actors_batch_size=5, queue_out_of_sync_factor=2, n_rollout_steps=20),
    ):
        assert re.match(
            r"batch_size=48 does not divide .* = 100; use a factor such as 25 or 50", refusal(kit, module, data)
        )


@pytest.mark.parametrize(
    ("requirements", "needed"), [(ReplayDataModule, "gamma"), (PopulationDataModule, "noise_stddev")]
)
def test_what_the_data_needs_to_know_of_the_algorithm_is_named(
    kit: SimpleNamespace, requirements: Any, needed: str
) -> None:
    class Silent(Plain):
        pass

    data = requirements(unwanted, evaluators={})
    message = refusal(kit, Silent(actor_critic=kit.make_actor_critic()), data)
    assert message.startswith(f"Silent states no {needed}, by which ")
    assert message.endswith(f"return DataRequirements({needed}=...) from its data_requirements()")


def test_shipped_algorithms_state_what_their_data_depends_on(kit: SimpleNamespace) -> None:
    assert ES(actor_critic=kit.make_actor_critic(), noise_stddev=0.1).data_requirements() == DataRequirements(
        noise_stddev=0.1
    )
    assert PPO(actor_critic=kit.make_actor_critic()).data_requirements() == DataRequirements()
