"""Where rollouts are collected and episodes are played decides nothing about what comes out."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.collect.engines import Engine, InProcessEngine, ProcessEngine
from maze_pl.core.batches import Rollout
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import EventLogsWrapper, MazeEnvMonitoringWrapper, TrajectoryRecordingWrapper
from maze_pl.events import EventLogFiles
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.lost_process import LostProcessError
from tests.collect.collectors import dynamic_envs
from tests.collect.counting_policy import CountingPolicy
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift, Failing, Mortal, Stuck
from tests.datamodules.probe import (
    EVAL,
    WRAPPERS,
    Probe,
    equal,
    fit,
    make_data,
    make_trainer,
    next_batch,
    numbers,
    validate,
)
from tests.equality import assert_equal
from tests.structured import hierarchy, team

# Lightning asks back where there are no evaluators.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")]

EVALUATORS = {"eval": RolloutEvaluator(7, n_envs=4), "noisy": RolloutEvaluator(6, deterministic=False, n_envs=3)}


def acting(data: RolloutDataModule, policy: Any) -> RolloutDataModule:
    """The data module in the hands of a trainer that trains a policy."""
    module = SimpleNamespace(policy=policy)
    data.trainer = SimpleNamespace(
        lightning_module=module, global_rank=0, world_size=1, ckpt_path=None, interrupted=False
    )
    return data


def random_policy(spec: Spec) -> RandomPolicy:
    steps = spec.steps.items()
    return RandomPolicy({key: step.action_space for key, step in steps}, {key: step.masks for key, step in steps})


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "flat": (partial(make_gym_maze_env, "CartPole-v1", max_episode_steps=9), random_policy, {}),
    "structured": (hierarchy.make_env, random_policy, {}),
    "dynamic": (dynamic_envs(3)[2], random_policy, {"max_agents": {0: 3}}),
    "recurrent": (team.make_env, CountingPolicy, {}),
}


@pytest.mark.parametrize("n_shards", [1, 2, 5])
@pytest.mark.parametrize("case", CASES)
def test_shards_give_what_their_environments_give_alone(case: str, n_shards: int) -> None:
    env, policy_of, options = CASES[case]
    data = RolloutDataModule(env, n_envs=5, n_rollout_steps=7, n_shards=n_shards, seed=3, evaluators={}, **options)
    policy = policy_of(data.spec)
    acting(data, policy)
    bounds = {1: [0, 5], 2: [0, 2, 5], 5: [0, 1, 2, 3, 4, 5]}[n_shards]
    collectors = []
    for start, stop in itertools.pairwise(bounds):
        vector = SequentialVectorEnv([env] * (stop - start), seed=3, first_env_index=start, spec=data.spec)
        generator = torch.Generator().manual_seed(derive_seed(3, "policy", start))
        collectors.append(Collector(vector, 7, generator))
    for _ in range(3):
        rollout, parts = next_batch(data), [collector.collect(policy) for collector in collectors]
        expected = Rollout.concatenated(parts)
        for name in ("rows", "segments", "finals", "summaries", "flat"):
            assert_equal(getattr(rollout, name), getattr(expected, name))
        assert rollout.seconds > 0
    data.teardown("fit")


def test_one_shard_in_this_process_is_collected_without_a_copy() -> None:
    data = RolloutDataModule(Drift, n_envs=2, evaluators={})
    acting(data, random_policy(data.spec))
    first, second = next_batch(data), next_batch(data)
    assert first.rows.reward.data_ptr() == second.rows.reward.data_ptr()
    data.teardown("fit")


@pytest.mark.parametrize(
    ("n_envs", "n_shards", "expected"), [(4, 0, 4), (4, 4, 4), (4, 5, "n_shards=5 must be at most n_envs=4")]
)
def test_there_are_at_most_as_many_shards_as_environments(n_envs: int, n_shards: int, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            make_data(n_envs=n_envs, n_shards=n_shards)
    else:
        assert make_data(n_envs=n_envs, n_shards=n_shards).n_shards == expected


# ------------------------------------------------------------------------------------------------------ processes


def probe(engine: Engine | None, max_epochs: int = 2, **options: Any) -> Probe:
    given = {"n_envs": 3, "n_shards": 0, "evaluators": EVALUATORS, **WRAPPERS, **options}
    return fit(make_data(engine=engine, **given), max_epochs)


def test_processes_collect_and_evaluate_as_this_process_does() -> None:
    expected, found = probe(None), probe(ProcessEngine(2))
    assert equal(found.rollouts, expected.rollouts)
    for name in EVALUATORS:
        assert found.returns(name) == expected.returns(name)
    assert [one.summaries for one in found.rollouts] != []
    for one, other in zip(found.rollouts, expected.rollouts, strict=True):
        assert_equal(one.summaries, other.summaries)
    assert_ended()


def test_a_run_goes_on_exactly_with_another_engine_and_not_with_other_shards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = probe(None, 4)
    for before, after in [(None, ProcessEngine(1)), (ProcessEngine(2), None)]:
        module, trainer = Probe(), make_trainer(2)
        trainer.fit(module, make_data(engine=before, n_envs=3, n_shards=0, evaluators=EVALUATORS, **WRAPPERS))
        trainer.save_checkpoint(tmp_path / "run.ckpt")
        torch.load(tmp_path / "run.ckpt", weights_only=True)
        data = make_data(engine=after, n_envs=3, n_shards=0, evaluators=EVALUATORS, **WRAPPERS)
        resumed = fit(data, 4, ckpt_path=tmp_path / "run.ckpt")
        assert equal([*module.rollouts, *resumed.rollouts], expected.rollouts)
        assert module.returns("noisy") + resumed.returns("noisy") == expected.returns("noisy")
    with caplog.at_level("INFO"):
        other = fit(make_data(n_envs=3, n_shards=2, **WRAPPERS), 3, ckpt_path=tmp_path / "run.ckpt")
    assert "the checkpoint was written with n_shards=3 instead of 2\n" in caplog.text
    assert other.rollouts[0].segments[0].is_first[0].all()
    played = {one.episode_index for rollout in expected.rollouts[:4] for one in rollout.summaries}
    assert min(one.episode_index for one in other.rollouts[0].summaries) > max(played)


def test_an_engine_serves_one_run_after_the_other() -> None:
    data = make_data(engine=ProcessEngine(2), n_envs=3, n_shards=0, evaluators=EVAL)
    alone = validate(data).returns()
    assert alone == validate(make_data(evaluators=EVAL)).returns()
    module, trainer = Probe(), make_trainer(1)
    trainer.validate(module, data, verbose=False)
    trainer.fit(module, data)
    trainer.validate(module, data, verbose=False)
    assert module.returns()[1] == module.returns()[2]
    assert equal(module.rollouts, fit(make_data(n_envs=3, n_shards=0)).rollouts)
    assert_ended()


def test_a_policy_that_is_not_the_trained_one_is_evaluated_in_workers_too() -> None:
    data = acting(make_data(engine=ProcessEngine(1), evaluators=EVAL), Probe().policy)
    others = [random_policy(data.spec), Probe().policy]
    others[1].weight.data += 5
    next_batch(data)
    for other in others:
        expected = make_data(evaluators=EVAL)
        assert_equal(data.evaluate("eval", other).summaries, expected.evaluate("eval", other).summaries)
        expected.teardown("validate")
    data.teardown("fit")


class Lambda(Probe):
    """Its policy cannot be imported elsewhere, and is another object each time that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        del self.policy
        self.network = Probe().policy

    @property
    def policy(self) -> Any:
        network = self.network
        return SimpleNamespace(act=lambda *arguments, **options: network.act(*arguments, **options))


def test_policies_that_are_no_modules_are_always_the_newest() -> None:
    returns = []
    for engine in (None, ProcessEngine(1)):
        module, data = Lambda(), make_data(evaluators=EVAL, engine=engine)
        acting(data, None)
        for weight in (0.0, 1.0):
            module.network.weight.data.fill_(weight)
            returns.append([one.reward for one in data.evaluate("eval", module.policy).summaries])
        data.teardown("validate")
    assert returns[:2] == returns[2:]
    assert returns[0] != returns[1]


class Keeping(Counter):
    """Keeps more than tensors in its state, on which its actions depend."""

    plus = 0.0

    def get_extra_state(self) -> dict[str, float]:
        return {"plus": self.plus}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.plus = state["plus"]

    def act(self, batch: Any, **options: Any) -> Any:
        step = super().act(batch, **options)
        step.action = {head: values + self.plus for head, values in step.action.items()}
        return step


def test_what_a_policy_keeps_beside_tensors_travels_too() -> None:
    returns = []
    for engine in (None, ProcessEngine(1)):
        data, policy = make_data(evaluators=EVAL, engine=engine), Keeping()
        for plus in (0.0, 1.0):
            policy.plus = plus
            returns.append([one.reward for one in data.evaluate("eval", policy).summaries])
        data.teardown("validate")
    assert returns[:2] == returns[2:]
    assert returns[0] != returns[1]


def test_weights_are_published_once_for_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[float] = []
    publish = ProcessEngine.publish

    def note(self: ProcessEngine, weights: Any, version: int) -> None:
        published.append(weights["weight"].item())
        assert version == len(published)
        publish(self, weights, version)

    monkeypatch.setattr(ProcessEngine, "publish", note)
    fit(make_data(engine=ProcessEngine(1), evaluators=EVALUATORS), 2)
    assert published == [0.0, 1.0, 2.0, 3.0, 4.0]  # of the rollouts, and of the evaluations after the second epoch


def test_environments_of_a_worker_may_have_processes_of_their_own() -> None:
    expected = fit(make_data(n_shards=0, evaluators=EVAL))
    found = fit(make_data(n_shards=0, evaluators=EVAL, engine=ProcessEngine(1), vectorization="subprocess"))
    assert equal(found.rollouts, expected.rollouts)
    assert found.returns() == expected.returns()
    assert_ended()


def test_evaluations_in_workers_are_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    evaluators = {"shown": RolloutEvaluator(n_episodes=3, render=True, n_envs=1)}
    env = partial(make_gym_maze_env, "CartPole-v1", max_episode_steps=3, render_mode="rgb_array")
    data = RolloutDataModule(env, evaluators=evaluators, engine=ProcessEngine(2))
    acting(data, None)
    data.evaluate("shown", random_policy(data.spec))
    data.teardown("validate")
    assert len(list((tmp_path / "renderings" / "shown").glob("*.gif"))) == 3


def assert_ended() -> None:
    import multiprocessing

    assert [child.name for child in multiprocessing.active_children() if "maze_pl-worker" in child.name] == []


def test_an_exception_in_training_ends_the_workers() -> None:
    data = make_data(engine=ProcessEngine(2), n_envs=3, n_shards=0, evaluators=EVAL)
    module = Probe(fails_in=3)
    with pytest.raises(ArithmeticError, match="the update broke"):
        make_trainer(3).fit(module, data)
    assert_ended()
    assert equal(module.rollouts, fit(make_data(n_envs=3, n_shards=0), 2).rollouts[:3])


def test_an_exception_in_an_environment_of_a_worker_says_what_it_was() -> None:
    data = make_data(env=Failing, engine=ProcessEngine(2), n_envs=2, n_shards=0)
    with pytest.raises(RuntimeError, match="the machine is on fire"):
        fit(data)
    assert_ended()
    assert "ranks" not in data.state_dict()


def test_a_worker_that_is_killed_is_replaced_and_no_steps_are_lost_or_counted_twice(tmp_path: Path) -> None:
    (tmp_path / "kill").touch()
    data = make_data(str(tmp_path), Mortal, engine=ProcessEngine(2), **THREE)
    module = fit(data, 2)
    assert [rollout.env_steps for rollout in module.rollouts] == [21] * 4
    assert all(rollout.rows.filled.all() for rollout in module.rollouts)
    episodes = [one.episode_index for rollout in module.rollouts for one in rollout.summaries]
    assert max(episodes) >= 2**32
    whole = fit(make_data(**THREE), 2)
    for n in range(3):  # those of the other worker play what they would have played
        seen = [rollout.rows.reward[:, n].tolist() for rollout in module.rollouts]
        same = seen == [rollout.rows.reward[:, n].tolist() for rollout in whole.rollouts]
        assert same == (
            max(one.episode_index for r in module.rollouts for one in r.summaries if one.env_index == n) < 2**32
        )
    assert_ended()


THREE: dict[str, Any] = {"n_envs": 3, "n_shards": 0}


def test_workers_that_keep_being_killed_end_the_run_with_a_message(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    data = make_data(str(tmp_path), Mortal, engine=ProcessEngine(1, max_replacements=1))
    with pytest.raises(RuntimeError, match="max_replacements=1"):
        fit(data, 2)
    assert_ended()


@pytest.mark.parametrize("engine", [None, lambda: ProcessEngine(1)], ids=["in-process", "processes"])
def test_a_killed_process_of_environments_is_replaced_and_its_actor_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: Any
) -> None:
    (tmp_path / "kill").touch()
    data = make_data(str(tmp_path), Mortal, engine=engine and engine(), vectorization="subprocess")
    module = fit(data, 2)
    assert [rollout.env_steps for rollout in module.rollouts] == [14] * 4
    episodes = [one.episode_index for rollout in module.rollouts for one in rollout.summaries]
    assert min(episodes) >= 2**32  # the actor was lost in its first rollout
    (message,) = [one for one in caplog.messages if "lost" in one or "failed" in one]
    assert "failed: its process died with exit code -9; " in message
    assert "2 more " in message
    assert_ended()


@pytest.mark.parametrize("make", [InProcessEngine, partial(ProcessEngine, 1)], ids=["in-process", "processes"])
def test_processes_of_environments_that_keep_being_killed_end_the_run_with_a_message(tmp_path: Path, make: Any) -> None:
    (tmp_path / "kill").touch()
    engine = make(max_replacements=0)
    data = make_data(str(tmp_path), Mortal, engine=engine, vectorization="subprocess", n_shards=0)
    with pytest.raises(LostProcessError, match=r"environments \d to \d failed: .* exit code -9; max_replacements=0"):
        fit(data, 2)
    assert_ended()


LIMIT: dict[str, Any] = {"step_timeout": 0.3}


@pytest.mark.parametrize("vectorization", ["sequential", "subprocess"])
def test_an_environment_that_hangs_is_replaced_in_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, vectorization: str
) -> None:
    (tmp_path / "hang").touch()
    data = make_data(str(tmp_path), Stuck, engine=InProcessEngine(**LIMIT), vectorization=vectorization)
    module = fit(data, 2)
    assert [rollout.env_steps for rollout in module.rollouts] == [14] * 4
    (message,) = [one for one in caplog.messages if "step_timeout" in one]
    assert re.search(
        r"environment \d \(Stuck\) did not finish a step within step_timeout=0.3 s in episode 0 wi", message
    )
    assert "player 0 restarts, and 2 more" in message
    assert_ended()


def test_an_environment_that_hangs_in_a_worker_is_replaced_also_in_an_evaluation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = validate(make_data(evaluators=EVALUATORS)).returns()
    (tmp_path / "hang").touch()
    engine = ProcessEngine(1, **LIMIT)
    found = validate(make_data(str(tmp_path), Stuck, engine=engine, evaluators=EVALUATORS)).returns()
    assert found == expected
    assert len([one for one in caplog.messages if "(Stuck) did not finish a step" in one]) == 1
    assert_ended()


def test_an_environment_that_hangs_while_statistics_are_estimated_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "hang").touch()
    data = make_data(str(tmp_path), Stuck, engine=InProcessEngine(**LIMIT), **WRAPPERS)
    with pytest.raises(LostProcessError, match=r"\(Stuck\) did not finish a step within .* its wrappers estimated"):
        fit(data)
    assert_ended()


def test_a_time_limit_changes_no_number() -> None:
    expected = fit(make_data(**THREE, **WRAPPERS))
    limited = fit(make_data(engine=InProcessEngine(step_timeout=60), **THREE, **WRAPPERS))
    assert equal(expected.rollouts, limited.rollouts)


def files(folder: Path) -> dict[str, Any]:
    """What was written, without the order of lines and times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".csv":
            header, *lines = [line.split(",") for line in path.read_text().splitlines() if line]
            kept = [place for place, name in enumerate(header) if name != "episode_started"]
            found[path.name] = [header, *sorted([line[place] for place in kept] for line in lines)]
        elif path.is_file():
            found[path.relative_to(folder).as_posix()] = True
    return found


def recorded(engine: Engine | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], Any]:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(folder))
    wrappers = [
        lambda env: TrajectoryRecordingWrapper(env, TrajectoryFiles()),
        lambda env: EventLogsWrapper(env, EventLogFiles()),
        lambda env: MazeEnvMonitoringWrapper(env, True, True, True),
    ]
    module = probe(engine, wrappers=wrappers)
    return files(folder), [[one.samples for one in part.summaries] for part in [*module.rollouts, *module.evaluations]]


def test_what_wrappers_write_and_watch_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, samples = recorded(None, tmp_path / "here", monkeypatch)
    found, others = recorded(ProcessEngine(3), tmp_path / "there", monkeypatch)
    assert len([name for name in expected if name.startswith("trajectories/")]) > 10
    assert len(expected["BaseEnvEvents.reward.csv"]) > 50
    assert found == expected
    assert_equal(others, samples)


def test_the_engine_itself_is_the_policys_place_in_this_process() -> None:
    data = make_data()
    assert isinstance(data.engine, InProcessEngine)
    module = fit(data)
    assert len(module.policy.seen) > 0  # it is the very object that acted
    assert numbers(module.rollouts)
