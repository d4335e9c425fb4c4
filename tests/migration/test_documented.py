"""Names of Maze's documentation become options of `maze-pl`, which take effect or are refused by name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.__main__ import main
from maze_pl.config.search_path import ConfigurationError
from maze_pl.migration.documented import (
    component_options,
    fit_options,
    named_component,
    option_value,
    product,
    resume_options,
    rollout_options,
    translated_key,
)
from maze_pl.migration.documented_names import FIT

EVALUATOR = "data.init_args.evaluators.eval"

# Algorithm -> key of the documentation -> its value, and the place in the configuration of a run where it must be.
KEYS: dict[str, dict[str, tuple[Any, str]]] = {
    "a2c": {
        "algorithm.n_epochs": (3, "trainer.max_epochs"),
        "algorithm.epoch_length": (4, "data.init_args.epoch_length"),
        "algorithm.n_rollout_steps": (5, "data.init_args.n_rollout_steps"),
        "algorithm.patience": (6, "early_stopping.patience"),
        "algorithm.gamma": (0.5, "model.init_args.gamma"),
        "algorithm.deterministic_eval": (False, f"{EVALUATOR}.deterministic"),
        "runner.concurrency": (2, "data.init_args.n_envs"),
        "runner.eval_concurrency": (3, f"{EVALUATOR}.n_envs"),
        "runner.eval_repeats": (7, f"{EVALUATOR}.n_episodes"),
        "runner.critic_burn_in_epochs": (1, "model.init_args.critic_burn_in_epochs"),
        "env.name": ("Acrobot-v1", "data.init_args.env.init_args.name"),
        "hydra.run.dir": ("here", "run_dir"),
    },
    "bc": {
        "algorithm.batch_size": (11, "data.init_args.batch_size"),
        "algorithm.validation_percentage": (12, "data.init_args.validation_percentage"),
        "algorithm.n_eval_episodes": (13, f"{EVALUATOR}.n_episodes"),
        "algorithm.optimizer.lr": (0.25, "model.init_args.lr"),
        "runner.dataset.dir_or_file": ("recorded", "data.init_args.dataset.init_args.input_data"),
    },
    "es": {
        "algorithm.n_rollouts_per_update": (8, "data.init_args.n_rollouts_per_update"),
        "algorithm.max_steps": (9, "data.init_args.max_steps"),
        "algorithm.optimizer.step_size": (0.25, "model.init_args.lr"),
        "runner.shared_noise_table_size": (1000, "data.init_args.shared_noise_table_size"),
    },
    "impala": {
        "algorithm.actors_batch_size": (2, "data.init_args.actors_batch_size"),
        "algorithm.queue_out_of_sync_factor": (2, "data.init_args.queue_out_of_sync_factor"),
        "runner.concurrency": (3, "data.init_args.num_actors"),
    },
    "sac": {
        "algorithm.batch_size": (16, "data.init_args.batch_size"),
        "algorithm.replay_buffer_size": (500, "data.init_args.replay_buffer_size"),
        "algorithm.initial_buffer_size": (40, "data.init_args.initial_buffer_size"),
        "algorithm.num_batches_per_iter": (2, "data.init_args.num_batches_per_iter"),
        "algorithm.tau": (0.25, "model.init_args.tau"),
    },
}


def configuration(command: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """The configuration that a command would run."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([command, *options, "--print_config"])
    assert not ended.value.code
    return yaml.safe_load(capsys.readouterr().out)


def value_at(content: Any, place: str) -> Any:
    for name in place.split("."):
        content = content[name]
    return content


@pytest.mark.parametrize("algorithm", KEYS)
def test_keys_take_effect_where_the_algorithm_has_them(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = KEYS[algorithm]
    options = fit_options({"algorithm": algorithm}, {key: value for key, (value, _) in keys.items()})
    content = configuration("fit", options, capsys)
    found = {key: value_at(content, place) for key, (_, place) in keys.items()}
    assert found == {key: value for key, (value, _) in keys.items()}


def test_keys_of_rollouts_take_effect(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"runner.n_episodes": 3, "runner.max_episode_steps": "9", "runner.record_trajectory": True}
    content = configuration("rollout", rollout_options({"env": "gym_env"}, keys), capsys)
    assert (content["n_episodes"], content["max_steps"], content["trajectories"]) == (3, 9, "both")


def test_a_component_may_be_a_class_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    algorithm = {"class_path": "maze_pl.modules.PPO", "init_args": {"gamma": 0.5}}
    env = {"class_path": "maze_pl.envs.make_gym_maze_env", "init_args": {"name": "Acrobot-v1"}}
    content = configuration("fit", fit_options({"algorithm": algorithm, "env": env}, {}), capsys)
    assert content["model"]["class_path"] == "maze_pl.modules.PPO"
    assert content["model"]["init_args"]["gamma"] == 0.5
    assert content["data"]["init_args"]["env"] == env


def test_own_algorithms_start_from_the_documented_defaults_of_ppo() -> None:
    options = fit_options({"algorithm": {"class_path": "project.learning.Own"}}, {})
    assert options == ["--config", "conf_train/ppo", "--model", "{class_path: project.learning.Own}"]


def test_components_come_in_the_order_in_which_they_take_effect() -> None:
    groups = {"critic": "template_state", "runner": {"class_path": "project.Data"}, "model": "vector_obs"}
    assert component_options(groups) == shlex.split(
        "--data '{class_path: project.Data}' --model.networks model/vector_obs "
        "--model.networks.critic critic/template_state"
    )


def test_an_environment_of_ones_own_has_the_arguments_of_the_chosen_one() -> None:
    *_, option, value = fit_options({}, {"env._target_": "project.make_env"})
    assert option == "--data.env"
    assert yaml.safe_load(value) == {"class_path": "project.make_env", "init_args": {"name": "CartPole-v1"}}


def test_a_run_is_continued_with_the_keys_of_its_algorithm(tmp_path: Path) -> None:
    for algorithm, option in (("ES", "data.max_steps"), ("PPO", "model.max_steps")):
        content = {"model": {"class_path": f"maze_pl.modules.{algorithm}"}}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        options = resume_options(str(tmp_path), {}, {"algorithm.max_steps": 5, "runner.n_epochs": 7})
        assert options == ["--resume", str(tmp_path), f"--{option}", "5", "--trainer.max_epochs", "7"]


def test_keys_come_after_the_components_that_they_change(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {class_path: maze_pl.modules.PPO}\n", encoding="utf-8")
    keys = {"algorithm.max_steps": 5, "env.name": "CartPole-v1"}
    options = resume_options(str(tmp_path), {"algorithm": {"class_path": "maze_pl.modules.ES"}, "env": "gym_env"}, keys)
    assert options == shlex.split(
        f"--resume {tmp_path} --data.env env/gym_env --model '{{class_path: maze_pl.modules.ES}}' "
        "--data.max_steps 5 --data.env.name CartPole-v1"
    )


def test_the_longest_key_that_fits_counts() -> None:
    assert translated_key("algorithm", FIT) == "model"
    assert translated_key("algorithm.lr", FIT) == "model.lr"
    assert translated_key("algorithm.rollout_evaluator.n_envs", FIT) == "data.evaluators.eval.n_envs"
    assert translated_key("trainer.max_epochs", FIT) == "trainer.max_epochs"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("algorithn.lr", r"no option 'algorithn.lr'; did you mean algorithm"),
        ("runner.n_epoch", r"no option 'runner.n_epoch'; did you mean runner.n_epochs"),
        ("qqqqqqqq", r"no option 'qqqqqqqq'; known are algorithm, "),
    ],
)
def test_a_key_that_does_not_exist_is_named_with_the_nearest(key: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        translated_key(key, FIT)


def test_a_component_that_does_not_exist_is_named_with_the_nearest() -> None:
    assert named_component("wrappers", "vector_obs") == "wrappers/vector_obs"
    with pytest.raises(ConfigurationError, match="there is no wrappers 'vector_ops'; did you mean vector_obs"):
        named_component("wrappers", "vector_ops")
    with pytest.raises(ConfigurationError, match=r"there is no algorithm 'qqqqqqqq'; there are .*a2c"):
        fit_options({"algorithm": "qqqqqqqq"}, {})


def test_what_belongs_to_training_is_refused_in_rollouts() -> None:
    with pytest.raises(ConfigurationError, match="algorithm=ppo belongs to training: add -cn conf_train"):
        rollout_options({"algorithm": "ppo"}, {})
    with pytest.raises(ConfigurationError, match="policy=torch_policy needs the directory of its run"):
        rollout_options({"policy": "torch_policy"}, {})


def test_values_of_the_documentation_become_those_of_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert option_value("data.env.name", "CartPole-v0") == "CartPole-v1"
    assert capsys.readouterr().err == "maze-pl: CartPole-v0 is outdated in gymnasium; CartPole-v1 takes its place\n"
    assert option_value("model.name", "CartPole-v0") == "CartPole-v0"
    assert option_value("trainer.accelerator", "cuda") == "gpu"
    assert option_value("trajectories", True) == "both"
    assert option_value("model.sizes", [1, 2]) == "[1, 2]"


def test_recorded_episodes_are_found_under_the_name_of_their_folder_today(tmp_path: Path) -> None:
    documented, today = str(tmp_path / "trajectory_data"), tmp_path / "trajectories"
    assert option_value("data.dataset.input_data", documented) == documented, "neither exists: the error names it"
    today.mkdir()
    assert option_value("data.dataset.input_data", documented) == str(today)
    Path(documented).mkdir()
    assert option_value("data.dataset.input_data", documented) == documented


def test_values_are_combined_with_the_last_key_changing_fastest() -> None:
    combinations = product({"a": "12", "b": "xy"}, list)
    assert [combination["a"] + combination["b"] for combination in combinations] == ["1x", "1y", "2x", "2y"]
    assert product({}, list) == [{}]
