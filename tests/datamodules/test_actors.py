"""Actors that collect ahead of the learner: in which order, with which weights, and how far ahead."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.core.batches import Rollout
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.datamodules import ActorDataModule, RolloutEvaluator
from maze_pl.envs import PendulumArrayEnv
from maze_pl.envs.wrappers import ReturnNormalizationRewardWrapper
from tests.datamodules.drift import Drift, Mortal, Stuck
from tests.datamodules.probe import EVAL, NORMALIZED, SCALE, Probe, equal, fit, learned, make_data, make_trainer
from tests.datamodules.slow import Slow
from tests.datamodules.step_counts import StepCount

# Lightning asks back where there are no evaluators.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")]


def make(engine: Engine | None = None, env: Any = Drift, log: Any = None, **options: Any) -> ActorDataModule:
    given = {"num_actors": 2, "actors_batch_size": 2, "n_rollout_steps": 5, "epoch_length": 4, "seed": 3}
    return ActorDataModule(partial(env, log), engine=engine, **{**given, "evaluators": {}, **options})


class Learner(Probe):
    """Notes the measures of its batches, and takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.lags: list[list[int]] = []

    def training_step(self, batch: Rollout, batch_idx: int) -> None:
        time.sleep(self.seconds)
        acted = batch.segments[0].action["action"][..., 0]  # weight plus less than 0.5
        weights = acted.floor()
        assert torch.equal(weights, weights[:1].expand_as(weights)), "weights changed within a rollout"
        lags = (self.policy.weight.item() - weights[0]).int().tolist()
        self.lags.append(lags)
        assert batch.measures["lag"] == pytest.approx(sum(lags) / len(lags))
        assert batch.measures["lag_max"] == max(lags) >= min(lags) >= 0
        assert 0.0 <= batch.measures["queue_fill"] <= 1.0
        super().training_step(batch, batch_idx)


def train(data: ActorDataModule, seconds: float = 0.0, max_epochs: int = 1) -> Learner:
    learner = Learner(seconds)
    make_trainer(max_epochs).fit(learner, data)
    return learner


def stream(rollouts: list[Rollout], num_actors: int) -> list[list[float]]:
    """By actor, what its environment has shown, one rollout after the other."""
    seen: list[list[float]] = [[] for _ in range(num_actors)]
    column = 0
    for rollout in rollouts:
        for shown in rollout.segments[0].observation["observation"].unbind(1):
            seen[column % num_actors] += shown.flatten().tolist()
            column += 1
    return seen


@pytest.mark.parametrize(("n_cores", "n_actors"), [(2, 2), (16, 8)])
def test_0_actors_mean_one_per_core_as_far_as_the_queue_can_serve_them(
    monkeypatch: pytest.MonkeyPatch, n_cores: int, n_actors: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(n_cores)))
    assert ActorDataModule(partial(Drift, None), num_actors=0, evaluators={}).num_actors == n_actors
    assert ActorDataModule(Drift, num_actors=0, queue_out_of_sync_factor=2, evaluators={}).num_actors == n_cores
    with pytest.raises(ValueError, match="num_actors=16 are more actors than the queue can serve, with room for 8"):
        ActorDataModule(Drift, num_actors=16)


# ------------------------------------------------------------------------------------------------ in this process


def test_in_this_process_batches_are_those_of_shards_with_the_newest_weights() -> None:
    expected = fit(make_data(n_envs=2, n_shards=0, n_rollout_steps=5, epoch_length=4, wrappers=[NORMALIZED, SCALE]), 2)
    found = train(make(wrappers=[NORMALIZED, SCALE]), max_epochs=2)
    assert equal(found.rollouts, expected.rollouts)
    assert found.lags == [[0, 0]] * 8
    assert all(rollout.measures == {"lag": 0, "lag_max": 0, "queue_fill": 0} for rollout in found.rollouts)


def test_an_actor_may_have_several_environments() -> None:
    options: dict[str, Any] = {"n_rollout_steps": 5, "epoch_length": 4, "wrappers": [NORMALIZED, SCALE]}
    expected = fit(make_data(n_envs=6, n_shards=2, **options), 2)
    data = make(n_envs_per_actor=3, **options)
    found = train(data, max_epochs=2)
    assert equal(found.rollouts, expected.rollouts)
    assert found.lags == [[0] * 6] * 8
    assert data.env_steps_per_rollout == 30 == found.rollouts[0].env_steps


def test_environments_of_an_actor_stay_together_whoever_is_at_turn(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_actors": 3, "queue_out_of_sync_factor": 2, "n_envs_per_actor": 2, "epoch_length": 2}
    options["wrappers"] = [SCALE]
    whole = train(make(**options), max_epochs=2)
    assert [rollout.env_index.tolist() for rollout in whole.rollouts] == [
        [0, 1, 2, 3],
        [4, 5, 0, 1],
        [2, 3, 4, 5],
        [0, 1, 2, 3],
    ]
    first = Learner()
    trainer = make_trainer(1)
    trainer.fit(first, make(**options))
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    second = fit(make(**options), 2, ckpt_path=tmp_path / "run.ckpt")
    assert equal([*first.rollouts, *second.rollouts], whole.rollouts)
    workers = train(make(ProcessEngine(2), **options), max_epochs=2)
    assert [rollout.env_index.tolist() for rollout in workers.rollouts] == [
        rollout.env_index.tolist() for rollout in whole.rollouts
    ]
    columns = [
        rollout.segments[0].observation["observation"][:, 2:] for rollout in (*workers.rollouts, *whole.rollouts)
    ]
    assert torch.equal(torch.cat(columns[:4]), torch.cat(columns[4:]))  # which do not depend on the weights


def test_no_number_of_actors_means_one_per_core() -> None:
    assert make(num_actors=0, actors_batch_size=1000).num_actors == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("num_actors", "actors_batch_size"), [(2, 3), (3, 2), (4, 1), (1, 3)])
def test_actors_take_turns_whatever_the_size_of_a_batch(num_actors: int, actors_batch_size: int) -> None:
    options = {"num_actors": num_actors, "actors_batch_size": actors_batch_size, "queue_out_of_sync_factor": 4}
    learner = train(make(**options))
    assert [rollout.n_envs for rollout in learner.rollouts] == [actors_batch_size] * 4
    assert [rollout.env_steps for rollout in learner.rollouts] == [5 * actors_batch_size] * 4
    n_rollouts = 4 * actors_batch_size
    rounds = -(-n_rollouts // num_actors)
    alone = fit(make_data(n_envs=num_actors, n_shards=0, n_rollout_steps=5, epoch_length=rounds))
    # environments do not depend on the weights
    wanted = stream(alone.rollouts, num_actors)
    for ours, theirs in zip(stream(learner.rollouts, num_actors), wanted, strict=True):
        assert ours == theirs[: len(ours)] and len(ours) > 0


def test_a_run_in_this_process_goes_on_exactly_with_whoever_is_at_turn(tmp_path: Path) -> None:
    options: dict[str, Any] = {"actors_batch_size": 3, "wrappers": [SCALE], "epoch_length": 3}
    whole, first = make(**options), Learner()
    expected = train(whole, max_epochs=2)
    trainer = make_trainer(1)
    trainer.fit(first, make(**options))
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    saved = torch.load(tmp_path / "run.ckpt", weights_only=True)
    assert saved["ActorDataModule"]["next_actor"] == 1
    resumed = make(**options)
    second = fit(resumed, 2, ckpt_path=tmp_path / "run.ckpt")
    assert equal([*first.rollouts, *second.rollouts], expected.rollouts)
    kind = ReturnNormalizationRewardWrapper
    assert str(learned(resumed, kind)) == str(learned(whole, kind))
    again = train(whole, max_epochs=2)  # the same data module, from the start
    assert torch.equal(again.rollouts[0].rows.terminated, expected.rollouts[0].rows.terminated)


# ------------------------------------------------------------------------------------------------------ in workers


def promise(data: ActorDataModule) -> float:
    return data.queue_size / data.actors_batch_size + data.num_actors / data.actors_batch_size


@pytest.mark.parametrize(
    ("options", "slow_actor", "seconds", "reached"),
    [
        ({}, False, 0.1, 1),  # rollouts take 10 ms
        ({"queue_out_of_sync_factor": 3}, False, 0.1, 3),
        ({"num_actors": 3, "queue_out_of_sync_factor": 2, "actors_batch_size": 2}, True, 0.0, 1),
        ({"actors_batch_size": 3}, True, 0.01, 1),
    ],
)
def test_lag_stays_within_what_is_promised(
    options: dict[str, Any], slow_actor: bool, seconds: float, reached: int, tmp_path: Path
) -> None:
    data = make(ProcessEngine(2), Slow, str(tmp_path) if slow_actor else None, epoch_length=10, **options)
    learner = train(data, seconds)
    assert (tmp_path / "slow").exists() == slow_actor
    largest = max(max(lags) for lags in learner.lags)
    assert reached <= largest <= promise(data)
    assert [rollout.env_steps for rollout in learner.rollouts] == [5 * data.actors_batch_size] * 10
    fills = [rollout.measures["queue_fill"] for rollout in learner.rollouts]
    if seconds == 0.1:
        assert fills[0] == 0.0 and min(fills[2:]) > 0.4, "a learner that is slow finds a queue that is full"


def test_lag_is_measured_also_after_another_policy_was_evaluated() -> None:
    class Baseline(pl.Callback):
        def on_fit_start(self, trainer: Any, module: Any) -> None:
            data.evaluate("eval", RandomPolicy({key: step.action_space for key, step in data.spec.steps.items()}))

    data = make(ProcessEngine(2), queue_out_of_sync_factor=3, evaluators={"eval": RolloutEvaluator(2)}, epoch_length=8)
    learner = Learner(0.1)
    trainer = make_trainer()
    trainer.callbacks.append(Baseline())
    trainer.fit(learner, data)  # compares the lag that is measured with the weights that acted
    assert max(max(lags) for lags in learner.lags) >= 1


def test_rollouts_are_learned_from_in_the_order_of_turns_and_none_is_lost(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_actors": 3, "actors_batch_size": 2, "queue_out_of_sync_factor": 2}
    evaluators = {"evaluators": EVAL}
    workers, here = (
        train(make(engine, Slow, str(tmp_path), **options, **evaluators), max_epochs=3)
        for engine in (ProcessEngine(2), InProcessEngine())
    )
    assert stream(workers.rollouts, 3) == stream(here.rollouts, 3)
    assert [len(batch) for batch in workers.returns()] == [7, 7, 7]
    assert workers.returns() == here.returns()  # of the deterministic policy with the weights of the epoch's end


def test_weights_are_published_once_for_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[int] = []
    publish = ProcessEngine.publish

    def note(self: ProcessEngine, weights: Any, version: int) -> None:
        published.extend([version] * (version > 0))  # before the first ones there may be those of the start
        publish(self, weights, version)

    monkeypatch.setattr(ProcessEngine, "publish", note)
    train(make(ProcessEngine(2), evaluators={"eval": RolloutEvaluator(2)}), max_epochs=2)
    assert published == list(range(1, 10))  # of the eight batches, and of the evaluation after the last


def test_what_wrappers_learn_is_counted_once_however_late_it_comes() -> None:
    for engine in (ProcessEngine(2), InProcessEngine()):
        data = make(engine, wrappers=[SCALE], queue_out_of_sync_factor=3, epoch_length=6)
        learner = train(data, max_epochs=2)
        count, mean, _ = learned(data, ReturnNormalizationRewardWrapper)["base"]
        assert count - 1 == sum(rollout.env_steps for rollout in learner.rollouts) == 2 * 6 * 2 * 5  # one is a 0
        assert mean > 1.0


def test_statistics_of_other_keys_are_counted_once_too() -> None:
    for engine in (ProcessEngine(2), InProcessEngine()):
        data = make(engine, wrappers=[StepCount], queue_out_of_sync_factor=3, epoch_length=6)
        learner = train(data, max_epochs=2)
        if isinstance(engine, ProcessEngine):
            assert max(map(max, learner.lags)) > 0
        times = [rollout.segments[0].observation["observation"][..., 1] for rollout in learner.rollouts]
        expected = float(torch.cat(times).sum()) + 2 * 6 * 2 * 5  # after each step, the time is one more
        assert learned(data, StepCount) == {"common": [2 * 6 * 2 * 5, expected], "since": [0, 0.0]}


def test_statistics_of_array_wrappers_are_counted_once_too() -> None:
    options: dict[str, Any] = {"num_actors": 2, "actors_batch_size": 2, "n_envs_per_actor": 3, "n_rollout_steps": 5}
    for engine in (ProcessEngine(2), InProcessEngine()):
        options |= {"queue_out_of_sync_factor": 3, "epoch_length": 6, "seed": 3, "evaluators": {}}
        data = ActorDataModule(PendulumArrayEnv, [StepCount], engine=engine, **options)
        train(data, max_epochs=2)
        assert learned(data, StepCount)["common"][0] == 2 * 6 * 2 * 3 * 5


def test_before_a_checkpoint_what_is_under_way_is_finished_and_learned_from_later(tmp_path: Path) -> None:
    class Saving(Learner):
        def training_step(self, batch: Rollout, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            if len(self.rollouts) in (2, 3):
                self.trainer.save_checkpoint(tmp_path / f"{len(self.rollouts)}.ckpt")

    data, learner = make(ProcessEngine(2)), Saving()
    make_trainer(1).fit(learner, data)
    expected = train(make(), max_epochs=2)
    assert stream(learner.rollouts, 2) == [shown[: 4 * 5 * 2] for shown in stream(expected.rollouts, 2)]
    state = torch.load(tmp_path / "3.ckpt", weights_only=True)["ActorDataModule"]
    assert len(state["ranks"][0]) == 2 and all(state["ranks"][0])
    resumed = fit(make(ProcessEngine(2)), 2, ckpt_path=tmp_path / "3.ckpt")
    # the two batches that were collected ahead when it was written are left out
    at = stream(resumed.rollouts, 2)[0][:4]
    whole = stream(expected.rollouts, 2)[0]
    places = [place for place in range(0, len(whole), 2) if whole[place : place + 4] == at]
    assert [place // 10 for place in places] == [4]
    # nothing that was kept of earlier acts may be continued
    first, *others = [rollout.starting for rollout in resumed.rollouts]
    assert first is not None and first.all()
    assert others and not any(starting.any() for starting in others if starting is not None)


def test_what_was_collected_ahead_is_also_marked_in_a_checkpoint_after_the_end(tmp_path: Path) -> None:
    for engine, is_ahead in ((ProcessEngine(2), True), (InProcessEngine(), False)):
        trainer = make_trainer(1)
        trainer.fit(Learner(), make(engine, queue_out_of_sync_factor=2))
        trainer.save_checkpoint(tmp_path / "run.ckpt")
        # in this process some actors are asked only after the next checkpoint
        options: dict[str, Any] = {"actors_batch_size": 1, "queue_out_of_sync_factor": 4, "epoch_length": 1}
        path = tmp_path / "run.ckpt"
        starting = []
        for max_epochs in (5, 6):
            trainer, learner = make_trainer(max_epochs), Learner()
            trainer.fit(learner, make(**options), ckpt_path=path, weights_only=True)
            path = tmp_path / f"{max_epochs}.ckpt"
            trainer.save_checkpoint(path)
            for rollout in learner.rollouts:
                assert rollout.starting is not None
                starting.append(rollout.starting.tolist())
        assert starting[:2] == [[is_ahead]] * 2


def test_a_worker_that_is_killed_is_replaced_and_all_env_steps_are_there(tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    data = make(ProcessEngine(2), Mortal, str(tmp_path), num_actors=4, actors_batch_size=4, n_rollout_steps=7)
    learner = train(data, max_epochs=2)
    assert not list(tmp_path.iterdir())
    assert [rollout.env_steps for rollout in learner.rollouts] == [28] * 8
    assert all(rollout.rows.filled.all() for rollout in learner.rollouts)
    assert max(max(lags) for lags in learner.lags) <= promise(data)
    assert max(one.episode_index for rollout in learner.rollouts for one in rollout.summaries) >= 2**32


def test_an_environment_that_hangs_is_replaced_and_all_env_steps_are_there(tmp_path: Path) -> None:
    (tmp_path / "hang").touch()
    engine = InProcessEngine(step_timeout=0.3)
    data = make(engine, Stuck, str(tmp_path), num_actors=2, actors_batch_size=4, n_rollout_steps=7)
    learner = train(data)
    assert not list(tmp_path.iterdir())
    assert [rollout.env_steps for rollout in learner.rollouts] == [28] * 4
    episodes = [one.episode_index for rollout in learner.rollouts for one in rollout.summaries]
    assert min(episodes) < 2**32 <= max(episodes)  # one of the two actors has begun anew


def test_nothing_is_left_behind_when_training_fails() -> None:
    import multiprocessing

    data = make(ProcessEngine(2))
    with pytest.raises(ArithmeticError, match="the update broke"):
        fit(data, fails_in=2)
    assert not [child for child in multiprocessing.active_children() if "maze_pl-worker" in child.name]
    assert len(train(data).rollouts) == 4  # and it can be used again


# --------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_actors": 5, "actors_batch_size": 2, "queue_out_of_sync_factor": 2}, "more actors than the queue can"),
        ({"num_actors": -1}, "num_actors=-1 must be at least 0"),
        ({"actors_batch_size": 0}, "actors_batch_size=0 must be at least 1"),
        ({"queue_out_of_sync_factor": 0}, "queue_out_of_sync_factor=0 must be at least 1"),
        ({"n_envs_per_actor": 0}, "n_envs_per_actor=0 must be at least 1"),
        ({"n_shards": 1}, "n_shards=1 must be 0"),
        ({"n_rollout_steps": 0}, "n_rollout_steps=0 must be at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)
