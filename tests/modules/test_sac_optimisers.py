"""Learning rates, frozen parts and number formats of the entropy coefficients of SAC."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.optim.lr_scheduler import ExponentialLR

from maze_pl.modules import SAC, ParameterGroup
from maze_pl.schedules import Linear
from tests.modules.kit import KIT
from tests.modules.sac_reference import make, replay_batch

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")

GROUP = {"log_entropy_coef": ParameterGroup(lr=0.02)}


class Coefficients(pl.Callback):
    """Keeps the coefficient and its learning rate after each batch."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.values.append(float(pl_module.log_entropy_coef.detach()))
        self.rates.append(trainer.optimizers[2].param_groups[0]["lr"])


def fitted(module: Any, **options: Any) -> Coefficients:
    callback = Coefficients()
    torch.manual_seed(1)
    KIT.fit(module, lambda seed: replay_batch("continuous", 1, seed), 2, length=2, callbacks=[callback], **options)
    return callback


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, [7e-4] * 4),
        ({"lr_schedule": "linear"}, [7e-4, 5.25e-4, 3.5e-4, 1.75e-4]),
        ({"lr": Linear(1e-3, 1e-4)}, [7e-4] * 4),
        ({"entropy_coef_lr": Linear(0.1, 0.02)}, [0.1, 0.08, 0.06, 0.04]),
        ({"optimizer_groups": {"log_entropy_coef": ParameterGroup(options={"dampening": 0.0})}}, [7e-4] * 4),
        ({"optimizer_groups": GROUP}, [0.02] * 4),
        ({"optimizer_groups": GROUP, "entropy_coef_lr": 3e-4}, [0.02] * 4),
        ({"optimizer_groups": GROUP, "entropy_coef_lr": Linear(0.1, 0.02)}, [0.02] * 4),
        ({"optimizer_groups": GROUP, "lr": Linear(1e-3, 1e-4)}, [0.02] * 4),
        ({"optimizer_groups": GROUP, "lr_schedule": "linear"}, [0.02, 0.015, 0.01, 0.005]),
        ({"optimizer_groups": {"log_*": ParameterGroup(lr=Linear(0.02, 0.0))}}, [0.02, 0.015, 0.01, 0.005]),
    ],
)
def test_coefficients_have_the_learning_rate_of_their_group_if_it_has_one(
    options: dict[str, Any], rates: list[float]
) -> None:
    module = make("continuous", optimizer="sgd", **options)
    coefficients = fitted(module)
    assert coefficients.rates == pytest.approx(rates)
    surplus = module.epoch_statistics["train"]["SACEvents/entropy_surplus/substep_0/move"]
    gradients = []
    momentum = 0.0
    previous = math.log(0.2)
    for value, rate in zip(coefficients.values, rates, strict=True):
        step = (previous - value) / rate  # with a momentum of 0.9
        gradients.append(step - 0.9 * momentum)
        momentum, previous = step, value
    assert sum(gradients[2:]) / 2 == pytest.approx(surplus, rel=0.02)


@pytest.mark.parametrize(("groups", "rate"), [(None, 7e-4), (GROUP, 0.02)])
def test_a_scheduler_scales_the_rate_of_the_coefficients(groups: Any, rate: float) -> None:
    class Scheduled(SAC):
        def configure_optimizers(self) -> Any:
            optimizers = super().configure_optimizers()
            return optimizers, [ExponentialLR(optimizer, 0.5) for optimizer in optimizers]

    made = make("continuous")
    module = Scheduled(actor_critic=made.networks, optimizer_groups=groups, capture="off")
    trainer = KIT.make_trainer(2)
    source = KIT.Source(module, lambda seed: replay_batch("continuous", 1, seed), 1)
    values = [math.log(0.2)]

    class Watch(pl.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            values.append(float(pl_module.log_entropy_coef.detach()))

    trainer.callbacks.append(Watch())  # type: ignore[attr-defined]
    trainer.fit(module, source)
    assert abs(values[1] - values[0]) == pytest.approx(rate, rel=1e-3)  # Adam's first step
    assert abs(values[2] - values[1]) == pytest.approx(rate / 2, rel=0.1)


def test_frozen_coefficients_are_refused_while_they_are_to_be_learned() -> None:
    with pytest.raises(ValueError, match=r"learns log_entropy_coef, which is frozen: set entropy_tuning=False"):
        fitted(make("continuous", frozen=["log_entropy_coef"]))
    module = make("continuous", entropy_tuning=False, frozen=["policy.networks.0.0.*bias"])
    module.configure_optimizers()


@pytest.mark.filterwarnings("ignore:.*bf16")
@pytest.mark.parametrize("kind", ["continuous", "mixed"])
@pytest.mark.parametrize("capture", ["off", pytest.param("auto", marks=pytest.mark.slow)])
def test_coefficients_are_learned_in_half_precision(kind: str, capture: Any) -> None:
    module = make(kind, capture)
    KIT.fit(module, lambda seed: replay_batch(kind, 2, seed), length=2, precision="bf16-true")
    assert module.log_entropy_coef.dtype == torch.float32
    assert module.capture_refusal is None
    moved = module.log_entropy_coef.detach() - math.log(0.2)  # in 4 steps of up to 7e-4
    assert bool((moved.abs() > 7e-4).all()) and bool((moved.abs() < 4e-3).all())


class SetRate(pl.Callback):
    """Sets the learning rate of the coefficients before each batch."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        trainer.optimizers[2].param_groups[0]["lr"] = 0.03


@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        ({}, None),
        ({"lr": Linear(1e-3, 1e-4)}, None),
        ({"entropy_coef_lr": Linear(0.1, 0.02)}, r"entropy_coef_lr=.*Linear"),
        ({"lr_schedule": "linear"}, r"lr_schedule=linear"),
        ({"optimizer_groups": GROUP, "entropy_coef_lr": Linear(0.1, 0.02)}, None),
    ],
)
def test_callbacks_set_the_rate_of_the_coefficients_unless_its_option_follows_a_schedule(
    options: dict[str, Any], schedule: str | None
) -> None:
    usual = fitted(make("continuous", **options)).rates
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Coefficients()
        KIT.fit(
            make("continuous", **options),
            lambda seed: replay_batch("continuous", 1, seed),
            2,
            length=2,
            callbacks=[SetRate(), found],
        )
    said = [str(one.message) for one in caught if "which a callback has set" in str(one.message)]
    if schedule is None:
        assert found.rates == [0.03] * 4
        assert said == []
    else:
        assert found.rates == pytest.approx(usual)
        assert len(said) == 1 and re.search(rf"the learning rate follows {schedule}", said[0])
