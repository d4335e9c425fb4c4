"""Schedulers of `configure_optimizers` are stepped as Lightning steps them under automatic optimisation."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateMonitor
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedules

from maze_pl.core.batches import Rollout, TrajectoryBatch, TransitionBatch
from maze_pl.core.population import NoiseTable, PopulationBatch
from maze_pl.modules import BC, ES, PPO, AlgorithmModule, FlatAdam
from tests.exact.comparison import differences, without_times

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

RETURNS = "eval/return"
N_BATCHES = 3


def plateau(optimizer: Any) -> Any:
    return schedules.ReduceLROnPlateau(optimizer, "max", factor=0.5, patience=0, threshold=1e6)


def one_cycle(optimizer: Any) -> Any:
    return schedules.OneCycleLR(optimizer, 0.1, total_steps=40, cycle_momentum=False)


def chained(optimizer: Any) -> Any:
    return schedules.ChainedScheduler([schedules.ExponentialLR(optimizer, 0.9), schedules.StepLR(optimizer, 2, 0.5)])


def in_turn(optimizer: Any) -> Any:
    parts = [schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)]
    return schedules.SequentialLR(optimizer, parts, [2])


CONFIGURATIONS: dict[str, Any] = {
    "alone": lambda optimizer: ([optimizer], [schedules.ExponentialLR(optimizer, 0.5)]),
    "epochs": lambda optimizer: {"optimizer": optimizer, "lr_scheduler": schedules.StepLR(optimizer, 2, 0.1)},
    "batches": lambda optimizer: {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": one_cycle(optimizer), "interval": "step"},
    },
    "every second batch": lambda optimizer: {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": chained(optimizer), "interval": "step", "frequency": 2},
    },
    "every second epoch": lambda optimizer: {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": in_turn(optimizer), "frequency": 2},
    },
    "plateau": lambda optimizer: {"optimizer": optimizer, "lr_scheduler": plateau(optimizer), "monitor": RETURNS},
    "both": lambda optimizer: (
        [optimizer],
        [
            {"scheduler": plateau(optimizer), "monitor": RETURNS, "frequency": 2},
            {"scheduler": schedules.ExponentialLR(optimizer, 0.9), "interval": "step"},
        ],
    ),
}


class Watch(pl.Callback):
    """Keeps the learning rates with which steps were made."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.rates.append(optimizer.param_groups[-1]["lr"])


class Reference(pl.LightningModule):
    """A module of Lightning that optimises automatically."""

    def __init__(self, configuration: Any) -> None:
        super().__init__()
        self.layer, self.configuration = nn.Linear(3, 1), configuration

    def configure_optimizers(self) -> Any:
        return self.configuration(torch.optim.Adam(self.parameters(), lr=0.01))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return torch.as_tensor(self.layer(batch).mean())

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log(RETURNS, 1.0)


class Scheduled(PPO):
    """PPO with schedulers."""

    configuration: Any = None

    def configure_optimizers(self) -> Any:
        return type(self).configuration(super().configure_optimizers())


class Lowering(Scheduled):
    """A loss that is annealed by the epoch."""

    def loss(self, minibatch: Any) -> Tensor:
        return super().loss(minibatch) / (1 + self.current_epoch)


def scheduled(configuration: Any, kind: Any = Scheduled) -> Any:
    return type(kind.__name__, (kind,), {"configuration": staticmethod(configuration)})


def make(kit: SimpleNamespace, kind: Any, **options: Any) -> Any:
    given = {"batch_size": 40, "n_optimization_epochs": 1, "lr": 0.01, **options}
    return kind(actor_critic=kit.make_actor_critic(), **given)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_steps_are_made_with_the_rates_of_automatic_optimisation(kit: SimpleNamespace, name: str) -> None:
    theirs, ours = Watch(), Watch()
    nothing = SimpleNamespace(env_steps=0)
    batches, episodes = (kit.Source(nothing, lambda seed: torch.ones(2, 3), n) for n in (N_BATCHES, 1))
    trainer = kit.make_trainer(5, callbacks=[theirs])
    trainer.fit(Reference(CONFIGURATIONS[name]), batches, episodes)
    module = make(kit, scheduled(CONFIGURATIONS[name]))
    kit.fit(module, epochs=5, length=N_BATCHES, callbacks=[ours])
    assert len(set(theirs.rates)) > 1
    assert ours.rates == pytest.approx(theirs.rates)


@pytest.mark.slow
def test_traced_updates_see_every_rate_and_the_log_shows_it(kit: SimpleNamespace) -> None:
    """The built-in schedule, written as a scheduler, gives the same parameters bit by bit."""

    def linear(optimizer: Any) -> Any:
        schedule = schedules.LambdaLR(optimizer, lambda index: max(0.0, 1.0 - index / 6))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    results, logged = [], []
    for kind, options in (
        (PPO, {"lr_schedule": "linear"}),
        (scheduled(linear), {}),
        (scheduled(linear), {"capture": "off"}),
    ):
        torch.manual_seed(1)
        module = make(kit, kind, batch_size=10, **options)
        kit.fit(module, epochs=3, length=2)
        assert module.capture_refusal is None
        results.append(flat(module))
        logged.append(module.epoch_statistics["train"]["ActorCriticEvents/learning_rate"])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert logged == pytest.approx([0.01 * (2 / 6 + 1 / 6) / 2] * 3)


class Save(pl.Callback):
    """Keeps checkpoints of all moments at which callbacks write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 3 and trainer.fit_loop.batch_idx == 0:
            trainer.save_checkpoint(self.folder / "batch.ckpt")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / "validation.ckpt")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # before that of the algorithm
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / "early.ckpt")


class SaveEpoch(pl.callbacks.Checkpoint):
    """Keeps a checkpoint of the end of an epoch, as `LastCheckpoint` does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 2:
            trainer.save_checkpoint(self.folder / "epoch.ckpt")


class Quiet(pl.callbacks.Checkpoint):
    """Keeps Lightning from adding a checkpoint callback of its own."""


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
@pytest.mark.parametrize(
    ("name", "capture"),
    [
        *((name, "off") for name in ("batches", "every second batch", "every second epoch", "plateau")),
        pytest.param("both", "auto", marks=pytest.mark.slow),
    ],
)
def test_resuming_ends_where_the_whole_run_ends(kit: SimpleNamespace, tmp_path: Path, name: str, capture: Any) -> None:
    kind, networks = scheduled(CONFIGURATIONS[name], Lowering), kit.make_actor_critic()

    def run(path: str, callbacks: tuple[Any, ...] = (), **options: Any) -> Any:
        torch.manual_seed(1)
        module = kind(actor_critic=copy.deepcopy(networks), batch_size=20, lr=0.01, capture="off")
        trainer = kit.fit(
            module, epochs=6, length=N_BATCHES, enable_checkpointing=True, callbacks=[*callbacks, Quiet()], **options
        )
        trainer.save_checkpoint(tmp_path / path)
        saved = torch.load(tmp_path / path, weights_only=True)
        kept = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch", "maze_pl")
        return without_times({key: saved[key] for key in kept})

    whole = run("whole.ckpt", callbacks=(Save(tmp_path), SaveEpoch(tmp_path)))
    for point in ("epoch", "early", "validation", "batch"):
        resumed = run(f"from_{point}.ckpt", ckpt_path=tmp_path / f"{point}.ckpt")
        assert differences(whole, resumed) == [], point


class SaveEach(pl.callbacks.Checkpoint):
    """Keeps a checkpoint of each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.current_epoch + 1}.ckpt")


def lenient(optimizer: Any) -> Any:
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": plateau(optimizer), "monitor": RETURNS, "strict": False},
    }


@pytest.mark.filterwarnings("ignore:.*which has no value")
def test_a_value_of_a_rare_evaluation_is_monitored_until_the_next_one_also_when_resumed(
    kit: SimpleNamespace, tmp_path: Path
) -> None:
    kind, networks = scheduled(lenient), kit.make_actor_critic()

    def run(*callbacks: Any, **options: Any) -> list[float]:
        module = make(kit, kind, capture="off")
        module.actor_critic = copy.deepcopy(networks)
        watch, given = Watch(), {"enable_checkpointing": True, "check_val_every_n_epoch": 3, **options}
        kit.fit(module, epochs=7, length=1, callbacks=[watch, *callbacks], **given)
        return watch.rates

    whole = run(SaveEach(tmp_path))
    # The evaluation after epoch 3 is the best so far; from epoch 4 on, the value does not improve.
    assert whole == pytest.approx([0.01] * 4 + [0.01 / 2**index for index in (1, 2, 3)])
    for epoch in range(3, 7):
        path = tmp_path / f"{epoch}.ckpt"
        assert run(SaveEach(tmp_path / "second"), ckpt_path=path) == whole[epoch:]
        if epoch < 6:
            again = tmp_path / "second" / f"{epoch + 1}.ckpt"
            assert run(Quiet(), ckpt_path=again) == whole[epoch + 1 :]


class Halves(AlgorithmModule):
    """Policy and critic with optimisers of their own, one of them not flat, both with a scheduler."""

    def configure_optimizers(self) -> Any:
        assert self.critic is not None
        policy, critic = FlatAdam(self.policy.parameters(), lr=0.1), torch.optim.SGD(self.critic.parameters(), lr=0.2)
        first = {"scheduler": schedules.ExponentialLR(policy, 0.5), "interval": "step"}
        return [policy, critic], [first, schedules.ExponentialLR(critic, 0.1)]

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        total = torch.stack([parameter.sum() for parameter in self.parameters()]).sum()
        self.gradient_step(total, optimizer=0)
        total = torch.stack([parameter.sum() for parameter in self.parameters()]).sum()
        self.gradient_step(total, optimizer=1)


def test_each_optimiser_has_its_own_scheduler(kit: SimpleNamespace) -> None:
    watch, module = Watch(), Halves(actor_critic=kit.make_actor_critic())
    kit.fit(module, epochs=2, length=2, callbacks=[watch])
    assert watch.rates[::2] == pytest.approx([0.1, 0.05, 0.025, 0.0125])
    assert watch.rates[1::2] == pytest.approx([0.2, 0.2, 0.02, 0.02])
    table = module.epoch_statistics["train"]
    assert table["ActorCriticEvents/learning_rate"] == pytest.approx(0.01875)
    assert table["ActorCriticEvents/learning_rate_1"] == pytest.approx(0.02)


def test_burn_in_leaves_the_policys_rate_to_its_scheduler(kit: SimpleNamespace, tmp_path: Path) -> None:
    kind = scheduled(CONFIGURATIONS["alone"])
    module = make(kit, kind, critic_burn_in_epochs=2)
    before = flat(module.policy)
    trainer = kit.fit(module, epochs=2)
    assert torch.equal(flat(module.policy), before)
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == pytest.approx([0.0025, 0.0025])


def test_lightnings_monitor_shows_the_rates(kit: SimpleNamespace, tmp_path: Path) -> None:
    logger = pl.loggers.CSVLogger(tmp_path)
    module = make(kit, scheduled(CONFIGURATIONS["alone"]))
    trainer = kit.fit(module, epochs=2, logger=logger, callbacks=[LearningRateMonitor("epoch")], log_every_n_steps=1)
    assert {rates[-1] for rates in trainer.callbacks[0].lrs.values()} == {0.005}


def test_the_length_of_the_run_is_known_to_schedulers(kit: SimpleNamespace) -> None:
    class Cycle(PPO):
        def configure_optimizers(self) -> Any:
            optimizer, n_batches = super().configure_optimizers(), int(self.trainer.estimated_stepping_batches)
            schedule = schedules.OneCycleLR(optimizer, 0.1, total_steps=n_batches + 1, cycle_momentum=False)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    trainer = kit.fit(make(kit, Cycle), epochs=2, length=N_BATCHES)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 / 25 / 1e4)


# --------------------------------------------------------------------------------------------------------- refusals


def test_a_scheduler_and_a_schedule_contradict(kit: SimpleNamespace) -> None:
    module = make(kit, scheduled(CONFIGURATIONS["alone"]), lr_schedule="linear")
    with pytest.raises(ValueError, match=r"lr_schedule=linear and a scheduler of configure_optimizers contradict"):
        kit.fit(module)


def test_stepping_by_hand_too_is_refused(kit: SimpleNamespace) -> None:
    class ByHand(Scheduled):
        def training_step(self, rollout: Rollout, batch_idx: int) -> None:
            super().training_step(rollout, batch_idx)
            self.lr_schedulers().step()  # type: ignore[union-attr, call-arg]

    with pytest.raises(ValueError, match=r"ByHand are stepped automatically .*: remove lr_schedulers\(\).step\(\)"):
        kit.fit(make(kit, scheduled(CONFIGURATIONS["alone"], ByHand)))


@pytest.mark.parametrize("strict", [True, False])
def test_a_value_that_is_not_there_is_named(kit: SimpleNamespace, strict: bool) -> None:
    def configuration(optimizer: Any) -> Any:
        scheduler = {"scheduler": plateau(optimizer), "monitor": "eval/kpi/speed", "strict": strict}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    module, message = (
        make(kit, scheduled(configuration)),
        r"'eval/kpi/speed', which has no value; there is .*eval/return",
    )
    if strict:
        with pytest.raises(ValueError, match=message):
            kit.fit(module)
    else:
        with pytest.warns(UserWarning, match=message):
            kit.fit(module)


class Declaring(pl.LightningDataModule):
    """Batches and evaluations of an environment that declares its KPIs."""

    def __init__(self, kit: SimpleNamespace, module: Any, kpi_names: tuple[str, ...] | None) -> None:
        super().__init__()
        self.kpi_names = kpi_names
        self.n_collected = 0

        def collect(seed: int) -> Rollout:
            self.n_collected += 1
            return kit.make_flat_rollout(seed=seed)  # type: ignore[no-any-return]

        self.sources = kit.Source(module, collect, 1), kit.Source(module, kit.make_evaluations, 1)

    def train_dataloader(self) -> Any:
        return self.sources[0]

    def val_dataloader(self) -> Any:
        return self.sources[1]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            ("waste", "speed"),
            r"Plateau monitors 'eval/kpi/sped', but the environment has the KPIs waste, speed",
        ),
        ((), r"'eval/kpi/sped', but the environment has no KPI calculator: monitor eval/return"),
    ],
)
def test_a_kpi_that_is_not_declared_is_refused_before_the_first_batch(
    kit: SimpleNamespace, known: tuple[str, ...], message: str
) -> None:
    def configuration(optimizer: Any) -> Any:
        return {"optimizer": optimizer, "lr_scheduler": plateau(optimizer), "monitor": "eval/kpi/sped"}

    module = make(kit, scheduled(configuration))
    data = Declaring(kit, module, known)
    with pytest.raises(ValueError, match=message):
        kit.make_trainer().fit(module, data)
    assert data.n_collected == 0


@pytest.mark.parametrize("known", [("waste",), None])
def test_a_kpi_that_is_declared_or_may_exist_is_accepted(kit: SimpleNamespace, known: Any) -> None:
    def configuration(optimizer: Any) -> Any:
        return {"optimizer": optimizer, "lr_scheduler": plateau(optimizer), "monitor": "eval/kpi/waste"}

    module = make(kit, scheduled(configuration))
    data = Declaring(kit, module, known)
    kit.make_trainer().fit(module, data)
    assert data.n_collected == 1


def test_a_run_without_schedulers_after_one_with_them_has_none(kit: SimpleNamespace) -> None:
    kind = scheduled(CONFIGURATIONS["alone"])
    module, watch = make(kit, kind), Watch()
    kit.fit(module)
    kind.configuration = staticmethod(lambda optimizer: optimizer)
    kit.fit(module, epochs=2, callbacks=[watch])
    assert set(watch.rates) == {0.01}


# ------------------------------------------------------------------------------------------------- other algorithms


class Clone(BC):
    """Behavioural cloning with a scheduler; Lightning optimises by itself."""

    def configure_optimizers(self) -> Any:
        return CONFIGURATIONS["alone"](super().configure_optimizers())


class Evolution(ES):
    """Evolution strategies with a scheduler."""

    def configure_optimizers(self) -> Any:
        return CONFIGURATIONS["alone"](super().configure_optimizers())


def recorded(seed: int) -> TrajectoryBatch:
    zeros = torch.zeros(4, dtype=torch.int64)
    return TrajectoryBatch({0: TransitionBatch({"observation": torch.zeros(4, 3)}, {"action": zeros}, zeros)})


def population(seed: int) -> PopulationBatch:
    return PopulationBatch(NoiseTable(0, 1000), [0, 1], torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64), 7)


@pytest.mark.parametrize(
    ("kind", "options", "make_batch"),
    [(Clone, {}, recorded), (Evolution, {}, population), (Evolution, {"optimizer": "sgd"}, population)],
)
def test_algorithms_without_losses_have_schedulers_too(
    kit: SimpleNamespace, kind: Any, options: dict[str, Any], make_batch: Any
) -> None:
    watch, module = Watch(), kind(actor_critic=kit.make_actor_critic(), lr=0.01, **options)
    kit.fit(module, make=make_batch, epochs=3, callbacks=[watch])
    assert watch.rates == pytest.approx([0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025])
    topic = module.topic
    assert module.epoch_statistics["train"][f"{topic}/learning_rate"] == pytest.approx(0.0025)
