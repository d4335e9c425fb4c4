"""Self-labelling: the best of several episodes from each start is imitated, and an epoch resumes exactly."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.collect.engines import ProcessEngine
from maze_pl.core.batches import BestEpisodesBatch
from maze_pl.datamodules import RolloutEvaluator, SelfLabellingDataModule, self_labelling
from maze_pl.envs.cutting_2d import MixedPeriodicDemand, masked_struct_env_factory
from maze_pl.envs.wrappers import ObservationNormalizationWrapper, TimeLimitWrapper
from maze_pl.modules import BC
from maze_pl.records.record_files import SpacesTrajectoryRecord
from tests.datamodules.trainers import make_trainer
from tests.envs.cancelling import Cancelling
from tests.equality import assert_equal
from tests.search.problems import best_total, table_env


def cutting() -> Any:
    return TimeLimitWrapper(masked_struct_env_factory(20, (6, 6), MixedPeriodicDemand(2, 6)), 8)


def make_data(env: Any = cutting, **options: Any) -> SelfLabellingDataModule:
    small = {"n_starts": 3, "n_samples": 5, "batch_size": 8, "epoch_length": 4, "evaluators": {}, "seed": 3}
    return SelfLabellingDataModule(env, **{**small, **options})


class Batches(pl.Callback):
    """Keeps what a run has learned from."""

    def __init__(self) -> None:
        self.kept: list[BestEpisodesBatch] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.kept.append(batch)


def trained(data: SelfLabellingDataModule, folder: Path, **options: Any) -> tuple[BC, list[BestEpisodesBatch]]:
    """An agent, and the batches of its training."""
    pl.seed_everything(1, verbose=False)
    module = BC(spec=data.spec, lr=1e-2)
    batches = Batches()
    callbacks = [batches, *options.pop("callbacks", [])]
    make_trainer(folder, callbacks=callbacks, **options).fit(module, data)
    return module, batches.kept


def test_the_best_of_the_episodes_from_each_start_is_served(tmp_path: Path) -> None:
    data = make_data()
    found: list[Any] = []

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0:
                records = [SpacesTrajectoryRecord.from_bytes(bytearray(one)) for one in data.episodes.records]
                found.append((records, batch.summaries, batch.measures))

    trained_with = make_trainer(tmp_path, max_epochs=2, callbacks=[Look()])
    trained_with.fit(BC(spec=data.spec), data)
    starts = set()
    for records, summaries, measures in found:
        assert len(records) == 3 and len(summaries) == 15
        best = []
        for place, record in enumerate(records):
            of_start = summaries[5 * place : 5 * place + 5]
            assert len({summary.episode_index for summary in of_start}) == 1
            best.append(max(summary.reward for summary in of_start))
            assert float(record.reward.sum()) == best[-1]
            starts.add(record.episode_id)
        assert len({summary.reward for summary in summaries}) > 1, "actions are sampled"
        assert measures["best_return"] == pytest.approx(sum(best) / 3)
        assert measures["n_timesteps"] == 15 * 8
    assert len(starts) == 6, "each start is new"


def test_the_best_sequence_of_a_small_problem_is_learned(tmp_path: Path) -> None:
    """Against the search of all sequences; random choices have half of its return."""
    data = make_data(
        partial(table_env, 1), n_starts=1, n_samples=24, epoch_length=10, evaluators={"eval": RolloutEvaluator(1)}
    )
    pl.seed_everything(1, verbose=False)
    module = BC(spec=data.spec, lr=1e-2)
    trainer = make_trainer(tmp_path, max_epochs=8, is_evaluated=True)
    trainer.fit(module, data)
    assert float(trainer.callback_metrics["eval/return"]) == best_total(1)


def test_an_epoch_resumes_in_its_middle_bit_for_bit(tmp_path: Path) -> None:
    whole, batches = trained(make_data(wrappers=[ObservationNormalizationWrapper]), tmp_path, max_epochs=2)
    checkpoint = tmp_path / "middle.ckpt"

    class Save(pl.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 6:
                trainer.save_checkpoint(checkpoint)

    trained(make_data(wrappers=[ObservationNormalizationWrapper]), tmp_path, max_epochs=2, callbacks=[Save()])
    data = make_data(wrappers=[ObservationNormalizationWrapper])
    resumed, rest = BC(spec=data.spec, lr=1e-2), Batches()
    make_trainer(tmp_path, max_epochs=2, callbacks=[rest]).fit(resumed, data, ckpt_path=checkpoint, weights_only=True)
    assert len(rest.kept) == 2
    for one, other in zip(batches[6:], rest.kept, strict=True):
        assert_equal(one.acts, other.acts)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_measures_are_of_all_ranks_also_on_one_without_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Any] = []
    monkeypatch.setattr(self_labelling, "gather_objects", lambda part: parts.append(part) or list(parts))
    monkeypatch.setattr(SelfLabellingDataModule, "_world_size", 3)
    episodes = []
    for rank in range(3):
        monkeypatch.setattr(SelfLabellingDataModule, "_rank", rank)
        data = make_data(n_starts=2)
        module, trainer = BC(spec=data.spec), make_trainer(tmp_path)
        trainer.strategy.connect(module)
        data.trainer = trainer
        episodes.append(data.play(0))
        data.teardown("fit")
    assert [len(one.summaries) for one in episodes] == [5, 5, 0]
    assert [len(one.records) for one in episodes] == [1, 2, 2]  # those of the ranks before, and its own
    best = [max(summary.reward for summary in one.summaries) for one in episodes[:2]]
    env_steps = sum(summary.env_steps for one in episodes for summary in one.summaries)
    for one in episodes[1:]:
        assert one.measures["best_return"] == sum(best) / 2
        assert one.measures["n_timesteps"] == env_steps > 0


@pytest.mark.slow
def test_workers_play_the_same_episodes(tmp_path: Path) -> None:
    _, here = trained(make_data(), tmp_path, max_epochs=2)
    _, elsewhere = trained(make_data(engine=ProcessEngine(n_workers=2)), tmp_path, max_epochs=2)
    for one, other in zip(here, elsewhere, strict=True):
        assert_equal(one.acts, other.acts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 1}, "n_samples=1 must be at least 2"),
        ({"n_starts": 0}, "n_starts=0 must be at least 1"),
        ({"epoch_length": 0}, "epoch_length=0 must be at least 1"),
        ({"max_steps": -1}, "max_steps=-1 must be at least 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_data(**options)


@pytest.mark.parametrize("options", [{"max_steps": 2}, {"limit_train_batches": 2, "max_epochs": 1}])
def test_a_fit_after_one_that_ended_within_an_epoch_plays_its_own_episodes(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    _, expected = trained(make_data(), tmp_path, max_epochs=1)
    data = make_data()
    pl.seed_everything(7, verbose=False)
    other = BC(spec=data.spec)
    with torch.no_grad():
        for parameter in other.policy.parameters():
            parameter.mul_(40)  # so that it plays otherwise
    make_trainer(tmp_path, **options).fit(other, data)
    assert data.episodes.records, "the epoch was not over"
    _, found = trained(data, tmp_path, max_epochs=1)
    assert_equal([batch.acts for batch in found], [batch.acts for batch in expected])
    assert found[0].measures == expected[0].measures
    assert len(found[0].summaries) == len(expected[0].summaries) == 15


def test_the_number_of_shards_takes_no_position_of_an_earlier_argument() -> None:
    last = ["n_normalization_samples", "engine", "check", "n_shards"]
    assert list(inspect.signature(SelfLabellingDataModule).parameters)[-4:] == last


def test_returns_of_agents_whose_rewards_cancel_out_are_warned_of(tmp_path: Path) -> None:
    data = make_data(partial(table_env, 2), wrappers=[Cancelling], n_starts=1, n_samples=2)
    with pytest.warns(UserWarning, match="the rewards of the agents add up to 0 in each episode"):
        trained(data, tmp_path, max_epochs=1)
