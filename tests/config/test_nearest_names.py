"""Names that were probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.config.nearest_names import in_python_file, nearest_name, nearest_option

OPTIONS = (
    *("model", "model.lr", "model.gamma", "data", "data.env", "data.env.name", "data.n_envs", "data.wrappers"),
    *("data.evaluators.eval.env", "trainer.max_epochs", "trainer.min_epochs", "seed_everything", "seeds", "run_dir"),
    *("best_checkpoint.monitor", "best_checkpoint.mode", "early_stopping.monitor", "base"),
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "model.lr"),
        ("learning_rate", "model.lr"),
        ("num_envs", "data.n_envs"),
        ("env", "data.env"),  # and not that of an evaluator
        ("env.name", "data.env.name"),
        ("max_epochs", "trainer.max_epochs"),
        ("timesteps", "trainer.max_epochs"),
        ("seed", "seed_everything"),
        ("output_dir", "run_dir"),
        ("to", "run_dir"),
    ],
)
def test_an_option_without_its_section_leads_to_the_one_that_has_it(name: str, meant: str) -> None:
    assert nearest_option(name, OPTIONS) == f"; did you mean {meant}?"
    assert nearest_option(name, OPTIONS, "--") == f"; did you mean --{meant}?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("modle", "model"),  # and not best_checkpoint.mode
        ("modl.init_args.lr", "model.lr"),
        ("bases", "base"),
        ("wrapers", "data.wrappers"),
        ("lrr", "model.lr"),
        ("early_stoping.monitor", "early_stopping.monitor"),
        ("n_env", "data.n_envs"),
    ],
)
def test_a_misspelt_option_leads_to_the_most_similar_one(name: str, meant: str) -> None:
    assert nearest_option(name, OPTIONS) == f"; did you mean {meant}?"
    assert nearest_option(name, OPTIONS, "--") == f"; did you mean --{meant}?"


def test_a_similar_name_with_another_meaning_is_not_suggested() -> None:
    near = "; squared errors of critics have no limit; max_grad_norm limits gradients"
    for name in ("vf_clip_param", "model.vf_clip_param"):
        assert nearest_option(name, [*OPTIONS, "model.value_clip_range", "model.clip_range"], "--") == near


def test_options_of_algorithms_are_named_by_commands_that_train_only() -> None:
    assert nearest_option("gamma", ["trainer.max_epochs"], "--") == "; did you mean --model.gamma?"
    assert nearest_option("gamma", ["n_episodes", "metric"], "--") == ""
    assert nearest_option("to", ["n_episodes", "output_dir"], "--") == "; did you mean --output_dir?"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("--n_env=4", "; did you mean --data.n_envs?"),
        ("-model.lr=1", "; did you mean --model.lr?"),
        ("-to=x", "; did you mean --run_dir?"),
        ("-m=1", ""),  # a letter may stand for anything
    ],
)
def test_unrecognized_options_lead_to_one_with_two_dashes(given: str, near: str) -> None:
    assert nearest_name(f"unrecognized arguments: {given}", "", "", OPTIONS) == near


@pytest.mark.parametrize(
    ("place", "name", "meant"),
    [
        ("model", "dqn", "algorithm/dqn"),
        ("data.env", "gym_env", "env/gym_env"),
        ("model.networks", "model/vector_ob", "model/vector_obs"),
        ("data.evaluators.eval.env", "vehicle_routing", "env/vehicle_routing"),  # and not the policy or the networks
    ],
)
def test_a_name_without_its_folder_leads_to_the_file(place: str, name: str, meant: str) -> None:
    text = f"Expected a dot import path string: {name}"
    assert nearest_name(text, "maze_pl.Data", place, []) == f"; did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("my_envs.py", "; name a class or function with its module, such as my_envs.Maze or my_envs.make"),
        ("my_envs", "; name a class or function with its module, such as my_envs.Maze or my_envs.make"),
        ("my_envs:Maze", "; did you mean my_envs.Maze?"),
        ("./my_envs.Maze", "; did you mean my_envs.Maze?"),
        ("my_envs.py:make", "; did you mean my_envs.make?"),
        ("inner/envs.py", "; name a class or function with its module, such as inner.envs.Inner"),
        ("inner/envs.Iner", "; did you mean inner.envs.Inner?"),
        ("my_envs.Maze", ""),  # a class path, whose import fails for another reason
        ("my.python.Maze", ""),
        ("broken.py", ""),
        ("..", ""),
        ("x" * 5000, ""),
    ],
)
def test_a_file_of_python_code_leads_to_what_it_defines(
    name: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "raise SystemExit\nclass _Base: ...\nclass Maze(_Base): ...\ndef make(): ...\n"
    Path("my_envs.py").write_text(code, encoding="utf-8")
    Path("broken.py").write_text("class", encoding="utf-8")
    Path("inner").mkdir()
    Path("inner", "envs.py").write_text("class Inner: ...\n", encoding="utf-8")
    assert in_python_file(name) == near
