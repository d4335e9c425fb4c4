"""Seeds of runs from Python: read when a run begins, and continued when one is resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.core.batches import Rollout
from maze_pl.core.seeding import derive_seed
from maze_pl.core.training_data import DataRequirements
from maze_pl.datamodules import PopulationDataModule
from tests.datamodules.drift import Drift
from tests.datamodules.probe import EVAL, Probe, equal, fit, make_data, make_trainer

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


@pytest.fixture(autouse=True)
def _restored_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # which `seed_everything` changes


class Perturbed(Probe):
    """Keeps the seeds of the noise that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.noise_seeds: list[int] = []

    def data_requirements(self) -> DataRequirements:
        return DataRequirements(noise_stddev=0.5)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.noise_seeds.append(batch.noise.seed)


def seeded_fit(seed: int, data: Any, **options: Any) -> list[Rollout]:
    pl.seed_everything(seed, verbose=False)
    return fit(data, **options).rollouts


def test_the_order_of_data_module_and_seed_makes_no_difference() -> None:
    data = make_data(seed=None)
    of_seeds = [seeded_fit(seed, data) for seed in (4, 5, 4)]
    assert equal(of_seeds[0], of_seeds[2])
    assert not equal(of_seeds[0], of_seeds[1])
    pl.seed_everything(5, verbose=False)
    assert equal(of_seeds[1], fit(make_data(seed=None)).rollouts)


def test_a_given_seed_stays() -> None:
    data = make_data(seed=3)
    assert equal(seeded_fit(4, data), seeded_fit(5, data))
    data.seed = 6
    assert equal(seeded_fit(4, data), seeded_fit(4, make_data(seed=6)))


def test_a_resumed_run_continues_with_the_seed_of_its_checkpoint(tmp_path: Path) -> None:
    whole = seeded_fit(4, make_data(seed=None), max_epochs=2)
    pl.seed_everything(4, verbose=False)
    module, data, trainer = Probe(), make_data(seed=None), make_trainer(1)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    resumed = make_data(seed=None, evaluators=EVAL)
    assert equal(whole[2:], seeded_fit(7, resumed, max_epochs=2, ckpt_path=tmp_path / "one.ckpt"))
    make_trainer().validate(Probe(), resumed, verbose=False)
    assert resumed.seed == 4
    given = make_data(seed=9)
    seeded_fit(7, given, max_epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert given.seed == 9
    seeded_fit(7, resumed)
    assert resumed.seed == 7


def test_a_trainer_that_trains_on_keeps_the_seed(tmp_path: Path) -> None:
    pl.seed_everything(4, verbose=False)
    module, data, trainer = Probe(), make_data(seed=None), make_trainer(1)
    trainer.fit(module, data)
    pl.seed_everything(7, verbose=False)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, data)
    assert data.seed == 4


def test_a_trainer_that_trains_on_returns_to_its_seed_after_an_evaluation() -> None:
    pl.seed_everything(4, verbose=False)
    module, data, trainer = Probe(), make_data(seed=None, evaluators=EVAL), make_trainer(1)
    trainer.fit(module, data)
    pl.seed_everything(7, verbose=False)
    trainer.validate(module, data, verbose=False)
    assert data.seed == 7
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, data)
    assert data.seed == 4


def test_a_data_module_that_another_one_precedes_has_the_seed_of_its_first_fit() -> None:
    module, trainer, data = Probe(), make_trainer(1), make_data(seed=None)
    trainer.fit(module, make_data(seed=None))
    pl.seed_everything(7, verbose=False)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, data)
    assert data.seed == 7


def test_a_resumed_run_that_trains_on_keeps_the_seed_of_its_checkpoint(tmp_path: Path) -> None:
    trainer = make_trainer()
    trainer.fit(Probe(), make_data(seed=None))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    pl.seed_everything(7, verbose=False)
    module, data, resumed = Probe(), make_data(seed=None, evaluators=EVAL), make_trainer(2)
    resumed.fit(module, data, ckpt_path=tmp_path / "one.ckpt", weights_only=True)
    pl.seed_everything(8, verbose=False)
    resumed.validate(module, data, verbose=False)
    resumed.fit_loop.max_epochs = 3
    resumed.fit(module, data)
    assert data.seed == 0


def test_checkpoints_without_a_seed_continue_with_that_of_the_program(tmp_path: Path) -> None:
    trainer, data = make_trainer(), make_data(seed=None)
    trainer.fit(Probe(), data)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    checkpoint = torch.load(tmp_path / "one.ckpt", weights_only=True)
    del checkpoint["RolloutDataModule"]["seed"]
    torch.save(checkpoint, tmp_path / "one.ckpt")
    resumed = make_data(seed=None)
    seeded_fit(7, resumed, max_epochs=2, ckpt_path=tmp_path / "one.ckpt")
    assert resumed.seed == 7


def test_the_noise_of_a_population_is_that_of_the_run() -> None:
    data: Any = PopulationDataModule(Drift, shared_noise_table_size=1000, evaluators={}, epoch_length=1)
    data.seed = 5
    module = Perturbed()
    make_trainer().fit(module, data)
    assert module.noise_seeds == [derive_seed(5, "noise table")]
