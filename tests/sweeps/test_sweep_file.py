"""Sweep files: keys, defaults, command lines of trials, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.summary import configured_value
from maze_pl.sweeps.sweep_file import parse_changes, parse_sweep, read_content, with_absolute_paths, with_changes

SEARCH = {"model.lr": {"low": 0.1, "high": 0.2}, "model.gamma": [0.9, 0.99]}
SMALL: dict[str, Any] = {"config": "ppo_cartpole", "search": SEARCH, "n_trials": 4}


def test_a_trial_is_a_command_line_of_fit_with_searched_options_last() -> None:
    options = {"trainer.max_epochs": 2, "data.evaluators": {"eval": {"n_episodes": 1}}}
    plan = parse_sweep({**SMALL, "options": options, "n_seeds": 3})
    command = plan.command({"model.lr": 0.1, "model": "algorithm/a2c"}, Path("here"))
    assert command[:7] == [
        "fit",
        "--config",
        "ppo_cartpole",
        "--trainer.max_epochs",
        "2",
        "--data.evaluators",
        command[6],
    ]
    assert command[6] == "{eval: {n_episodes: 1}}"
    assert command[7:13] == ["--model.lr", "0.1", "--model", "algorithm/a2c", "--seeds", "3"]
    assert command[13:] == ["--hyperparameters=[model.lr, model]", "--run_dir", "here"]


@pytest.mark.parametrize("group", ["algorithm/ppo", "algorithm/a2c"])
def test_fixed_options_hold_for_each_class_that_is_searched(group: str) -> None:
    search = {"model": ["algorithm/ppo", "algorithm/a2c"], "model.max_grad_norm": [0.25]}
    plan = parse_sweep({**SMALL, "search": search, "options": {"model.gamma": 0.75}})
    model = configured_value(plan.fit({"model": group, "model.max_grad_norm": 0.25}), "model")
    assert (
        model["class_path"] == {"algorithm/ppo": "maze_pl.modules.PPO", "algorithm/a2c": "maze_pl.modules.A2C"}[group]
    )
    found = {**model["init_args"], **model}
    assert (found["gamma"], found["max_grad_norm"]) == (0.75, 0.25)


@pytest.mark.parametrize(
    ("objective", "options", "words"),
    [
        ("eval/kpi/x", {}, ["--best_checkpoint.monitor", "eval/kpi/x", "--best_checkpoint.mode", "max"]),
        (
            {"metric": "eval_A/b/std", "direction": "minimize"},
            {"trainer.max_epochs": 2},
            ["--best_checkpoint.monitor", "eval_A/b/std", "--best_checkpoint.mode", "min", "--trainer.max_epochs", "2"],
        ),
        (
            {"metric": "eval/return", "direction": "minimize"},
            {},
            ["--best_checkpoint.monitor", "eval/return", "--best_checkpoint.mode", "min"],
        ),
        ("eval/return", {}, []),
        ({"metric": "eval/kpi/x", "which": "last"}, {}, []),
        ("eval/kpi/x", {"best_checkpoint.monitor": "eval/return"}, ["--best_checkpoint.monitor", "eval/return"]),
        ("train_ActorCriticEvents/policy_entropy", {}, []),
        ("time_wall_clock", {}, []),
        (["eval/kpi/x", "eval/return"], {}, []),
    ],
)
def test_the_best_checkpoint_is_that_of_the_objective(
    objective: Any, options: dict[str, Any], words: list[str]
) -> None:
    plan = parse_sweep({**SMALL, "objective": objective, "options": options})
    assert plan.fit({"model.lr": 0.1}) == ["fit", "--config", "ppo_cartpole", *words, "--model.lr", "0.1"]


@pytest.mark.parametrize(
    ("best_checkpoint", "is_set"),
    [
        ({"monitor": "eval/kpi/cost", "mode": "min"}, True),
        ({"mode": "min"}, True),
        ({"monitor": "eval/kpi/cost"}, True),
        ({"monitor": "eval/return", "mode": "max"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_the_default_objective_replaces_another_one_of_the_configuration(
    tmp_path: Path, best_checkpoint: Any, is_set: bool
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"base": "ppo_cartpole", "best_checkpoint": best_checkpoint}), encoding="utf-8")
    command = parse_sweep({**SMALL, "config": str(path)}).fit({"model.lr": 0.1})
    words = ["--best_checkpoint.monitor", "eval/return", "--best_checkpoint.mode", "max"] if is_set else []
    assert command == ["fit", "--config", str(path), *words, "--model.lr", "0.1"]
    own = {"best_checkpoint.monitor": "eval/kpi/cost"}
    assert "eval/return" not in parse_sweep({**SMALL, "config": str(path), "options": own}).fit({})
    in_run = {"last_checkpoint.dirpath": "${run_dir}/last"}  # a reference that each trial resolves
    assert parse_sweep({**SMALL, "config": str(path), "options": in_run}).fit({})[3:-2] == words
    path.unlink()
    assert parse_sweep({**SMALL, "config": str(path)}).fit({})[:3] == ["fit", "--config", str(path)]


@pytest.mark.parametrize("config", ["ppo_multi_echelon_stock", "ppo_vehicle_routing", "ppo_cutting_2d"])
def test_shipped_configurations_with_an_objective_are_compared_by_that_of_the_sweep(config: str) -> None:
    command = parse_sweep({**SMALL, "config": config}).fit({"model.lr": 0.1})
    configured = configured_value(command, "best_checkpoint")
    assert (configured["monitor"], configured["mode"]) == ("eval/return", "max")


def test_a_grid_has_as_many_trials_as_combinations_or_the_first_of_them() -> None:
    content = {**SMALL, "search": {"a": [1, 2, 3], "b": [1, 2]}, "sampler": "grid"}
    assert parse_sweep({**content, "n_trials": None}).n_trials == 6
    assert parse_sweep({**content, "n_trials": 4}).n_trials == 4
    assert parse_sweep({**content, "n_trials": 99}).n_trials == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_trails": 3}, "there is no key 'n_trails' in a sweep"),
        ({"n_trails": 3}, "did you mean n_trials or"),
        ({"n_trials": None}, "n_trials is missing: give the number of trials, or `sampler: grid`"),
        ({"n_trials": 0}, "n_trials must be a whole number of at least 1; got 0"),
        ({"n_parallel": 1.5}, "n_parallel must be a whole number"),
        ({"config": None}, "config must name a configuration"),
        ({"options": [1]}, "options must map options"),
        ({"sampler": "tbe"}, "sampler must be one of tpe, cmaes, random, nsga2, grid; got tbe; did you mean tpe?"),
        ({"sampler": {"name": "tpe", "n_startup": 3}}, "sampler tpe has no option 'n_startup'"),
        ({"sampler": {"name": "tpe", "n_startup_trials": "many"}}, "must be of type int; got many"),
        ({"sampler": "cmaes"}, "needs at least 2 ranges without `when`, but search has 1"),
        ({"pruner": "medium"}, "pruner must be one of none, median, hyperband; got medium; did you mean median?"),
        ({"pruner": "median", "objective": ["eval/return", "eval/kpi/x"]}, "pruner=median compares a single value"),
        ({"objective": {"metric": "eval/return", "direction": "up"}}, "direction must be maximize or minimize"),
        ({"objective": {"metrik": "eval/return"}}, "objective must be the name of a metric"),
        ({"objective": {"metric": "a", "wich": "last"}}, "objective has the unknown key 'wich'; did you mean which?"),
        ({"objective": ["a", "a"]}, "objective has a twice"),
        ({"objective": ["a", {"metric": "b", "which": "best"}]}, "of different policies: use `which: last`"),
        ({"options": {"run_dir": "x"}}, "run_dir cannot be an option of a sweep's runs"),
        ({"options": {"model.lr": 1}}, "model.lr is in options and in search: keep one of them"),
        (
            {"options": {"model.init_args.lr": 1}},
            "model.init_args.lr in options and model.lr in search set the same value: keep one of them",
        ),
        (
            {"search": {"model.lr": [1], "model.init_args.lr": [2]}},
            "model.lr and model.init_args.lr in search set the same value: keep one of them",
        ),
        ({"search": {"seed_everything": [1, 2]}, "n_seeds": 2}, "n_seeds=2 counts from seed_everything"),
        ({"runner": "slurm"}, "runner must be one of processes, ray; got slurm"),
    ],
)
def test_invalid_sweep_files_are_refused_in_one_message(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_sweep({**SMALL, **changes})
    assert message in str(error.value)


def test_options_of_the_command_line_change_keys_and_single_options() -> None:
    words = ["--n_trials", "7", "--search.model.lr", "[1, 2]", "--options.trainer.max_epochs=3"]
    content = with_changes(SMALL, parse_changes(words))
    assert content["n_trials"] == 7 and content["search"] == {**SEARCH, "model.lr": [1, 2]}
    assert content["options"] == {"trainer.max_epochs": 3}
    with pytest.raises(ConfigurationError, match="there is no option '--n_trails'; did you mean --n_trials"):
        parse_changes(["--n_trails", "3"])
    with pytest.raises(ConfigurationError, match="--n_trials needs a value"):
        parse_changes(["--n_trials"])


def test_several_configurations_of_the_command_line_are_a_list() -> None:
    assert parse_changes(["--config", "a"]) == {"config": "a"}
    assert parse_changes(["--config", "a", "--config=[b, c]", "--config", "d"]) == {"config": ["a", "b", "c", "d"]}
    plan = parse_sweep(with_changes(SMALL, parse_changes(["--config", "a", "--config", "b"])))
    assert plan.fit({})[1:5] == ["--config", "a", "--config", "b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n_trials", "1", "--n_trials=2"], "--n_trials is given twice: give it once"),
        (["--options.model.lr", "1", "--options.model.lr", "1"], "--options.model.lr is given twice: give it once"),
        (
            ["--search.model.lr", "[1]", "--search.model.init_args.lr", "[2]"],
            "--search.model.lr and --search.model.init_args.lr are the same, which is given twice: give it once",
        ),
    ],
)
def test_other_options_of_the_command_line_are_given_once(words: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_changes(words)
    assert str(error.value) == message


def test_an_option_of_the_command_line_changes_the_one_of_the_file_in_any_spelling() -> None:
    content = {**SMALL, "search": {"model.init_args.lr": [1]}, "options": {"data.n_envs": 2}}
    words = ["--search.model.lr", "[2]", "--options.data.init_args.n_envs", "3"]
    changed = with_changes(content, parse_changes(words))
    assert (changed["search"], changed["options"]) == ({"model.init_args.lr": [2]}, {"data.n_envs": 3})


def test_single_options_of_the_command_line_are_changed_after_all_of_them() -> None:
    changes = parse_changes(["--options.model.lr", "1", "--options", "{model.gamma: 2}"])
    assert with_changes(SMALL, changes)["options"] == {"model.gamma": 2, "model.lr": 1}


@pytest.mark.parametrize("group", ["search", "options"])
@pytest.mark.parametrize(("present", "shown"), [(["a"], "[a]"), ("model.lr", "model.lr"), (3, "3")])
def test_an_option_of_what_is_not_a_mapping_cannot_be_changed(group: str, present: Any, shown: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        with_changes({**SMALL, group: present}, {f"{group}.model.lr": [1, 2]})
    assert str(error.value) == f"{group}.model.lr cannot be set: {group} must map options to values; got {shown}"


@pytest.mark.parametrize("names", ["mine.yaml", ["ppo_cartpole", "mine.yaml", "lost.yaml"], None])
def test_paths_of_configurations_in_a_folder_become_absolute(tmp_path: Path, names: Any) -> None:
    (tmp_path / "mine.yaml").touch()
    content = {"search": SEARCH} if names is None else {"search": SEARCH, "config": names}
    found = with_absolute_paths(content, tmp_path)
    path = str(tmp_path / "mine.yaml")
    expected = {"mine.yaml": path, "None": None}.get(str(names), ["ppo_cartpole", path, "lost.yaml"])
    assert found == {**content, "config": expected} if names else found == content


def test_a_configuration_beside_the_sweep_file_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: ppo_cartpole\n", encoding="utf-8")
    path = tmp_path / "search.yaml"
    path.write_text("config: mine.yaml\nsearch: {model.lr: [1]}\n", encoding="utf-8")
    content, name = read_content(str(path))
    assert (content["config"], name) == (str(tmp_path / "mine.yaml"), "search")
    with pytest.raises(ConfigurationError, match=r"mine\.yaml is the configuration of a run, not a sweep"):
        read_content(str(tmp_path / "mine.yaml"))
    with pytest.raises(ConfigurationError, match=r"no configuration 'nowhere\.yaml'"):
        read_content("nowhere.yaml")


@pytest.mark.parametrize(("has_yaml_texts", "expected"), [(False, ["false", "012", "0.9"]), (True, [False, 10, 0.9])])
def test_texts_are_values_and_yaml_in_sweeps_of_version_0_2_0(has_yaml_texts: bool, expected: list[Any]) -> None:
    options = {"data.env.dict_kwargs.is_slippery": "false", "data.env.dict_kwargs.size": "012"}
    plan = parse_sweep({**SMALL, "search": {"data.env.dict_kwargs.rate": ["0.9"]}, "options": options})
    plan = replace(plan, has_yaml_texts=has_yaml_texts)
    data = configured_value(plan.fit({"data.env.dict_kwargs.rate": "0.9"}), "data")
    found = data["init_args"]["env"]["dict_kwargs"]
    assert [found[name] for name in ("is_slippery", "size", "rate")] == expected
