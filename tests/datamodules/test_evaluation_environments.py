"""Evaluators play other environments than training, or the same one in other wrappers."""

from __future__ import annotations

import copy
import os
import pickle
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maze_pl.collect.engines import ProcessEngine, RayEngine
from maze_pl.datamodules import (
    ActorDataModule,
    PopulationDataModule,
    ReplayDataModule,
    RolloutDataModule,
    RolloutEvaluator,
    SelfLabellingDataModule,
    TrajectoryDataModule,
)
from maze_pl.datamodules.environment_maker import EnvironmentMaker
from maze_pl.datasets import InMemoryDataset
from maze_pl.envs import CartPoleArrayEnv, GifFiles, GymMazeEnv
from maze_pl.envs.job_shop import job_shop_factory
from maze_pl.envs.wrappers import (
    EventLogsWrapper,
    RandomResetWrapper,
    TrajectoryRecordingWrapper,
)
from maze_pl.events.event_log_ends import EVENT_LOG_ENDS
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from tests.datamodules.drift import Drift
from tests.datamodules.held_out import CARTPOLE, LIMIT, SHORT, Shifted, both, lengths
from tests.datamodules.probe import NORMALIZED, SCALE, Probe, equal, fit, make_data, make_trainer, validate
from tests.datamodules.replay_learner import recorded_episodes


def test_an_evaluator_plays_its_environment_and_training_and_other_evaluators_keep_theirs() -> None:
    module = fit(make_data(evaluators=both(env=Shifted)), max_epochs=2)
    alone = fit(make_data(evaluators={"eval": RolloutEvaluator(n_episodes=3, n_envs=2)}), max_epochs=2)
    assert equal(module.rollouts, alone.rollouts)
    assert module.returns("eval") == alone.returns("eval")
    assert all(reward > 30 for evaluation in module.returns("held_out") for reward in evaluation)


def test_without_env_and_wrappers_an_evaluator_plays_as_before() -> None:
    env = partial(Drift, None)
    module = fit(make_data(evaluators={"eval": RolloutEvaluator(n_episodes=3)}))
    same = fit(make_data(evaluators={"eval": RolloutEvaluator(n_episodes=3, env=env, wrappers=[])}))
    assert module.returns() == same.returns()


def test_other_wrappers_stand_around_the_environment_of_training() -> None:
    data = make_data(env=lambda log: CARTPOLE(), wrappers=[LIMIT], evaluators=both(20, wrappers=[]))
    assert max(lengths(data, "eval")) == 5
    assert max(lengths(data)) > 10


def test_wrappers_of_training_stand_around_another_environment() -> None:
    data = make_data(env=lambda log: SHORT(), wrappers=[], evaluators=both(20, env=CARTPOLE))
    assert max(lengths(data, "eval")) == 5
    assert max(lengths(data)) > 10
    data = make_data(env=lambda log: CARTPOLE(), wrappers=[LIMIT], evaluators=both(20, env=CARTPOLE))
    assert max(lengths(data)) == 5


@pytest.mark.parametrize(
    "make",
    [
        partial(ActorDataModule, num_actors=1, actors_batch_size=1),
        PopulationDataModule,
        ReplayDataModule,
        RolloutDataModule,
        SelfLabellingDataModule,
    ],
)
def test_all_data_modules_evaluate_in_other_environments(make: Any) -> None:
    assert max(lengths(make(CARTPOLE, seed=3, evaluators=both(8, env=SHORT)))) == 5


def test_cloning_is_evaluated_in_other_environments() -> None:
    dataset = InMemoryDataset(recorded_episodes())
    assert lengths(TrajectoryDataModule(dataset, Drift, seed=3, evaluators=both(env=Shifted))) == [3] * 3
    with pytest.raises(ValueError, match="need an environment, but there is none"):
        TrajectoryDataModule(dataset, evaluators=both(env=Shifted))


def test_cloning_refuses_evaluators_that_cannot_play_before_the_first_epoch() -> None:
    dataset = InMemoryDataset(recorded_episodes())
    without_form = TrajectoryDataModule(
        dataset,
        CARTPOLE,
        evaluators=both(
            env=CartPoleArrayEnv, wrappers=[partial(RandomResetWrapper, min_skip_steps=0, max_skip_steps=2)]
        ),
    )
    with pytest.raises(ValueError, match=r"^evaluators\['held_out'\]: .*RandomResetWrapper"):
        without_form.setup("fit")
    without_any = partial(NORMALIZED, exclude=["observation"])
    data = TrajectoryDataModule(dataset, Drift, [NORMALIZED], evaluators=both(wrappers=[without_any]))
    data.setup("fit")
    with pytest.raises(ValueError, match=r"^evaluators\['held_out'\]: .*observation.* are not normalised"):
        data.train_dataloader()


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file or directory", "nowhere"), KeyError("ta99")])
def test_errors_of_any_kind_name_the_evaluator(error: Exception) -> None:
    def make() -> Any:
        raise error

    with pytest.raises(type(error)) as raised:
        lengths(make_data(evaluators=both(env=make)))
    assert raised.value is error
    text = "".join(traceback.format_exception_only(error))
    assert "evaluators['held_out']" in text and str(error.args[-1]) in text


class Moving(GymMazeEnv):
    """Changes the current folder when it is made, and can be drawn."""

    n_open = 0

    def __init__(self) -> None:
        os.chdir("/")
        super().__init__("CartPole-v1", render_mode="rgb_array")
        Moving.n_open += 1

    def close(self) -> None:
        Moving.n_open -= 1
        super().close()


def test_checks_close_their_environments_and_keep_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = RolloutDataModule(CARTPOLE, n_envs=1, evaluators=both(env=Moving, render=True))
    data.setup("validate")
    assert Path.cwd() == tmp_path and Moving.n_open == 0
    maker = EnvironmentMaker(Moving, [], None, None, check="fast", step_timeout=None, owner="Data")
    with pytest.raises(ValueError, match="there are statistics for wrappers"):
        maker.require_loadable({"none": {}})
    assert Path.cwd() == tmp_path and Moving.n_open == 0


@pytest.mark.parametrize("name", ["train", "train_tasks", "held/out"])
def test_names_that_would_be_read_as_something_else_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"no evaluator can be named 'train|cannot have a slash in its name"):
        make_data(evaluators={name: RolloutEvaluator()})
    make_data(evaluators={"training": RolloutEvaluator()})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ProcessEngine, pytest.param(RayEngine, marks=pytest.mark.long)])
def test_results_do_not_depend_on_the_engine(kind: Any) -> None:
    def options() -> dict[str, Any]:  # lambdas, which a process could not import
        held_out = both(5, env=lambda: Shifted(), wrappers=[lambda env: NORMALIZED(env)])
        return {"evaluators": held_out, "wrappers": [NORMALIZED, SCALE], "n_normalization_samples": 30}

    here = validate(make_data(**options()))
    there = validate(make_data(engine=kind(n_workers=2), **options()))
    assert there.returns("held_out") == here.returns("held_out")
    assert len(here.returns("held_out")[0]) == 5


def test_evaluators_are_sent_to_spawned_processes_and_copied() -> None:
    data = make_data(evaluators=both(env=lambda: Shifted(), wrappers=[lambda env: LIMIT(env)]))
    evaluator = pickle.loads(pickle.dumps(data.evaluators["held_out"]))
    assert isinstance(evaluator.env(), Shifted) and not evaluator.has_env_of_training
    for other in (pickle.loads(pickle.dumps(data.evaluators)), copy.deepcopy(data.evaluators)):
        assert validate(make_data(evaluators=other)).returns("held_out") == validate(data).returns("held_out")


@pytest.mark.parametrize("env", [None, Shifted])
def test_a_run_resumes_exactly(tmp_path: Path, env: Any) -> None:
    def data() -> Any:
        evaluators = both(env=env, wrappers=[NORMALIZED])
        return make_data(wrappers=[NORMALIZED, SCALE], evaluators=evaluators, n_normalization_samples=30)

    whole = fit(data(), max_epochs=3)
    begun, begun_data, trainer = Probe(), data(), make_trainer(1)
    trainer.fit(begun, begun_data)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    resumed = fit(data(), max_epochs=3, ckpt_path=tmp_path / "run.ckpt")
    assert equal([*begun.rollouts, *resumed.rollouts], whole.rollouts)
    assert [*begun.returns("held_out"), *resumed.returns("held_out")] == whole.returns("held_out")


def test_event_logs_of_evaluators_alone_are_written_and_known_before_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    data = make_data(evaluators=both(wrappers=[EventLogsWrapper.wrap]))
    assert data.state_dict()[EVENT_LOG_ENDS] == {"event_logs": {}}
    module = fit(data)
    n_rows = len((tmp_path / "event_logs" / "BaseEnvEvents.reward.csv").read_text(encoding="utf-8").splitlines()) - 1
    assert n_rows == sum(one.env_steps for one in module.evaluations[1].summaries)
    assert data.state_dict()[EVENT_LOG_ENDS]["event_logs"]["BaseEnvEvents.reward.csv"] > 0


def test_episodes_of_an_evaluator_alone_are_recorded_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    drawn = partial(GymMazeEnv, "CartPole-v1", render_mode="rgb_array", max_episode_steps=3)
    data = RolloutDataModule(CARTPOLE, n_envs=1, seed=3, evaluators=both(2, env=drawn, render=True))
    data.setup("validate")
    assert lengths(data) == [3, 3]
    assert len(list((tmp_path / "renderings" / "held_out").glob("*.gif"))) == 2
    record = partial(TrajectoryRecordingWrapper, writer=GifFiles("recorded"))
    data = RolloutDataModule(CARTPOLE, n_envs=1, seed=3, evaluators=both(2, env=drawn, wrappers=[record]))
    assert len(lengths(data, "eval")) == 2
    assert not (tmp_path / "recorded").exists()
    assert lengths(data) == [3, 3]
    assert len(list((tmp_path / "recorded").glob("*.gif"))) == 2


def test_kpis_are_those_of_the_environment_that_is_played() -> None:
    shop = partial(job_shop_factory, ["random(3x3)"])
    data = RolloutDataModule(shop, evaluators=both(env=lambda: shop()))
    assert data.kpi_names_of("held_out") == data.kpi_names_of("train") == data.kpi_names != ()
    data = RolloutDataModule(CARTPOLE, evaluators=both(env=SHORT))
    assert data.kpi_names_of("held_out") == data.kpi_names == ()
