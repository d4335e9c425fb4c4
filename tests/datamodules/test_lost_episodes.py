"""Runs resumed after an error that ended the environments: they say so, and play no episode twice."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import OnExceptionCheckpoint

from maze_pl.datamodules import ActorDataModule, PopulationDataModule, RolloutDataModule
from maze_pl.datamodules.shard_states import first_new_episode
from maze_pl.envs.tensors import CartPoleTensorEnv
from maze_pl.modules import A2C, ES
from tests.datamodules.drift import Drift, Log
from tests.datamodules.probe import EVAL, Probe, equal, fit, make_data, make_trainer
from tests.equality import assert_equal

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")

SAID = "environments start new episodes: the checkpoint does not hold the running ones, which an error had ended"


class Fails(Drift):
    """Fails in the step whose number, over all environments of a log, is `failing`."""

    failing: int | None = None

    def step(self, action: Any) -> Any:
        if sum(len(rewards) for episodes in self.log.rewards for rewards in episodes) == type(self).failing:
            raise OSError("the licence server is away")
        return super().step(action)


@pytest.fixture(autouse=True)
def working_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fails, "failing", None)


def failed(
    folder: Path, data: Any, failing: int, module: Any = None, ckpt_path: Path | None = None
) -> tuple[Any, Path]:
    """Train until the environments fail; return the module, and the checkpoint that is written then."""
    module = module or Probe()
    trainer = pl.Trainer(
        max_epochs=9,
        logger=False,
        callbacks=[OnExceptionCheckpoint(folder)],
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
    )
    Fails.failing = failing
    with (
        warnings.catch_warnings(action="ignore"),  # Lightning looks for a file of the callback first
        pytest.raises(OSError, match="the licence server is away"),
    ):
        trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    Fails.failing = None
    return module, folder / "on_exception.ckpt"


def seeds(log: Log) -> set[int | None]:
    return {seed for env in log.seeds for seed in env}


@pytest.mark.parametrize(("evaluators", "failing"), [({}, 40), (EVAL, 33)], ids=["collecting", "evaluating"])
def test_a_run_resumed_after_an_error_of_the_environments_plays_other_episodes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, evaluators: Any, failing: int
) -> None:
    before, after = Log(), Log()
    module, path = failed(tmp_path, make_data(before, Fails, evaluators=evaluators), failing)
    assert len(module.rollouts) == 2
    with caplog.at_level("INFO"):
        resumed = fit(make_data(after, Fails), max_epochs=3, ckpt_path=path)
    assert caplog.text.count(SAID) == 1
    assert resumed.rollouts[0].segments[0].is_first[0].all()
    assert not seeds(before) & seeds(after)
    sampled = [one.rollouts[0].segments[0].action["action"][0].frac() for one in (module, resumed)]
    assert not sampled[0].equal(sampled[1]), "the policy has other random numbers"


def test_further_errors_lead_to_further_episodes(tmp_path: Path) -> None:
    logs = [Log(), Log(), Log()]
    _, path = failed(tmp_path, make_data(logs[0], Fails), 20)
    _, path = failed(tmp_path / "second", make_data(logs[1], Fails), 5, ckpt_path=path)
    third = fit(make_data(logs[2], Fails), max_epochs=2, ckpt_path=path)
    assert len(third.rollouts) == 3
    played = [seeds(log) for log in logs]
    assert sum(map(len, played)) == len(set[Any]().union(*played))


def test_episodes_that_an_error_has_ended_are_refused_where_that_is_asked_for(tmp_path: Path) -> None:
    _, path = failed(tmp_path, make_data(Log(), Fails), 40)
    with pytest.raises(ValueError, match=r"an error had ended; on_nondeterminism=restart starts new episodes instead"):
        fit(make_data(Log(), Fails, on_nondeterminism="refuse"), max_epochs=3, ckpt_path=path)


def test_a_run_that_fails_in_its_first_rollout_starts_as_a_new_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, path = failed(tmp_path, make_data(Log(), Fails), 4)
    with caplog.at_level("INFO"):
        resumed = fit(make_data(Log(), Fails), ckpt_path=path)
    assert "new episodes" not in caplog.text
    assert equal(resumed.rollouts, fit(make_data()).rollouts)


@pytest.mark.parametrize("env", [Drift, CartPoleTensorEnv])
def test_checkpoints_of_earlier_versions_without_episodes_count_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, env: Any
) -> None:
    def make() -> RolloutDataModule:
        return RolloutDataModule(env, n_envs=2, n_rollout_steps=7, epoch_length=2, seed=3, evaluators={})

    trainer = make_trainer()
    trainer.fit(A2C(), make())
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    content = torch.load(tmp_path / "run.ckpt", weights_only=True)
    for name in ("ranks", "layout", "n_starts"):
        del content["RolloutDataModule"][name]
    torch.save(content, tmp_path / "run.ckpt")
    resumed, data = make_trainer(2), make()
    with caplog.at_level("INFO"):
        resumed.fit(A2C(), data, ckpt_path=tmp_path / "run.ckpt", weights_only=True)
    assert caplog.text.count(SAID) == 1
    assert first_new_episode(data.state_dict()["ranks"]) > 2**48


def test_an_error_while_episodes_are_restored_loses_nothing(tmp_path: Path) -> None:
    whole = fit(make_data(), max_epochs=2)
    first, trainer = Probe(), make_trainer()
    trainer.fit(first, make_data())
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    _, path = failed(tmp_path, make_data(Log(), Fails), 1, ckpt_path=tmp_path / "run.ckpt")
    resumed = fit(make_data(Log(), Fails), max_epochs=2, ckpt_path=path)
    assert equal([*first.rollouts, *resumed.rollouts], whole.rollouts)


def make_actors(log: Log) -> ActorDataModule:
    options: dict[str, Any] = {"n_rollout_steps": 7, "epoch_length": 2, "seed": 3, "evaluators": {}}
    return ActorDataModule(partial(Fails, log), num_actors=2, actors_batch_size=2, **options)


def test_actors_that_fail_leave_their_error_and_a_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, path = failed(tmp_path, make_actors(Log()), 50)
    with caplog.at_level("INFO"):
        fit(make_actors(Log()), max_epochs=3, ckpt_path=path)
    assert caplog.text.count(SAID) == 1


def make_population(log: Log) -> PopulationDataModule:
    options: dict[str, Any] = {"epoch_length": 2, "seed": 3, "evaluators": {}, "shared_noise_table_size": 10_000}
    return PopulationDataModule(partial(Fails, log), n_rollouts_per_update=4, **options)


def test_populations_continue_exactly_after_an_error(tmp_path: Path) -> None:
    def make_module() -> ES:
        pl.seed_everything(3, verbose=False)
        return ES()

    whole, resumed = make_module(), make_module()
    make_trainer(2).fit(whole, make_population(Log()))
    _, path = failed(tmp_path, make_population(Log()), 50, make_module())
    make_trainer(2).fit(resumed, make_population(Log()), ckpt_path=path, weights_only=True)
    assert_equal(whole.state_dict(), resumed.state_dict())
