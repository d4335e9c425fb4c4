"""Scripts of benchmarks that take sizes still run, on the least work, and print their figures."""

import json
import shlex
from pathlib import Path

import pytest

from tests.documentation import shell

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = {
    "maze_pl_cartpole.py": ["--algorithm", "ppo", "--env_steps", "2400"],
    "maze_pl_cutting_2d.py": ["--env_steps", "4800"],
    "soft_actor_critic.py": ["--n_updates", "32"],
    "impala.py": ["--env_steps", "2400"],
    "impala.py --arrays 16": ["--env_steps", "2400"],
    "evolution.py": ["--updates", "2"],
    "evolution.py --arrays": ["--updates", "2", "--n_rollouts", "20"],
    "engines.py": ["--env_steps", "400"],
    "rollouts.py": ["--episodes", "4"],
    "bundles.py": [],
    "uneven_acts.py": ["--rounds", "1", "--rollouts", "12"],
    "array_cartpole.py": ["--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "array_cartpole.py --contender plain": ["--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "array_cutting_2d.py": ["--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "array_step.py": ["--n_envs", "8", "--n_steps", "64", "--rounds", "1"],
    "device_arrays.py cartpole": ["--device", "cpu", "--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "device_arrays.py cutting_2d": ["--device", "cpu", "--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "device_arrays.py sac": ["--device", "cpu", "--n_envs", "8", "--n_rollout_steps", "16", "--rollouts", "2"],
    "update_overhead.py": ["--batches", "4"],
    "sweeps.py": ["--trials", "2", "--epochs", "1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_prints_its_figures(script: str, tmp_path: Path) -> None:
    file, *options = script.split()
    shown = shell(shlex.join(["run-script", str(FOLDER / file), *options, *SCRIPTS[script]]) + " 2> errors", tmp_path)
    figures = json.loads(shown.strip().splitlines()[-1])
    numbers = [value for value in figures.values() if not isinstance(value, str | None)]
    assert numbers
    assert all(value >= 0 for value in numbers)
