"""Options that follow schedules: their values in training, in traces, when resumed, and their refusal."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from maze_pl.core.checks import check_fraction
from maze_pl.core.population import NoiseTable, PopulationBatch
from maze_pl.modules import A2C, ES, IMPALA, PPO
from maze_pl.schedules import Constant, Cosine, Linear, Piecewise, run_progress
from tests.exact.comparison import differences

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


class Watch(pl.Callback):
    """Keeps the progress and the values of options in each batch."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.progress: list[float] = []
        self.values: dict[str, list[float]] = {name: [] for name in names}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.progress.append(pl_module.progress_seen)
        for name, value in pl_module.seen.items():
            self.values[name].append(value)


class Seeing(PPO):
    """PPO that keeps the values with which it learned from the latest batch."""

    names: tuple[str, ...] = ("clip_range", "entropy_coef")

    def training_step(self, rollout: Any, batch_idx: int) -> None:
        super().training_step(rollout, batch_idx)
        self.progress_seen = run_progress(self.trainer)
        self.seen = {name: float(getattr(self, name)) for name in self.names}
        assert self.seen == pytest.approx({name: self.value_of(name) for name in self.names})


def flat(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def make(kit: SimpleNamespace, kind: Any = Seeing, **options: Any) -> Any:
    given = {"batch_size": 20, "n_optimization_epochs": 1, "lr": 0.01, **options}
    return kind(actor_critic=kit.make_actor_critic(), **given)


def test_each_batch_has_the_value_of_its_share_of_the_run(kit: SimpleNamespace) -> None:
    watch = Watch("clip_range", "entropy_coef")
    module = make(kit, clip_range=Linear(0.2, 0.1), entropy_coef=lambda progress: 0.01 * progress)
    assert float(module.clip_range) == pytest.approx(0.2)
    kit.fit(module, epochs=3, length=2, callbacks=[watch])
    assert watch.progress == pytest.approx([index / 6 for index in range(6)])
    assert watch.values["clip_range"] == pytest.approx([0.2 - 0.1 * index / 6 for index in range(6)])
    assert watch.values["entropy_coef"] == pytest.approx([0.01 * index / 6 for index in range(6)], abs=1e-9)
    table = module.epoch_statistics["train"]
    assert table["ActorCriticEvents/clip_range"] == pytest.approx(0.2 - 0.1 * 4.5 / 6)  # the mean of the last epoch
    assert table["ActorCriticEvents/entropy_coef"] == pytest.approx(0.01 * 4.5 / 6)
    assert module.value_of("clip_range") == pytest.approx(0.1)  # the end of the run


def test_numbers_remain_numbers_and_are_not_logged(kit: SimpleNamespace) -> None:
    module = make(kit)
    kit.fit(module)
    assert type(module.clip_range) is float and module.value_of("clip_range") == 0.2
    assert "ActorCriticEvents/clip_range" not in module.epoch_statistics["train"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("clip_range", 0.03),
        ("entropy_coef", 0.5),
        ("value_loss_coef", 2.0),
        ("policy_loss_coef", 0.1),
        ("value_clip_range", 0.01),
        ("gae_lambda", 0.1),
        ("target_kl", 1e-9),
        ("lr", 0.003),
    ],
)
def test_a_constant_schedule_does_the_same_as_its_number(kit: SimpleNamespace, option: str, value: float) -> None:
    results = []
    for given in ({option: value}, {option: Constant(value)}, {}):
        torch.manual_seed(1)
        module = make(kit, PPO, n_optimization_epochs=3, max_grad_norm=0.05, **given)
        kit.fit(module, length=1)
        results.append(flat(module))
    assert torch.allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(results[0], results[2], rtol=1e-3, atol=1e-5)


def test_traced_updates_follow_schedules_without_being_traced_again(kit: SimpleNamespace) -> None:
    changing = {
        "clip_range": Linear(0.05, 0.001),
        "entropy_coef": Cosine(0.5, 0.0),
        "value_loss_coef": Piecewise([(0.0, 0.1), (0.5, 2.0)], "constant"),
        "value_clip_range": Linear(0.1, 0.01),
        "lr": Linear(0.02, 0.001),
    }
    results, n_made = [], []
    for capture, options in (("auto", changing), ("off", changing), ("auto", {"clip_range": 0.05, "lr": 0.02})):
        torch.manual_seed(1)
        module = make(kit, PPO, n_optimization_epochs=3, capture=capture, **options)
        kit.fit(module, epochs=4, length=2)
        assert module.capture_refusal is None
        results.append(flat(module))
        n_made.append(module.n_traces)
    assert torch.allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(results[0], results[2], rtol=1e-2, atol=1e-4)
    assert n_made == [1, 0, 1]


@pytest.mark.slow
def test_v_trace_follows_schedules_of_its_thresholds_traced_or_not(kit: SimpleNamespace) -> None:
    falling = {"vtrace_clip_rho_threshold": Linear(1.0, 0.01), "vtrace_clip_pg_rho_threshold": Linear(1.0, 0.01)}
    results = []
    for capture, options in (("auto", falling), ("off", falling), ("auto", {})):
        torch.manual_seed(1)
        module = IMPALA(actor_critic=kit.make_actor_critic(), lr=0.01, capture=capture, **options)
        kit.fit(module, epochs=3, length=2)
        results.append(flat(module))
    assert torch.allclose(results[0], results[1], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(results[0], results[2], rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_lr_schedule_is_the_linear_schedule_of_the_learning_rate(kit: SimpleNamespace) -> None:
    results = []
    for options in ({"lr": 0.01, "lr_schedule": "linear"}, {"lr": Linear(0.01, 0.0)}):
        torch.manual_seed(1)
        module = make(kit, PPO, **options)
        kit.fit(module, epochs=3, length=2)
        results.append((flat(module), module.epoch_statistics["train"]["ActorCriticEvents/learning_rate"]))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1] == pytest.approx(0.01 * 1.5 / 6)


# ------------------------------------------------------------------------------------------------------- resuming


class Save(pl.callbacks.Checkpoint):
    """Keeps checkpoints of all moments at which callbacks write them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.folder / f"batch_{trainer.fit_loop.batch_idx}.ckpt")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.folder / "validation.ckpt")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.folder / "epoch.ckpt")


class Acting(Seeing):
    """PPO that keeps the values that are set before data is collected."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.acted_with: list[float] = []

    def on_coefficients_set(self) -> None:
        super().on_coefficients_set()
        self.acted_with.append(self.value_of("clip_range"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_resuming_continues_with_the_values_of_the_whole_run(kit: SimpleNamespace, tmp_path: Path) -> None:
    networks = kit.make_actor_critic()

    def run(path: str, *callbacks: Any, **options: Any) -> tuple[Any, list[float], list[float]]:
        torch.manual_seed(1)
        schedules: Any = {"clip_range": Linear(0.2, 0.01), "entropy_coef": Cosine(0.1, 0.0), "lr": Linear(0.01, 0.0)}
        module = Acting(actor_critic=copy.deepcopy(networks), batch_size=20, capture="off", **schedules)
        watch = Watch(*Seeing.names)
        trainer = kit.fit(
            module, epochs=3, length=3, enable_checkpointing=True, callbacks=[watch, *callbacks], **options
        )
        trainer.save_checkpoint(tmp_path / path)
        saved = torch.load(tmp_path / path, weights_only=True)
        assert not any("clip_range" in name for name in saved["state_dict"])
        learned = {key: saved[key] for key in ("state_dict", "optimizer_states")}
        return learned, watch.progress, module.acted_with

    whole, progress, acted_with = run("whole.ckpt", Save(tmp_path))
    assert acted_with == pytest.approx([0.2 - 0.19 * index / 9 for index in range(10)])
    points = {"batch_0": 4, "batch_1": 5, "batch_2": 6, "validation": 6, "epoch": 6}
    for point, n_done in points.items():
        resumed, rest, acted = run(f"from_{point}.ckpt", Quiet(), ckpt_path=tmp_path / f"{point}.ckpt")
        assert differences(whole, resumed) == [], point
        assert rest == progress[n_done:], point
        assert acted == acted_with[n_done:], point


class Quiet(pl.callbacks.Checkpoint):
    """Keeps Lightning from adding a checkpoint callback of its own."""


def test_a_module_without_its_schedule_is_refused_when_loaded(kit: SimpleNamespace, tmp_path: Path) -> None:
    module = make(kit, PPO, clip_range=Linear(0.2, 0.1))
    trainer = kit.fit(module)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    options: Any = {"actor_critic": kit.make_actor_critic(), "weights_only": True}
    with pytest.raises(TypeError, match=r"clip_range='Linear\(start=0.2, end=0.1, until=1.0\)' must be a number"):
        PPO.load_from_checkpoint(tmp_path / "one.ckpt", **options)
    loaded = PPO.load_from_checkpoint(tmp_path / "one.ckpt", clip_range=0.3, **options)
    assert loaded.clip_range == 0.3 and torch.equal(flat(loaded), flat(module))


# ------------------------------------------------------------------------------------------------ other algorithms


def population(seed: int) -> PopulationBatch:
    return PopulationBatch(NoiseTable(0, 1000), [0, 1], torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64), 7)


def test_evolution_strategies_tell_the_noise_of_the_next_batch(kit: SimpleNamespace) -> None:
    asked: list[float] = []

    def batch(seed: int) -> PopulationBatch:
        asked.append(module.data_requirements().noise_stddev)
        return population(seed)

    module = ES(actor_critic=kit.make_actor_critic(), lr=Cosine(0.1, 0.0), noise_stddev=Linear(0.1, 0.02))
    kit.fit(module, make=batch, epochs=2, length=2)
    assert asked == pytest.approx([0.1, 0.08, 0.06, 0.04])
    table = module.epoch_statistics["train"]
    assert table["ESEvents/noise_stddev"] == pytest.approx(0.05)
    assert table["ESEvents/learning_rate"] == pytest.approx((Cosine(0.1, 0.0)(0.5) + Cosine(0.1, 0.0)(0.75)) / 2)


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"clip_range": Linear(0.2, 0.0)}, ValueError, r"clip_range=0.0 must be greater than 0, which its schedule"),
        ({"entropy_coef": Linear(0.1, -0.1)}, ValueError, r"entropy_coef=-0.05.* at progress 0.75"),
        ({"clip_range": "Linear"}, TypeError, "clip_range='Linear' must be a number, a schedule"),
        ({"value_clip_range": -1.0}, ValueError, "value_clip_range=-1.0 must be greater than 0"),
        ({"lr": Linear(-0.1, 0.0)}, ValueError, "lr=-0.1 must be at least 0"),
        ({"lr": 0.0}, ValueError, "lr=0.0 must be greater than 0"),
        (
            {"lr": Linear(1.0, 0.0), "lr_schedule": "linear"},
            ValueError,
            r"lr_schedule=linear and lr=Linear\(.*contradict",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(
    kit: SimpleNamespace, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        make(kit, PPO, **options)


@pytest.mark.parametrize("options", [{"clip_range": Linear(0.2, 0.1)}, {"lr": Cosine(0.1, 0.0)}])
def test_schedules_need_the_length_of_the_run(kit: SimpleNamespace, options: dict[str, Any]) -> None:
    module = make(kit, PPO, **options)
    with pytest.raises(ValueError, match=r".* needs the length of the run: set trainer.max_epochs"):
        kit.fit(module, epochs=-1, max_steps=1)


def test_a_schedule_of_the_learning_rate_and_a_scheduler_contradict(kit: SimpleNamespace) -> None:
    class Scheduled(A2C):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]

    module = Scheduled(actor_critic=kit.make_actor_critic(), lr=Linear(0.1, 0.0))
    with pytest.raises(ValueError, match=r"lr=Linear\(.* and a scheduler of configure_optimizers contradict"):
        kit.fit(module)


def test_a_custom_algorithm_schedules_its_own_option(kit: SimpleNamespace) -> None:
    class Cautious(Seeing):
        names = ("penalty",)

        def __init__(self, penalty: Any, **options: Any) -> None:
            super().__init__(**options)
            self.penalty = self.coefficient("penalty", penalty, check_fraction)

        def loss(self, minibatch: Any) -> Tensor:
            total = super().loss(minibatch)
            return total + self.penalty * torch.stack([part.square().sum() for part in self.parameters()]).sum()

    watch = Watch("penalty")
    module = make(kit, Cautious, penalty=Linear(0.0, 1.0))
    kit.fit(module, epochs=2, callbacks=[watch])
    assert watch.values["penalty"] == pytest.approx([0.0, 0.25, 0.5, 0.75])
    assert module.capture_refusal is None
