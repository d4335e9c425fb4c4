"""`maze-pl list`, and the other answers that must not wait for torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import maze_pl.envs.wrappers
from maze_pl.__main__ import main
from maze_pl.cli.list import TOPICS, configs, environments, wrappers
from maze_pl.config.search_path import known_names


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_algorithm_and_configuration_that_is_shipped_has_a_line() -> None:
    assert dict(configs("algorithm/"))["algorithm/ppo"].startswith("PPO with the documented defaults")
    rows = dict(configs())
    assert set(rows) == set(known_names()) >= {"ppo_cartpole", "experiment/cartpole_ppo_wrappers", "runner/local"}
    assert all(rows.values())
    assert not [line for line in rows.values() if "maze-pl fit" in line]


def test_every_wrapper_that_is_exported_has_its_docstring() -> None:
    exported = [name for name in vars(maze_pl.envs.wrappers) if name.endswith("Wrapper")]
    assert [name for name, _ in wrappers()] == sorted(f"maze_pl.envs.wrappers.{name}" for name in exported)
    assert all(text.endswith(".") for _, text in wrappers())


def test_environments_are_those_that_gymnasium_can_make_here_in_their_newest_versions() -> None:
    rows = dict(environments())
    assert rows["Pendulum-v1"] == "gymnasium.envs.classic_control.pendulum.PendulumEnv, at most 200 steps"
    assert "CartPole-v1" in rows
    assert not {"CartPole-v0", "Ant-v2", "GymV21Environment-v0"} & set(rows)
    assert ("LunarLander-v3" in rows) == (not missing("Box2D"))
    assert ("Ant-v5" in rows) == (not missing("mujoco"))
    assert rows["env/gym_env"] == "Any registered gymnasium environment."


def missing(module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([sys.executable, "-c", code]).returncode == 1


def test_configurations_of_the_user_are_listed_too(folder: Path) -> None:
    (folder / "configs" / "env").mkdir(parents=True)
    (folder / "configs" / "env" / "mine.yaml").write_text("# maze-pl fit --data.env env/mine\n# All mine.\nx: 1\n")
    (folder / "configs" / "silent.yaml").write_text("x: 1\n")
    assert dict(configs())["env/mine"] == dict(environments())["env/mine"] == "All mine."
    assert dict(configs())["silent"] == ""


def test_files_of_a_project_come_first_with_their_descriptions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "configs"]) == 0
    assert "of this project" not in capsys.readouterr().out
    (folder / "configs" / "env").mkdir(parents=True)
    (folder / "configs" / "env" / "zebra.yaml").write_text("# Crossing of streets.\nx: 1\n")
    for topic in ("configs", "environments"):
        assert main(["list", topic]) == 0
        _, heading, own, *shipped = capsys.readouterr().out.splitlines()
        assert heading == "  of this project:" and own.split(None, 1) == ["env/zebra", "Crossing of streets."]
        assert shipped[0] == "  of maze_pl and its libraries:"
        assert "env/gym_env" in {line.split()[0] for line in shipped} and "env/zebra" not in "".join(shipped)
    assert main(["list", "algorithms"]) == 0
    assert "of this project" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "new"])
def test_help_says_what_the_command_takes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: maze-pl {command} [-h]")


@pytest.mark.slow
def test_topics_can_be_chosen_and_lines_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "wrappers"]) == 0
    chosen = capsys.readouterr().out
    assert chosen.startswith("wrappers (")
    assert "CartPole" not in chosen
    assert main(["list"]) == 0
    everything = capsys.readouterr().out
    assert [line.split()[0] for line in everything.splitlines() if line[:1].strip()] == list(TOPICS)
    assert max(map(len, everything.splitlines())) <= 120
    assert main(["list", "wrappers", "configs"]) == 0
    assert capsys.readouterr().out.count("\n\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algorithm"], "did you mean algorithms"),
        (["things"], "use algorithms, configs"),
        (["--all"], "maze-pl list --help"),
    ],
)
def test_an_unknown_topic_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], [], ["list"], ["new", "somewhere"], ["fit", "--config", "x"]]
)
def test_neither_torch_nor_lightning_is_imported_for_what_can_be_said_without(arguments: list[str]) -> None:
    code = (
        "import sys; from maze_pl.__main__ import main; main(sys.argv[1:]);"
        "heavy = {'torch', 'pytorch_lightning', 'lightning_fabric', 'jsonargparse', 'torchmetrics', 'wandb'};"
        "print('imported:', sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "imported: []"
