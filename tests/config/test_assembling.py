from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError, find, parse, shipped_folder
from maze_pl.runs.checkpoint_files import checkpoint_path


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A project with its own configs, and two folders on the search path."""
    project, first, second = (tmp_path / name for name in ("project", "first", "second"))
    for folder in (project / "configs", first, second):
        folder.mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("MAZE_PL_CONFIG_PATH", f"{first}:{second}")
    return {"project": project / "configs", "first": first, "second": second}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_names_are_looked_up_in_the_project_then_the_search_path_then_what_is_shipped(folders: dict[str, Path]) -> None:
    shipped = find("env/gym_env")
    assert shipped == shipped_folder().resolve() / "env" / "gym_env.yaml"
    for where in ("second", "first", "project"):
        mine = write(folders[where] / "env" / "gym_env.yaml", "class_path: mine")
        assert find("env/gym_env") == mine


def test_a_missing_name_says_where_it_was_looked_for_and_what_is_near(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError) as error:
        prepare(["fit", "--config", "ppo_cartpol"])
    assert str(folders["first"]) in str(error.value)
    assert "did you mean ppo_cartpole" in str(error.value)


def test_a_missing_group_file_is_an_error_of_the_option_that_names_it(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"'algorithm/ppoo'.*did you mean algorithm/ppo"):
        prepare(["fit", "--model", "algorithm/ppoo"])


def test_a_path_that_does_not_exist_is_said_to_be_missing(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no configuration 'mine\.yaml'"):
        prepare(["fit", "--config", "mine.yaml"])


@pytest.mark.parametrize("form", [["--config", "mine"], ["--config=mine"], ["-c", "mine"]])
def test_config_options_take_names_in_every_form(folders: dict[str, Path], form: list[str]) -> None:
    write(folders["project"] / "mine.yaml", "seed_everything: 3")
    assert prepare(["fit", *form])[-1] == f"{form[0].partition('=')[0]}={{seed_everything: 3}}"


def test_the_experiment_is_named_after_the_last_configuration_unless_told_otherwise(folders: dict[str, Path]) -> None:
    write(folders["project"] / "one.yaml", "seed_everything: 3")
    write(folders["project"] / "two.yaml", "seed_everything: 4")
    prepared = prepare(["fit", "--config", "one", "--config", "two", "--experiment", "three"])
    assert prepared[:3] == ["fit", "--experiment", "two"]
    assert prepared[-1] == "--experiment=three"


def test_group_files_are_put_in_place_and_other_values_stay_as_they_are(folders: dict[str, Path]) -> None:
    options = ["--data.env", "env/gym_env", "--data.n_envs", "4", "--model.lr", "1e-3", "--run_dir", "outputs/a"]
    prepared = prepare(["fit", *options, "--data.env.name", "ALE/Pong-v5"])
    assert prepared == [
        *("fit", f"--data.env={find('env/gym_env')}", "--data.n_envs=4"),
        *("--model.lr=1e-3", "--run_dir=outputs/a", "--data.env.name=ALE/Pong-v5"),
    ]


def test_a_negative_number_is_a_value(folders: dict[str, Path]) -> None:
    assert prepare(["fit", "--trainer.max_epochs", "-1"]) == ["fit", "--trainer.max_epochs=-1"]


def test_names_inside_a_file_are_replaced_by_what_they_name(folders: dict[str, Path]) -> None:
    write(folders["first"] / "env" / "mine.yaml", "class_path: my.Env\ninit_args: {inner: layout/small}")
    write(folders["second"] / "layout" / "small.yaml", "{width: 3}")
    write(folders["project"] / "mine.yaml", "data: {env: env/mine, path: some/where}")
    prepared = prepare(["fit", "--config", "mine"])
    assert parse(prepared[-1].removeprefix("--config=")) == {
        "data": {"env": {"class_path": "my.Env", "init_args": {"inner": {"width": 3}}}, "path": "some/where"}
    }


def test_files_that_refer_to_each_other_are_refused(folders: dict[str, Path]) -> None:
    write(folders["project"] / "env" / "a.yaml", "inner: env/b")
    write(folders["project"] / "env" / "b.yaml", "inner: env/a")
    with pytest.raises(ConfigurationError, match="refers back"):
        prepare(["fit", "--data.env", "env/a"])


def test_a_file_that_is_not_yaml_is_named(folders: dict[str, Path]) -> None:
    write(folders["project"] / "broken.yaml", "a: [1")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml cannot be read"):
        prepare(["fit", "--config", "broken"])


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["fit", "--resume", "RUN"], "--resume"),
        (["fit", "--warm-start", "RUN"], "--warm_start"),
        (["fit", "--warm-start=RUN"], "--warm_start"),
        (["validate", "RUN"], "--run"),
        (["test", "RUN"], "--run"),
    ],
)
def test_a_run_directory_brings_its_configuration_before_all_options(
    folders: dict[str, Path], tmp_path: Path, arguments: list[str], option: str
) -> None:
    run = tmp_path / "run"
    write(run / "config.yaml", "seed_everything: 3")
    given = [argument.replace("RUN", str(run)) for argument in arguments]
    prepared = prepare([*given, "--model.lr", "1"])
    assert prepared == [arguments[0], "--config={seed_everything: 3}", f"{option}={run}", "--model.lr=1"]


@pytest.mark.parametrize("form", [["--config", "mine"], ["--config=mine"], ["-c", "mine"]])
def test_a_configuration_that_is_named_stands_alone_when_a_run_begins_with_another_one(
    folders: dict[str, Path], tmp_path: Path, form: list[str]
) -> None:
    write(tmp_path / "run" / "config.yaml", "{seed_everything: 3, trainer: {check_val_every_n_epoch: 5}}")
    write(folders["project"] / "mine.yaml", "seed_everything: 4")
    prepared = prepare(["fit", "--warm-start", str(tmp_path / "run"), *form])
    assert prepared[:4] == ["fit", "--experiment", "mine", f"--warm_start={tmp_path / 'run'}"]
    assert prepared[4:] == [f"{form[0].partition('=')[0]}={{seed_everything: 4}}"]


def test_a_folder_without_configuration_is_no_run_directory(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a run directory: it has no config\.yaml$"):
        prepare(["validate", str(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"nowhere is not a run directory: it does not exist$"):
        prepare(["validate", str(tmp_path / "nowhere")])
    write(tmp_path / "run" / "config.yaml", "{}")
    write(tmp_path / "run" / "checkpoints" / "best.ckpt", "")
    with pytest.raises(ConfigurationError, match=r"best.ckpt is not a run directory: .*; did you mean .*/run\?$"):
        prepare(["validate", str(tmp_path / "run" / "checkpoints" / "best.ckpt")])


def test_a_base_that_does_not_exist_is_named_with_the_file(folders: dict[str, Path]) -> None:
    write(folders["project"] / "mine.yaml", "base: ppo_cartpol")
    with pytest.raises(ConfigurationError, match=r"mine\.yaml: base: .*ppo_cartpol"):
        prepare(["fit", "--config", "mine"])


@pytest.mark.parametrize("other", [["--warm-start", "b"], ["--run_dir", "b"]])
def test_resuming_refuses_what_contradicts_it(folders: dict[str, Path], other: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--resume"):
        prepare(["fit", "--resume", "a", *other])


def test_a_run_directory_stands_for_its_preferred_checkpoint(tmp_path: Path) -> None:
    last = write(tmp_path / "checkpoints" / "last.ckpt", "")
    assert checkpoint_path(tmp_path) == last
    best = write(tmp_path / "checkpoints" / "best.ckpt", "")
    assert checkpoint_path(tmp_path) == best
    assert checkpoint_path(tmp_path, ("last",)) == last
    assert checkpoint_path(last) == last
    with pytest.raises(ConfigurationError, match="there is no checkpoint"):
        checkpoint_path(tmp_path / "checkpoints")
