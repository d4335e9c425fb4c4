"""The configurations that come with maze_pl: all of them parse, and their numbers are the documented ones."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.__main__ import main
from maze_pl.callbacks import EarlyStopping
from maze_pl.cli.option_check import check_options
from maze_pl.config import search_path
from maze_pl.config.pieces import from_file
from maze_pl.core.class_path import import_object
from maze_pl.datamodules import (
    ActorDataModule,
    PopulationDataModule,
    RolloutDataModule,
    RolloutEvaluator,
    TrajectoryDataModule,
)
from maze_pl.sweeps.search_space import samples
from maze_pl.sweeps.sweep_file import parse_sweep, read_content

SHIPPED = search_path.shipped_folder()
ALL_NAMES = sorted(path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.yaml"))
OF_ROLLOUTS = [
    name for name in ALL_NAMES if name.startswith("policy/") or name in ("runner/sequential", "runner/parallel")
]
SWEEPS = [name for name in ALL_NAMES if "search" in yaml.safe_load((SHIPPED / f"{name}.yaml").read_text("utf-8"))]
NAMES = [name for name in ALL_NAMES if name not in [*OF_ROLLOUTS, *SWEEPS]]
EXPERIMENTS = [name for name in NAMES if "/" not in name]
OPTION_OF_GROUP = {
    "algorithm": "--model",
    "env": "--data.env",
    "wrappers": "--data.wrappers",
    "model": "--model.networks",
    "critic": "--model.networks.critic",
    "runner": "--data",
    "experiment": "--config",
    "conf_train": "--config",
}
ACTOR_CRITIC = {
    "gamma": 0.98,
    "gae_lambda": 1.0,
    "policy_loss_coef": 1.0,
    "value_loss_coef": 0.5,
    "entropy_coef": 0.00025,
    "max_grad_norm": 0.0,
    "critic_burn_in_epochs": 0,
}
SOFT_ACTOR_CRITIC = {
    "lr": 0.001,
    "gamma": 0.99,
    "max_grad_norm": 0.0,
    "tau": 0.005,
    "target_update_interval": 1,
    "entropy_coef": 0.2,
    "entropy_tuning": True,
    "target_entropy_multiplier": 1.0,
    "entropy_coef_lr": 0.0007,
}
DOCUMENTED = {
    "algorithm/a2c": {**ACTOR_CRITIC, "lr": 0.0005},
    "algorithm/ppo": {**ACTOR_CRITIC, "lr": 0.00025, "batch_size": 100, "n_optimization_epochs": 4, "clip_range": 0.2},
    "algorithm/impala": {
        **{name: value for name, value in ACTOR_CRITIC.items() if name != "gae_lambda"},
        "lr": 0.0005,
        "entropy_coef": 0.01,
        "vtrace_clip_rho_threshold": 1.0,
        "vtrace_clip_pg_rho_threshold": 1.0,
        "reward_clipping": "none",
    },
    "algorithm/sac": SOFT_ACTOR_CRITIC,
    "algorithm/sacfd": SOFT_ACTOR_CRITIC,
    "algorithm/dqn": {
        "lr": 0.0005,
        "gamma": 0.99,
        "max_grad_norm": 0.0,
        "double_q": True,
        "dueling": False,
        "epsilon": None,
        "target_update_interval": 500,
        "tau": 1.0,
        "huber_delta": 1.0,
    },
    "algorithm/td3": {
        "lr": 0.001,
        "gamma": 0.99,
        "max_grad_norm": 0.0,
        "tau": 0.005,
        "policy_delay": 2,
        "exploration_noise": 0.1,
        "target_noise": 0.2,
        "target_noise_clip": 0.5,
    },
    "algorithm/bc": {"lr": 0.001, "entropy_coef": 0.0, "max_grad_norm": 0.0},
    "algorithm/es": {
        "lr": 0.01,
        "optimizer": "adam",
        "l2_penalty": 0.005,
        "noise_stddev": 0.02,
        "policy_wrapper": None,
    },
}


def read(name: str) -> Any:
    return yaml.safe_load((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))


def default(function: Any, name: str) -> Any:
    for owner in function.__mro__ if isinstance(function, type) else [function]:
        parameters = inspect.signature(owner).parameters
        if name in parameters:
            return parameters[name].default
    raise AssertionError(f"{function} has no parameter {name}")


def few_fast(prefix: str, names: list[str]) -> list[Any]:
    """The names that begin with a prefix, all but the first few marked as slow, models also as long: they are run."""
    found = [name for name in names if name.startswith(prefix)]
    marks = [pytest.mark.slow, pytest.mark.long] if prefix == "model/" else [pytest.mark.slow]
    return [*found[:2], *(pytest.param(name, marks=marks) for name in found[2:])]


@pytest.mark.parametrize("name", few_fast("", EXPERIMENTS))
def test_experiments_parse(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["fit", "--config", name, "--print_config"])
    assert exit_.value.code == 0
    assert differences(load(name), yaml.safe_load(capsys.readouterr().out)) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("runner", ["dev", "local"])
@pytest.mark.parametrize("algorithm", ["bc", "es", "sac", "impala", "ppo"])
def test_algorithms_with_documented_defaults_take_each_runner(
    algorithm: str, runner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["fit", "--config", f"conf_train/{algorithm}", "--data", f"runner/{runner}", "--print_config"])
    assert exit_.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]
    assert printed["n_shards"] == 0
    assert printed["engine"]["class_path"] == read(f"runner/{runner}")["init_args"]["engine"]["class_path"]


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_search_options_that_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, _ = read_content(name)
    plan = parse_sweep(content)
    check_options(plan.command(assignment, Path("run")) for assignment in samples(plan.parameters))
    assert main(["fit", "--config", name]) == 2
    assert "is a sweep: start it with `maze-pl sweep" in capsys.readouterr().err


@pytest.mark.parametrize("name", OF_ROLLOUTS)
def test_group_files_of_rollouts_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = name.split("/")[0]
    with pytest.raises(SystemExit) as exit_:
        main(["rollout", "--env", "env/gym_env", f"--{group}", name, "--print_config"])
    assert exit_.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)[group]
    assert printed["class_path"] == read(name)["class_path"]
    assert callable(import_object(printed["class_path"]))


@pytest.mark.parametrize("name", [name for group in OPTION_OF_GROUP for name in few_fast(f"{group}/", NAMES)])
def test_group_files_parse_where_they_belong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["fit", "--config", "ppo_cartpole", OPTION_OF_GROUP[name.split("/")[0]], name, "--print_config"])
    assert exit_.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    for part in OPTION_OF_GROUP[name.split("/")[0]].removeprefix("--config").removeprefix("--").split("."):
        printed = printed if not part else (printed if part in printed else printed["init_args"])[part]
    assert differences(load(name), printed) == []


def load(name: str) -> Any:
    """Content of a shipped file, with what it names in place and without its base."""
    content = from_file("", SHIPPED / f"{name}.yaml", read(name)).content
    return {key: value for key, value in content.items() if key != "base"} if isinstance(content, dict) else content


def differences(wanted: Any, printed: Any, at: str = "") -> list[str]:
    """What a file says and the assembled configuration does not."""
    if isinstance(wanted, dict):
        found = printed if isinstance(printed, dict) else {}
        return [line for key, item in wanted.items() for line in differences(item, found.get(key), f"{at}.{key}")]
    if isinstance(wanted, list) and isinstance(printed, list) and len(wanted) == len(printed):
        pairs = enumerate(zip(wanted, printed, strict=True))
        return [line for index, (item, other) in pairs for line in differences(item, other, f"{at}.{index}")]
    return [] if wanted == printed else [f"{at}: {wanted!r} in the file, {printed!r} assembled"]


@pytest.mark.parametrize("name", NAMES)
def test_the_first_lines_say_by_which_command_a_file_is_used(name: str) -> None:
    head = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[:4]
    assert head[0].startswith("#")
    command = "rllib" if "rllib" in name else "fit"
    assert any(f"maze-pl {command} --config" in line for line in head)


def header_rollouts() -> list[str]:
    """Commands `maze-pl rollout` in the headers of environments."""
    found = []
    for name in NAMES:
        if name.startswith("env/"):
            lines = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
            found += [line.removeprefix("#").strip() for line in lines if line.startswith("#   maze-pl rollout ")]
    return found


@pytest.mark.parametrize("command", header_rollouts())
def test_rollouts_in_headers_play(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--n_episodes", "1", "--max_steps", "3", "--runner", "sequential", "--trajectories", "none"]
    assert main([*shlex.split(command)[1:], *few, "--output_dir", "played"]) == 0, capsys.readouterr().err
    assert (tmp_path / "played" / "episodes.csv").is_file()


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_defaults_of_algorithms_are_the_documented_ones_in_yaml_and_in_python(name: str) -> None:
    node = read(name)
    algorithm = import_object(node["class_path"])
    for parameter, value in DOCUMENTED[name].items():
        assert node["init_args"][parameter] == value, parameter
        assert default(algorithm, parameter) == value, parameter
    for parameter, value in node["init_args"].items():
        assert default(algorithm, parameter) == value, parameter


def test_defaults_that_live_with_the_data_are_the_documented_ones() -> None:
    assert default(RolloutDataModule, "n_rollout_steps") == 100
    assert default(RolloutDataModule, "epoch_length") == 25
    assert default(RolloutDataModule, "n_envs") == 0
    assert default(EarlyStopping, "patience") == 15
    assert (RolloutEvaluator().n_episodes, RolloutEvaluator().deterministic) == (8, True)
    of_actors = {"num_actors": 8, "actors_batch_size": 8, "queue_out_of_sync_factor": 1, "n_rollout_steps": 100}
    assert {name: default(ActorDataModule, name) for name in of_actors} == of_actors
    assert default(ActorDataModule, "epoch_length") == 25
    of_populations = {"n_rollouts_per_update": 10, "n_timesteps_per_update": 0, "max_steps": 0, "epoch_length": 1}
    for name, value in {**of_populations, "shared_noise_table_size": 100_000_000}.items():
        assert default(PopulationDataModule, name) == value
    assert default(TrajectoryDataModule, "batch_size") == 100
    assert default(TrajectoryDataModule, "validation_percentage") == 20


def test_vector_observations_are_normalised_each_by_its_own_statistics() -> None:
    (node,) = read("wrappers/vector_obs")
    arguments = node["init_args"]
    assert arguments["default_strategy_config"] == {"clip_range": [None, None], "axis": 0}
    assert arguments["default_statistics"] is None
