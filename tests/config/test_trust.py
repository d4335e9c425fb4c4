"""Run directories and checkpoints from somebody else run no code, and those of one's own project are easy to use."""

from __future__ import annotations

import base64
import os
import pickle
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config.assembling import prepare
from maze_pl.config.search_path import ConfigurationError, shipped_folder
from maze_pl.config.trust import import_folders, source_folders
from tests.bad_input.project import SMALL

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

INTRUDER = "from pathlib import Path\nPath({marker!r}).touch()\ndef attack(*_, **__): Path({marker!r}).touch()\n"
COMMANDS = [
    ["validate", "run"],
    ["test", "run"],
    ["check", "run"],
    ["rollout", "run", "--n_episodes", "1"],
    ["fit", "--resume", "run"],
    ["fit", "--warm-start", "run"],
]


# ---------------------------------------------------------------------------------------------- runs of strangers


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAZE_PL_RUN_DIR", "")
        assert main(["fit", "--config", "ppo_cartpole", *SMALL, "--run_dir", str(path)]) == 0
    return path


@pytest.fixture
def received(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: a run that somebody has sent, with a module beside it and in it that leaves a mark."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path / "run")
    for folder in (tmp_path, tmp_path / "run"):
        (folder / "intruder.py").write_text(INTRUDER.format(marker=str(tmp_path / "mark")), encoding="utf-8")
    yield tmp_path
    sys.modules.pop("intruder", None)


def change(change_config: Callable[[Any], Any]) -> None:
    """Change the configuration of the run, and that in its checkpoints."""
    path = Path("run", "config.yaml")
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    change_config(config)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    for checkpoint in Path("run", "checkpoints").glob("*.ckpt"):
        content = torch.load(checkpoint, weights_only=True)
        content["maze_pl"]["config"] |= {part: config[part] for part in ("model", "data")}
        torch.save(content, checkpoint)


def env_by_class_path(config: Any) -> None:
    config["data"]["init_args"]["env"] = {"class_path": "intruder.attack"}


def env_by_gymnasium(config: Any) -> None:
    config["data"]["init_args"]["env"]["init_args"]["name"] = "intruder:CartPole-v1"


def env_by_command(config: Any) -> None:
    config["data"]["init_args"]["env"] = {"class_path": "subprocess.getoutput", "init_args": {"cmd": "touch mark"}}


def env_by_reference(config: Any) -> None:
    config["variables"] = {"module": "intruder", "name": "attack"}
    config["data"]["init_args"]["env"] = {"class_path": "${variables.module}.${variables.name}"}


def env_by_file(config: Any) -> None:
    Path("run", "env").mkdir(exist_ok=True)
    Path("run", "env", "mine.yaml").write_text("class_path: intruder.attack", encoding="utf-8")
    config["data"]["init_args"]["env"] = "env/mine"


class Marker:
    """Content of a pickle that touches the file `mark`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch mark",)


def env_by_function_that_unpickles(config: Any) -> None:
    content = base64.b64encode(pickle.dumps(Marker())).decode()
    config["data"]["init_args"]["env"] = {
        "class_path": "maze_pl.rllib.step_networks.from_bytes",
        "init_args": {"content": content},
    }


def env_by_function_that_starts_a_process(config: Any) -> None:
    arguments = {"command": ["--version"], "variables": {"PYTHONPATH": "run"}, "output": None}
    path = "maze_pl.runs.run_processes._start_here"
    config["data"]["init_args"]["env"] = {"class_path": path, "init_args": arguments}


def env_by_function_that_runs_a_command(config: Any) -> None:
    command = ["fit", "--config=ppo_cartpole", "--data.env=intruder.attack"]
    path = "maze_pl.run_context.commands.run_command"
    config["data"]["init_args"]["env"] = {
        "class_path": path,
        "init_args": {"command": command, "objects": {}, "is_silent": True},
    }


def wrapper_with_function(config: Any) -> None:
    plots = {"class_path": "maze_pl.envs.wrappers.ObservationVisualizationWrapper"}
    config["data"]["init_args"]["wrappers"] = [plots | {"init_args": {"plot_function": "intruder.attack"}}]


BY_FUNCTION = [
    env_by_function_that_unpickles,
    env_by_function_that_starts_a_process,
    env_by_function_that_runs_a_command,
]
ATTACKS = [env_by_gymnasium, env_by_command, env_by_reference, env_by_file, wrapper_with_function, *BY_FUNCTION]


@pytest.mark.parametrize(
    ("command", "attack"),
    [*((command, env_by_class_path) for command in COMMANDS), *((COMMANDS[0], attack) for attack in ATTACKS)],
)
def test_a_run_that_names_other_code_is_refused_before_any_of_it_is_imported(
    command: list[str], attack: Callable[[Any], None], received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(attack)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert f"repeat the command with --trust:\n  {shlex.join(['maze-pl', *command, '--trust'])}\n" in error
    assert "Traceback" not in error
    assert not Path("mark").exists()
    assert "intruder" not in sys.modules


@pytest.mark.slow
def test_a_class_that_a_run_names_without_its_module_is_refused_too(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(lambda config: config["trainer"].update(callbacks=[{"class_path": "LambdaCallback"}]))
    assert main(["validate", "run"]) == 2
    assert "run names objects outside of maze_pl" in (error := capsys.readouterr().err)
    assert "pytorch_lightning.callbacks.LambdaCallback" in error
    assert main(["validate", "run", "--trust"]) == 0


@pytest.mark.parametrize(
    "attack", [env_by_class_path, env_by_gymnasium, env_by_command, wrapper_with_function, *BY_FUNCTION]
)
def test_an_environment_of_a_checkpoint_is_made_only_if_its_classes_are_known(
    attack: Callable[[Any], None], received: Path
) -> None:
    sys.path.append(str(received))
    change(attack)
    for path in ("run", "run/checkpoints/last.ckpt"):
        with pytest.raises(ConfigurationError, match=r"run.* names objects outside of .*trust=True"):
            maze_pl.load_env(path)
    assert not Path("mark").exists()
    assert maze_pl.load("run").act({"observation": [0.0] * 4})["action"] in (0, 1)


def test_an_agent_of_a_checkpoint_is_made_only_if_its_classes_are_known(received: Path) -> None:
    change(
        lambda config: config.update(model={"class_path": "subprocess.getoutput", "init_args": {"cmd": "touch mark"}})
    )
    with pytest.raises(ConfigurationError, match=r"subprocess\.getoutput.*trust=True"):
        maze_pl.load("run")
    change(lambda config: config.update(model={"class_path": "torch.nn.Linear", "init_args": {}}))
    with pytest.raises(ValueError, match=r"run: 'torch.nn.Linear' is not a subclass of AlgorithmModule"):
        maze_pl.load("run")
    assert not Path("mark").exists()


def test_an_agent_by_its_path_as_policy_needs_trust_too(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(lambda config: config["model"].update(class_path="intruder.attack"))
    command = ["rollout", "--env", "env/gym_env", "--policy", "policy/torch_policy", "--policy.path", "run"]
    assert main(command) == 2
    message = capsys.readouterr().err
    assert "intruder.attack; if you trust its origin, use --policy.trust true, or trust=True in Python\n" in message
    assert not Path("mark").exists()


@pytest.mark.parametrize("words", ["view run", "compare run random", "export run --to agent.zip", "rollout run"])
def test_a_command_that_needs_trust_names_its_option(
    words: str, received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(lambda config: config["model"].update(class_path="intruder.attack"))
    assert main(words.split()) == 2
    message = capsys.readouterr().err
    assert "intruder.attack" in message and "--trust" in message and "--policy.trust" not in message
    if words != "rollout run":  # which repeats the command
        assert "; if you trust its origin, use --trust, or trust=True in Python\n" in message
    assert not Path("mark").exists()


def test_statistics_in_a_checkpoint_name_no_function_that_is_called(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in Path("run", "checkpoints").glob("*.ckpt"):
        content = torch.load(path, weights_only=True)
        key = ("ObservationVisualizationEvents", "observation", None, ("intruder.attack", "0", "x"))
        summary = {"episode_index": 0, "env_index": 0, "reward": 1.0, "env_steps": 1, "samples": {key: [1.0]}}
        content["maze_pl"]["ranks"][0]["statistics"]["pending"] = {"train": [summary]}
        torch.save(content, path)
    sys.path.append(str(received))
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "2"]) == 2
    assert "intruder.attack" in capsys.readouterr().err
    assert not Path("mark").exists()


def test_names_that_the_user_types_are_not_looked_up_beside_the_run(received: Path) -> None:
    Path("run", "env").mkdir()
    Path("run", "env", "gym_env.yaml").write_text("class_path: intruder.attack", encoding="utf-8")
    given = ["rollout", "run", "--env", "env/gym_env"]
    assert f"--env={shipped_folder() / 'env' / 'gym_env.yaml'}" in prepare(given)
    assert f"--env={Path('run', 'env', 'gym_env.yaml').resolve()}" in prepare([*given, "--trust"])


def test_nothing_is_imported_from_the_current_folder_unless_the_user_names_it(received: Path) -> None:
    before = list(sys.path)
    prepare(["validate", "run"])
    assert sys.path == before
    prepare(["rollout", "run", "--policy", "my_policies.Greedy"])
    assert sys.path == [*before, str(received)]


@pytest.mark.slow
def test_a_run_of_known_classes_needs_no_trust(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "run"]) == 0
    assert maze_pl.load_env("run").reset(seed=0)[0]["observation"].shape == (4,)
    options = ["--runner", "sequential", "--n_episodes", "1", "--output_dir", "played"]
    assert main(["rollout", "run", *options, "--event_logs", "false", "--trajectories", "none"]) == 0


# ------------------------------------------------------------------------------------- runs of one's own project

PROJECT = """
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import PPO

class Careful(PPO):
    pass

def make_env() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with classes of its own, and a run `run` of it in another folder."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "own_parts.py").write_text(PROJECT, encoding="utf-8")
    (folder / "own.yaml").write_text(
        "base: ppo_cartpole\nmodel: {class_path: own_parts.Careful}\ndata: {init_args: {env: own_parts.make_env}}\n",
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def of_project(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder than the project's, which is not on Python's path."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_parts", None)


@pytest.mark.slow
def test_a_run_of_ones_own_project_goes_on_with_trust_wherever_one_is(
    project: Path, of_project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = list(sys.path)
    fit = ["fit", "--config", str(project / "own.yaml"), *SMALL, "--run_dir", "run"]
    assert main(fit) == 0
    shown = capsys.readouterr().out
    assert "  maze-pl validate run --trust\n" in shown
    assert "  maze-pl fit --resume run --trainer.max_epochs 2 --trust\n" in shown
    assert Path("run", "source_folders.txt").read_text(encoding="utf-8") == f"{project}\n"
    for command in (*COMMANDS[:3], ["fit", "--resume", "run", "--trainer.max_epochs", "2"]):
        monkeypatch.setattr(sys, "path", list(path))
        sys.modules.pop("own_parts", None)
        capsys.readouterr()
        assert main(command) == 2
        assert f"own_parts.Careful, own_parts.make_env (imported from {project} when" in capsys.readouterr().err
        assert "own_parts" not in sys.modules
        assert main([command[0], "--trust", *command[1:]]) == 0
    monkeypatch.setattr(sys, "path", list(path))
    sys.modules.pop("own_parts", None)
    with pytest.raises(ConfigurationError, match=rf"own_parts.Careful \(imported from {project}.*trust=True"):
        maze_pl.load("run")
    agent, env = maze_pl.load("run", trust=True), maze_pl.load_env("run", trust=True)
    assert type(agent).__name__ == "Careful"
    assert agent.act(env.reset(seed=0)[0])["action"] in (0, 1)


def test_a_module_that_is_gone_is_named_in_one_message(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(lambda config: config["model"].update(class_path="gone.Agent"))
    Path("run", "source_folders.txt").write_text("/nowhere/shop\n", encoding="utf-8")
    message = r"needs gone.Agent, but the module 'gone' was not found \(it was in /nowhere/shop when .*PYTHONPATH"
    with pytest.raises(ConfigurationError, match=message) as caught:
        maze_pl.load("run", trust=True)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert main(["validate", "run", "--trust"]) == 2
    error = capsys.readouterr().err
    assert "the module 'gone' was not found (it was in /nowhere/shop" in error
    assert len(error.splitlines()) == 1


def test_a_run_remembers_where_its_classes_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_module.py").touch()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("lone_module.A", "parts.inner.B", "torch.optim.Adam", "maze_pl.modules.PPO", "not_here.C")
    assert source_folders([{"class_path": name} for name in names]) == [tmp_path]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "source_folders.txt").write_text(f"{tmp_path / 'parts'}\n/nowhere\n", encoding="utf-8")
    assert import_folders(tmp_path / "run") == [str(tmp_path / "run"), str(tmp_path / "parts")]


def test_a_copied_project_imports_its_own_code_on_the_command_line_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shop", "copied"):
        run = tmp_path / name / "outputs" / "run"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("{}\n", encoding="utf-8")
        (run / "source_folders.txt").write_text(f"{tmp_path / 'shop'}\n", encoding="utf-8")
    run = tmp_path / "copied" / "outputs" / "run"
    path = list(sys.path)
    for folder in (tmp_path, tmp_path / "shop"):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(path))
        prepare(["rollout", str(run), "--trust"])
        added = sys.path[len(path) :]
        assert added == list(dict.fromkeys([str(tmp_path / "copied"), str(folder), str(tmp_path / "shop")]))
    assert import_folders(run) == [str(tmp_path / "copied"), str(tmp_path / "shop")]
