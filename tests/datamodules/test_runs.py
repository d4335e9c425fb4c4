"""Runs that follow on one another: validating, resuming from checkpoints of all kinds, and failing."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.collect.engines import ProcessEngine
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, ReturnNormalizationRewardWrapper
from tests.datamodules.drift import Endless, Iterating, Moody
from tests.datamodules.probe import (
    EVAL,
    WRAPPERS,
    Probe,
    equal,
    fit,
    learned,
    make_data,
    make_trainer,
    validate,
)

# Lightning asks back where there are no evaluators.
pytestmark = pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")


def test_validating_first_changes_nothing_about_a_fit_in_the_same_process() -> None:
    expected = fit(make_data(evaluators=EVAL, **WRAPPERS), max_epochs=2)
    module, data, trainer = Probe(), make_data(evaluators=EVAL, **WRAPPERS), make_trainer(2)
    trainer.validate(module, data, verbose=False)
    trainer.fit(module, data)
    trainer.validate(module, data, verbose=False)
    assert equal(module.rollouts, expected.rollouts)
    assert module.returns()[1:3] == expected.returns()
    assert module.returns()[3] == module.returns()[2]


def checkpoint_after(data: RolloutDataModule, path: Path, max_epochs: int = 2) -> tuple[Path, Probe]:
    """Train, and save a checkpoint after training has ended."""
    module, trainer = Probe(), make_trainer(max_epochs)
    trainer.fit(module, data)
    trainer.save_checkpoint(path / "run.ckpt")
    return path / "run.ckpt", module


def test_a_checkpoint_that_is_saved_when_training_has_ended_resumes_exactly(tmp_path: Path) -> None:
    whole = fit(make_data(**WRAPPERS), max_epochs=4)
    path, first = checkpoint_after(make_data(**WRAPPERS), tmp_path)
    second = fit(make_data(**WRAPPERS), max_epochs=4, ckpt_path=path)
    assert len(second.rollouts) == 4
    assert equal([*first.rollouts, *second.rollouts], whole.rollouts)


def test_a_fit_after_validating_a_checkpoint_starts_environments_anew(tmp_path: Path) -> None:
    path, first = checkpoint_after(make_data(evaluators=EVAL), tmp_path)
    module, data, trainer = Probe(), make_data(evaluators=EVAL), make_trainer()
    trainer.validate(module, data, ckpt_path=path, weights_only=True, verbose=False)
    module.policy.weight.data.zero_()
    trainer.fit(module, data)
    assert equal(module.rollouts, first.rollouts[:2])


def test_state_that_was_loaded_is_kept_until_it_is_used() -> None:
    data = make_data(**WRAPPERS)
    fit(data)
    state = data.state_dict()
    other = make_data(**WRAPPERS)
    other.load_state_dict(state)
    assert str(other.state_dict()) == str(state)


def test_a_checkpoint_from_before_the_first_rollout_can_be_resumed(tmp_path: Path) -> None:
    module, data, trainer = Probe(), make_data(**WRAPPERS), make_trainer()
    trainer.strategy.connect(module)
    trainer.validate(module, data, verbose=False)
    trainer.save_checkpoint(tmp_path / "early.ckpt")
    assert equal(
        fit(make_data(**WRAPPERS), ckpt_path=tmp_path / "early.ckpt").rollouts, fit(make_data(**WRAPPERS)).rollouts
    )


def test_another_number_of_environments_restarts_them_with_a_message_and_keeps_statistics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    former = make_data(**WRAPPERS)
    path, _ = checkpoint_after(former, tmp_path)
    data = make_data(n_envs=3, **WRAPPERS)
    with caplog.at_level("INFO"):
        resumed = fit(data, max_epochs=3, ckpt_path=path)
    assert "environments start new episodes: the checkpoint was written with n_envs=2 instead of 3" in caplog.text
    assert resumed.rollouts[0].segments[0].is_first[0].all()
    before, after = (learned(one, ReturnNormalizationRewardWrapper)["base"][0] for one in (former, data))
    assert (before, after) == (1 + 4 * 14, 1 + 4 * 14 + 2 * 21)  # with a first return of 0
    kept = [str(learned(one, ObservationNormalizationWrapper)) for one in (former, data)]
    assert kept[0] == kept[1]


class Renamed(RolloutDataModule):
    """A data module under another name."""


def test_a_checkpoint_of_another_data_module_is_refused(tmp_path: Path) -> None:
    path, _ = checkpoint_after(make_data(**WRAPPERS), tmp_path)
    with pytest.raises(ValueError, match="holds no state of a Renamed"):
        fit(make_data(data_class=Renamed, **WRAPPERS), max_epochs=3, ckpt_path=path)
    renamed = make_data(data_class=Renamed, evaluators=EVAL, **WRAPPERS)
    with pytest.raises(ValueError, match="holds no state of a Renamed"):  # it would evaluate with other statistics
        validate(renamed, ckpt_path=path, weights_only=True)


def test_environments_that_cannot_be_brought_back_restart_or_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = checkpoint_after(make_data(env=Moody), tmp_path)
    with caplog.at_level("INFO"):
        resumed = fit(make_data(env=Moody), max_epochs=3, ckpt_path=path)
    cause = "are not deterministic, have other options, or depend on state that the checkpoint lacks"
    assert f"environments [0, 1] of rank 0 {cause}: when replayed" in caplog.text
    assert resumed.rollouts[0].segments[0].is_first[0].all()
    data = make_data(env=Moody, on_nondeterminism="refuse", vectorization="subprocess")
    with pytest.raises(ValueError, match="on_nondeterminism=restart starts new episodes instead"):
        fit(data, max_epochs=3, ckpt_path=path)
    assert workers() == []


@pytest.mark.parametrize("engine", [None, ProcessEngine(1)], ids=["in-process", "processes"])
@pytest.mark.slow
def test_long_episodes_of_which_all_actions_are_kept_are_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: Any
) -> None:
    options: dict[str, Any] = {"env": Iterating, "n_rollout_steps": 6000, "engine": engine}
    module, data, trainer = Probe(), make_data(**options), make_trainer(1)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    assert data.state_dict()
    (message,) = [one for one in caplog.messages if "all actions" in one]
    assert re.search(
        r"all actions of 2 episodes of up to 12,000 acts \(0.3 MiB\), which .*range_iterator, .*Time", message
    )
    histories = torch.load(tmp_path / "run.ckpt", weights_only=True)["RolloutDataModule"]["ranks"][0][0]["histories"]
    assert histories[0].keys() == {"episode", "keys", "actions"}


@pytest.mark.slow
def test_a_run_resumes_exactly_from_the_states_of_long_episodes(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": Endless, "n_rollout_steps": 6000}
    whole = fit(make_data(**options), max_epochs=2)
    path, _ = checkpoint_after(make_data(**options), tmp_path, 1)
    histories = torch.load(path, weights_only=True)["RolloutDataModule"]["ranks"][0][0]["histories"]
    assert [len(history["keys"]) for history in histories] == [10, 10]
    second = fit(make_data(**options), max_epochs=2, ckpt_path=path)
    assert equal(second.rollouts, whole.rollouts[2:])


def workers() -> list[str]:
    return [child.name for child in multiprocessing.active_children() if child.name.startswith("maze_pl-envs")]


def test_an_exception_in_training_leaves_no_process_and_the_rollouts_were_those_of_one_process() -> None:
    alive: list[int] = []

    data = make_data(vectorization="subprocess", evaluators=EVAL)
    module = Probe(fails_in=3)
    step = module.validation_step
    module.validation_step = lambda *args: (alive.append(len(workers())), step(*args))[-1]  # type: ignore[method-assign]
    with pytest.raises(ArithmeticError, match="the update broke"):
        make_trainer(3).fit(module, data)
    assert alive and alive[0] >= 2
    assert workers() == []
    expected = fit(make_data(evaluators=EVAL), max_epochs=2)
    assert equal(module.rollouts, expected.rollouts[:3])
    assert module.returns() == expected.returns()[:1]
