"""Environments and wrappers of evaluators in configurations and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import maze_pl
from maze_pl import RunContext
from maze_pl.__main__ import main
from maze_pl.datamodules import RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.runs.loading import load_data

SHOP = "maze_pl.envs.job_shop.job_shop_factory"
CONFIGURATION = """
base: ppo_job_shop
data:
  init_args:
    env:
      class_path: maze_pl.envs.job_shop.job_shop_factory
      init_args: {instances: ["random(3x3)"], max_jobs: 5}
    wrappers:
      - class_path: maze_pl.envs.wrappers.RewardScalingWrapper
        init_args: {scale: 0.5}
    n_envs: 2
    n_rollout_steps: 10
    epoch_length: 1
    evaluators:
      eval: {n_episodes: 2}
      larger:
        n_episodes: 2
        env:
          class_path: maze_pl.envs.job_shop.JobShopArrayEnvironment
          init_args: {instances: ["random(5x4)"], max_jobs: "${data.env.max_jobs}"}
        wrappers: []
model:
  init_args: {batch_size: 20}
trainer: {max_epochs: 1}
best_checkpoint: {monitor: larger/kpi/makespan, mode: min}
"""
FIT = ["fit", "--config", "shops.yaml", "--run_dir", "run"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with a configuration, which is the current one."""
    monkeypatch.chdir(tmp_path)
    Path("shops.yaml").write_text(CONFIGURATION, encoding="utf-8")


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """The evaluators of the assembled configuration."""
    with pytest.raises(SystemExit) as exit_:
        main([*FIT, *options, "--print_config"])
    assert exit_.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]["evaluators"]


def test_environments_are_written_as_those_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    evaluators = printed(capsys)
    assert evaluators["eval"]["env"] is evaluators["eval"]["wrappers"] is None
    assert evaluators["larger"]["env"]["class_path"] == "maze_pl.envs.job_shop.JobShopArrayEnvironment"
    assert evaluators["larger"]["env"]["init_args"]["max_jobs"] == 5
    assert evaluators["larger"]["wrappers"] == []


def test_the_command_line_changes_environments_of_evaluators(capsys: pytest.CaptureFixture[str]) -> None:
    larger = printed(capsys, "--data.evaluators.larger.env.instances", "[random(4x3)]")["larger"]
    assert larger["env"]["init_args"]["instances"] == ["random(4x3)"]
    assert larger["n_episodes"] == 2
    options = ["--data.evaluators.eval.env", SHOP, "--data.evaluators.eval.env.instances", "[ft06]"]
    assert printed(capsys, *options)["eval"]["env"]["init_args"]["instances"] == ["ft06"]


def test_groups_stand_for_environments_and_wrappers_of_evaluators(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data.evaluators.eval.env", "env/job_shop", "--data.evaluators.eval.wrappers", "wrappers/monitoring"]
    own = printed(capsys, *options)["eval"]
    assert own["env"]["init_args"]["instances"] == ["random(15x15)"]
    assert [node["class_path"] for node in own["wrappers"]] == ["maze_pl.envs.wrappers.MazeEnvMonitoringWrapper"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data.evaluators.larger.env.max_jobs", "6"], ["observation 'options' of sub-step 0", "larger", "(6, "]),
        (["--data.evaluators.larger.env.instances", "[none.txt]"], ["evaluators['larger']", "'none.txt'"]),
        (["--data.evaluators.larger.env.instanses", "[ft06]"], ["did you mean instances?"]),
        (["--data.evaluators.larger.environment", SHOP], ["'environment' is not accepted"]),
        (["--best_checkpoint.monitor", "larger/kpi/makspan"], ["larger/kpi/makspan", "did you mean makespan?"]),
        (["--data.evaluators.larger.render", "true"], ["evaluators['larger'] cannot render an array environment"]),
    ],
)
def test_mistakes_are_refused_in_one_message(
    options: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FIT, *options]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error
    assert error.count("error:") == 1 and "Traceback" not in error


def test_wrappers_are_not_appended_to_those_of_training_that_an_evaluator_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    option = "--data.evaluators.eval.wrappers"
    assert main([*FIT, f"{option}+", "wrappers/monitoring"]) == 2
    message = f"{option}+ would replace the wrappers of training, which this evaluator has: begin with {option}"
    assert f"{message} '${{data.wrappers}}'" in capsys.readouterr().err
    own = printed(capsys, option, "${data.wrappers}", f"{option}+", "wrappers/monitoring")["eval"]["wrappers"]
    names = [node["class_path"].rpartition(".")[2] for node in own]
    assert names == ["RewardScalingWrapper", "MazeEnvMonitoringWrapper"]
    larger = printed(capsys, "--data.evaluators.larger.wrappers+", "wrappers/monitoring")["larger"]["wrappers"]
    assert [node["class_path"].rpartition(".")[2] for node in larger] == ["MazeEnvMonitoringWrapper"]


def returns(evaluation: Any, name: str, policy: str) -> list[float]:
    return [episode["return"] for episode in evaluation["evaluators"][name][policy]]


@pytest.mark.slow
def test_a_run_is_evaluated_validated_resumed_and_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FIT) == 0, capsys.readouterr().err
    assert "new best larger/kpi/makespan" in capsys.readouterr().out
    evaluation = json.loads(Path("run/final_evaluation.json").read_text(encoding="utf-8"))
    assert all(reward < -20 for reward in returns(evaluation, "larger", "best"))  # not divided by a bound
    assert all(reward > -5 for reward in returns(evaluation, "eval", "best"))
    assert main(["validate", "run"]) == 0
    assert "larger BaseEnvEvents" in capsys.readouterr().out
    assert load_data("run").evaluators == {}
    data = load_data("run", with_evaluators=True)
    with data.final_episodes():
        found = data.evaluate("larger", maze_pl.load("run").policy)
    assert [one.reward for one in found.summaries] == returns(evaluation, "larger", "best")
    data.teardown("validate")
    assert data.make_env().env.scale == 0.5  # type: ignore[attr-defined]
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "2"]) == 0
    assert main(["fit", "--warm-start", "run", "--run_dir", "second", "--trainer.max_epochs", "1"]) == 0


@pytest.mark.slow
def test_untrusted_environments_of_evaluators_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(FIT) == 0, capsys.readouterr().err
    path = Path("run/config.yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("maze_pl.envs.job_shop.JobShopArrayEnvironment", "json.dumps"), encoding="utf-8")
    assert main(["validate", "run"]) == 2
    assert "json.dumps" in capsys.readouterr().err


@pytest.mark.slow
def test_run_context_takes_environments_of_evaluators_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    limited = [lambda env: TimeLimitWrapper(env, 3)]
    evaluators = {
        "eval": RolloutEvaluator(n_episodes=1),
        "short": RolloutEvaluator(n_episodes=2, env=lambda: GymMazeEnv("CartPole-v1", max_episode_steps=4)),
        "limited": RolloutEvaluator(n_episodes=2, wrappers=limited),
    }
    small = {"data.n_envs": 1, "data.n_rollout_steps": 20, "data.epoch_length": 1, "algorithm.batch_size": 20}
    overrides = {"env.name": "CartPole-v1", **small, "data.evaluators": evaluators}
    RunContext(algorithm="ppo", overrides=overrides, run_dir="here", silent=True).train(n_epochs=1)
    evaluation = json.loads(Path("here/final_evaluation.json").read_text(encoding="utf-8"))
    assert returns(evaluation, "short", "last") == [4.0, 4.0]
    assert maze_pl.load_env("here").spec is not None
    for command in (["view", "here"], ["compare", "here", "--n_episodes", "2"]):
        assert main(command) == 0
    assert main(["validate", "here"]) == 2
    names = ["data.evaluators.short.env", "data.evaluators.limited.wrappers"]
    remedy = "use RunContext(run_dir=..., overrides={" + ", ".join(f"{name!r}: ..." for name in names) + "})"
    assert remedy in capsys.readouterr().err
    again = {names[0]: evaluators["short"].env, names[1]: limited}
    found = RunContext(run_dir="here", overrides=again, silent=True).evaluate()
    assert found["short/return"] == 4.0 and found["limited/return"] == 3.0
