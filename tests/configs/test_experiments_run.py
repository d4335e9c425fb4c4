"""Every experiment that comes with maze_pl trains: one rollout, one evaluation, and what it saved acts again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import maze_pl
from maze_pl.__main__ import main
from tests.configs.small_experiments import FURTHER, NAMES, OWN, SMALL

QUICK = "ppo_cartpole", "sac_cartpole"


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    marks = [] if name in QUICK else [pytest.mark.slow]
    return [*marks, pytest.mark.envpool] if name == "dqn_pong" else marks


def test_there_are_ppo_and_a2c_for_the_same_environments() -> None:
    others = (
        "ppo_auto",
        "ppo_bipedal_walker",
        "ppo_cartpole_arrays",
        "ppo_cartpole_recurrent",
        "ppo_half_cheetah",
        "ppo_hopper",
        "ppo_lunar_lander_fine_tuning",
        "ppo_pettingzoo",
    )
    problems = "cutting_2d", "job_shop", "multi_echelon_stock", "ride_hailing", "vehicle_routing"  # with PPO only
    names = {name for name in NAMES if name[:3] in ("a2c", "ppo") and name not in others}
    names = {name for name in names if not any(problem in name for problem in problems)}
    environments = {name.partition("_")[2] for name in names}
    assert {"cartpole", "acrobot", "pendulum", "lunar_lander", "lunar_lander_continuous"} <= environments
    assert names == {f"{algorithm}_{environment}" for algorithm in ("a2c", "ppo") for environment in environments}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in NAMES])
def test_experiments_train(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = name.partition("_")[0]
    options = [*SMALL, *OWN[algorithm], *FURTHER.get(name, [])]
    assert main(["fit", "--config", name, *options, "--run_dir", "here"]) == 0
    with Path("here", "metrics.csv").open(encoding="utf-8") as file:
        (steps,) = [int(row["step"]) for row in csv.DictReader(file)]
    assert 0 < steps <= 100
    assert steps == 100 or algorithm == "es"  # whose episodes end by themselves
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.act(observation, env.actor_id().step_key, policy_state={}))
    env.close()
