"""A user's own configuration: own root, own folders, experiments, references, from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.__main__ import main

PROJECT = Path(__file__).with_name("corridor")
CONFIGS = PROJECT / "corridor" / "configs"
ROOT = str(CONFIGS / "train.yaml")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder that has nothing to do with the project, which only the command makes importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != PROJECT])
    for name in [name for name in sys.modules if name.partition(".")[0] == "corridor"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """What `--print_config` says a command would run."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main(["fit", *options, "--print_config"])
    assert exit_.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["fit", *options]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def arguments(config: Any, part: str) -> Any:
    return config[part]["init_args"]


def test_a_root_of_ones_own_is_named_by_its_path_and_brings_its_groups_and_its_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = printed(capsys, "--config", ROOT)
    env = arguments(config, "data")["env"]
    assert env["class_path"] == "corridor.env.CorridorEnv"
    assert env["init_args"]["layout"] == {
        "class_path": "corridor.env.Layout",
        "init_args": {"length": 4, "file": str(CONFIGS / "layouts" / "drawing.yaml")},
    }
    assert arguments(config, "model")["networks"]["class_path"] == "maze_pl.perception.CustomModelComposer"


def test_references_take_values_from_files_and_options_with_their_types(capsys: pytest.CaptureFixture[str]) -> None:
    config = printed(capsys, "--config", ROOT, "--variables.length", "7", "--data.n_envs", "3")
    assert config["experiment"] == "corridor-7"
    assert "variables" not in config
    data = arguments(config, "data")
    assert data["epoch_length"] == 3
    assert data["env"]["init_args"]["max_steps"] == 70
    assert data["env"]["init_args"]["layout"]["init_args"]["length"] == 7


def test_names_on_the_search_path_find_root_groups_and_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAZE_PL_CONFIG_PATH", str(CONFIGS))
    assert printed(capsys, "--config", "train")["experiment"] == "corridor-4"
    config = printed(capsys, "--config", "train", "--data.env", "env/corridor", "--data.env.max_steps", "9")
    assert arguments(config, "data")["env"]["init_args"]["max_steps"] == 9
    error = refused(capsys, "--config", "ppo_cartpole", "--data.env", "env/corridor")
    assert "env/corridor.yaml refers to variables.length, which is not set by any configuration file" in error


@pytest.mark.slow
def test_an_experiment_changes_only_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    base = printed(capsys, "--config", ROOT)
    experiment = printed(capsys, "--config", str(CONFIGS / "experiment" / "long.yaml"))
    assert experiment["experiment"] == "corridor-6"
    assert arguments(experiment, "model")["gamma"] == 0.9
    assert arguments(experiment, "data")["env"]["init_args"]["layout"]["init_args"]["length"] == 6
    same = printed(capsys, "--config", ROOT, "--variables.length", "6", "--model.gamma", "0.9")
    assert experiment == same != base


@pytest.mark.slow
def test_another_class_keeps_the_arguments_that_it_has_and_says_which_it_drops(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(CONFIGS / "experiment" / "long_with_ppo.yaml")
    model = printed(capsys, "--config", path)["model"]
    assert model["class_path"] == "maze_pl.modules.PPO"
    assert (model["init_args"]["lr"], model["init_args"]["gamma"], model["init_args"]["batch_size"]) == (0.01, 0.9, 20)
    with pytest.raises(SystemExit):
        main(["fit", "--config", path, "--model", "algorithm/a2c", "--print_config"])
    output = capsys.readouterr()
    assert "batch_size" not in yaml.safe_load(output.out)["model"]["init_args"]
    notes = [line for line in output.err.splitlines() if " replaces " in line]
    assert len(notes) == 1
    assert "A2C replaces PPO" in notes[0]
    assert "'batch_size': 20" in notes[0]


@pytest.mark.parametrize("config", [ROOT, str(CONFIGS / "experiment" / "long_with_ppo.yaml"), "ppo_cartpole"])
@pytest.mark.slow
def test_what_is_printed_can_be_fed_back(config: str, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    options = ["--config", config, "--data", "runner/local", "--data.wrappers", "wrappers/vector_obs"]
    first = printed(capsys, *options, "--trainer.max_epochs", "3")
    (elsewhere / "again.yaml").write_text(yaml.safe_dump(first), encoding="utf-8")
    sys.path.append(str(PROJECT))
    assert printed(capsys, "--config", "again.yaml") == first


@pytest.mark.slow
def test_the_printed_configuration_is_the_one_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    expected = printed(capsys, "--config", ROOT)
    assert main(["fit", "--config", ROOT, "--run_dir", "here"]) == 0
    written = yaml.safe_load(Path("here", "config.yaml").read_text(encoding="utf-8"))
    assert {key: written[key] for key in ("model", "data", "trainer", "seed_everything")} == {
        key: expected[key] for key in ("model", "data", "trainer", "seed_everything")
    }


def test_references_that_lead_nowhere_or_in_a_circle_are_refused(
    capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    assert "did you mean variables.length" in refused(capsys, "--config", ROOT, "--variables.lenght", "3")
    (elsewhere / "broken.yaml").write_text("variables: {lr: 1}\nmodel: {init_args: {lr: '${variables.ls}'}}")
    error = refused(capsys, "--config", "broken.yaml")
    assert "broken.yaml refers to variables.ls" in error
    assert "did you mean variables.lr" in error
    (elsewhere / "broken.yaml").write_text(
        "variables: {a: '${variables.b}', b: '1${variables.a}'}\nx: '${variables.a}'"
    )
    assert "variables.a refers to variables.b refers to variables.a" in refused(capsys, "--config", "broken.yaml")


def test_a_base_that_is_missing_or_based_on_its_own_experiment_is_refused(
    capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    (elsewhere / "a.yaml").write_text("base: ppo_cartpol")
    assert "did you mean ppo_cartpole" in refused(capsys, "--config", "a.yaml")
    (elsewhere / "a.yaml").write_text("base: b.yaml")
    (elsewhere / "b.yaml").write_text("base: [a.yaml]")
    assert "which is a circular reference" in refused(capsys, "--config", "a.yaml")
    (elsewhere / "a.yaml").write_text("base: {ppo: 1}")
    assert "is not a name" in refused(capsys, "--config", "a.yaml")


@pytest.mark.slow
def test_it_trains_in_processes_from_anywhere_and_is_evaluated_from_its_run_directory(elsewhere: Path) -> None:
    project = elsewhere / "copy"
    subprocess.run(["cp", "-r", str(PROJECT), str(project)], check=True)
    maze_pl = [sys.executable, "-P", "-m", "maze_pl"]  # -P: nothing is found merely because it lies where one is
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    config = str(project / "corridor" / "configs" / "train.yaml")
    run_dir = str(project / "outputs" / "corridor" / "here")
    for command in (
        ["fit", "--config", config, "--data", "runner/local", "--data.n_envs", "2", "--run_dir", run_dir],
        ["validate", run_dir, "--trust"],
    ):
        result = subprocess.run([*maze_pl, *command], cwd="/", env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert "eval BaseEnvEvents" in result.stdout
