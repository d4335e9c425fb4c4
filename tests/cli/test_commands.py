"""The command line from end to end, in this process: what it writes, shows, and refuses."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config.learned_options import learned_options
from maze_pl.modules import A2C, PPO

SMALL = ["--trainer.max_epochs", "1", "--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "50"]
TWO_EPISODES = ["--data.evaluators", '{"eval": {"n_episodes": 2}}']


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(*options: str, config: str = "ppo_cartpole") -> int:
    return main(["fit", "--config", config, *SMALL, *TWO_EPISODES, *options])


def rows(run_dir: str) -> list[dict[str, str]]:
    with Path(run_dir, "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def config(run_dir: str) -> Any:
    return yaml.safe_load(Path(run_dir, "config.yaml").read_text(encoding="utf-8"))


def start(run_dir: str) -> Any:
    """The start of a run that its last command has recorded."""
    return json.loads(Path(run_dir, "provenance.json").read_text(encoding="utf-8"))["commands"][-1]["start"]


def checkpoint(run_dir: str, name: str = "last") -> Any:
    return torch.load(Path(run_dir, "checkpoints", f"{name}.ckpt"), weights_only=True)


def test_a_run_leaves_everything_in_the_directory_that_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert fit("--run_dir", "here") == 0
    output = capsys.readouterr().out
    files = {path.relative_to("here").as_posix() for path in Path("here").rglob("*") if path.is_file()}
    assert {
        "config.yaml",
        "command.txt",
        "run.log",
        "metrics.csv",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    } <= (files)
    assert not [name for name in files if name.endswith(".part")]
    assert any(Path("here", "tensorboard").glob("events.*"))
    assert "all options: here/config.yaml" in output
    assert "maze-pl fit --config ppo_cartpole" in Path("here", "command.txt").read_text(encoding="utf-8")
    for text in (output, Path("here", "run.log").read_text(encoding="utf-8")):
        assert "epoch 1 | 200 env steps" in text
        assert "train ActorCriticEvents" in text
        assert "eval BaseEnvEvents" in text
        assert "-> new best eval/return" in text
    (row,) = rows("here")
    assert row["step"] == "200"
    assert float(row["eval_BaseEnvEvents/reward/mean"]) > 0
    assert float(row["train_ActorCriticEvents/learning_rate"]) == 2.5e-4


@pytest.mark.slow
def test_a_run_without_a_directory_is_put_under_outputs_by_its_experiment() -> None:
    assert fit("--experiment", "mine") == 0
    (run_dir,) = Path("outputs", "mine").iterdir()
    assert (run_dir / "config.yaml").is_file()


@pytest.mark.slow
def test_tensorboard_has_env_steps_on_its_axis_and_the_configuration_as_text() -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit("--run_dir", "here")
    events = EventAccumulator(str(Path("here", "tensorboard")))
    events.Reload()
    assert [scalar.step for scalar in events.Scalars("eval_BaseEnvEvents/reward/mean")] == [200]
    assert {"configuration/text_summary", "command/text_summary"} <= set(events.Tags()["tensors"])


def test_a_directory_that_holds_something_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("here").mkdir()
    Path("here", "precious.txt").write_text("mine", encoding="utf-8")
    assert fit("--run_dir", "here") == 2
    assert "the run directory here is not empty" in capsys.readouterr().err


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_place_and_what_is_asked_for_now_wins() -> None:
    fit("--run_dir", "here")
    assert main(["fit", "--resume", "here", "--trainer.max_epochs", "2", "--model.lr", "1e-3"]) == 0
    assert [row["step"] for row in rows("here")] == ["200", "400"]
    assert float(rows("here")[-1]["train_ActorCriticEvents/learning_rate"]) == 1e-3
    assert config("here")["model"]["init_args"]["lr"] == 1e-3
    assert checkpoint("here")["epoch"] == 1
    assert len(Path("here", "command.txt").read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.slow
def test_validate_needs_nothing_but_the_run_directory_and_leaves_it_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fit("--run_dir", "here")
    before = {path: path.read_bytes() for path in Path("here").rglob("*") if path.is_file()}
    capsys.readouterr()
    for command in ("validate", "test"):
        assert main([command, "here"]) == 0
        assert "eval BaseEnvEvents" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in Path("here").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_warm_start_takes_weights_and_statistics_into_another_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    fit("--data.wrappers", "wrappers/vector_obs", "--run_dir", "ppo")
    lines = ["--warm-start", "ppo", "--model", "algorithm/a2c", "--run_dir", "a2c", "--model.lr", "1e-30"]
    assert main(["fit", *lines]) == 0
    taken = "and so is the configuration, except for --model, --run_dir, --model.lr: use --config for another one\n"
    assert taken in "".join(capsys.readouterr())
    before, after = checkpoint("ppo", "best"), checkpoint("a2c")
    assert config("a2c")["model"]["class_path"] == "maze_pl.modules.A2C"
    assert "clip_range" not in config("a2c")["model"]["init_args"]
    assert start("a2c") == {"warm_start": str(Path("ppo").absolute())}
    Path("mine.yaml").write_text("warm_start: ppo\n", encoding="utf-8")
    assert main(["fit", "--config", "ppo/config.yaml", "--config", "mine.yaml", "--run_dir", "filed"]) == 0
    assert start("filed") == start("a2c") and start("ppo") == {}
    Path("mine.yaml").write_text("resume: filed\n", encoding="utf-8")
    assert main(["fit", "--config", "ppo/config.yaml", "--config", "mine.yaml"]) == 0
    assert start("filed") == {"resume": str(Path("filed").absolute())}
    assert learned_options(Path("filed"))[0]["warm_start"] == str(Path("ppo").absolute())
    assert rows("a2c")[0]["step"] == "200"
    for name, weight in before["state_dict"].items():
        torch.testing.assert_close(after["state_dict"][name], weight, rtol=0, atol=1e-9)
    statistics = [state["RolloutDataModule"]["shared"] for state in (before, after)]
    assert str(statistics[0]) == str(statistics[1])
    assert statistics[0]


@pytest.mark.slow
def test_a_warm_start_with_other_networks_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    fit("--run_dir", "here")
    assert main(["fit", "--warm-start", "here", "--model.networks", "model/flatten_concat", "--run_dir", "b"]) == 2
    assert "the networks of here do not fit" in capsys.readouterr().err


@pytest.mark.slow
def test_load_gives_the_trained_module_and_its_environment_without_configuration() -> None:
    fit("--data.wrappers", "wrappers/vector_obs", "--run_dir", "here")
    Path("here", "config.yaml").unlink()
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    assert isinstance(agent, PPO)
    assert not agent.training
    observation, _ = env.reset(seed=0)
    action = agent.act(observation)
    assert type(action["action"]) is int
    _, reward, _, _, _ = env.step(action)
    assert reward == 1.0
    assert isinstance(maze_pl.load(Path("here", "checkpoints", "last.ckpt")), PPO)


def test_a_checkpoint_that_does_not_say_what_it_is_cannot_be_loaded() -> None:
    torch.save({"state_dict": {}}, "foreign.ckpt")
    with pytest.raises(ValueError, match=r"foreign\.ckpt does not hold the configuration"):
        maze_pl.load("foreign.ckpt")


@pytest.mark.parametrize(("threshold", "status"), [("1", 0), ("501", 1)])
@pytest.mark.slow
def test_a_return_that_must_be_reached_decides_on_the_exit_status(threshold: str, status: int) -> None:
    assert fit("--stop_at_return.threshold", threshold, "--trainer.max_epochs", "2", "--run_dir", "here") == status
    assert len(rows("here")) == 1 + status


@pytest.mark.slow
def test_no_epochs_means_without_limit() -> None:
    assert fit("--trainer.max_epochs", "0", "--stop_at_return.threshold", "1", "--run_dir", "here") == 0
    assert config("here")["trainer"]["max_epochs"] == 0


@pytest.mark.slow
def test_group_files_and_documented_names_reach_their_places() -> None:
    options = ["--model", "algorithm/a2c", "--data.env", "env/gym_env", "--data.env.name", "Acrobot-v1"]
    options += ["--model.networks", "model/flatten_concat", "--model.lr", "1e-4"]
    assert fit(*options, "--data.wrappers", "wrappers/no_wrappers", "--run_dir", "here") == 0
    written = config("here")
    assert written["model"]["class_path"] == "maze_pl.modules.A2C"
    assert written["model"]["init_args"]["lr"] == 1e-4
    assert written["model"]["init_args"]["networks"]["init_args"]["policy"]["init_args"]["networks"][0]["init_args"][
        "hidden_units"
    ] == [256, 256]
    data = written["data"]["init_args"]
    assert data["env"]["init_args"]["name"] == "Acrobot-v1"
    assert data["wrappers"] == []
    assert isinstance(maze_pl.load("here"), A2C)


@pytest.mark.slow
def test_environments_in_processes_of_their_own_give_the_same_run() -> None:
    for vectorization in ("sequential", "subprocess"):
        assert fit("--data.vectorization", vectorization, "--run_dir", vectorization) == 0
    first, second = (checkpoint(name)["state_dict"] for name in ("sequential", "subprocess"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
@pytest.mark.long
def test_two_ranks_share_one_run_directory(project: Path) -> None:
    options = ["--trainer.devices", "2", "--data.n_envs", "1", "--run_dir", "here"]
    command = [sys.executable, "-m", "maze_pl", "fit", "--config", "ppo_cartpole", *SMALL, *TWO_EPISODES, *options]
    command += ["--model.batch_size", "50"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=project)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in project.iterdir()] == ["here"]
    assert [row["step"] for row in rows("here")] == ["200"]
    assert config("here")["trainer"]["strategy"] == "auto"
    assert result.stdout.count("epoch 1 |") == 1
    assert main(["validate", "here", "--trainer.devices", "1"]) == 0


@pytest.mark.slow
def test_environments_of_the_user_are_named_by_class_or_by_function(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "my_envs.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class ShortCartPole(gymnasium.wrappers.TimeLimit):\n"
        "    def __init__(self, limit: int = 10) -> None:\n"
        "        super().__init__(CartPoleEnv(), limit)\n"
        "def make_short_cartpole(limit: int = 10) -> gymnasium.Env:\n"
        "    return ShortCartPole(limit)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(project))
    for name in ("ShortCartPole", "make_short_cartpole"):
        assert fit("--data.env", f"my_envs.{name}", "--run_dir", f"{name}-plain") == 0
        node = f'{{"class_path": "my_envs.{name}", "init_args": {{"limit": 7}}}}'
        assert fit("--data.env", node, "--run_dir", name) == 0
        assert float(rows(name)[0]["train_BaseEnvEvents/reward/max"]) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.lrr", "1"], "Option 'lrr' is not accepted"),
        (
            ["--model.lr", "fast"],
            "expected a number, or a schedule such as {class_path: maze_pl.schedules.Linear}; got fast",
        ),
        (["--model.lr", "{class_path: maze_pl.schedules.Linaer}"], "did you mean maze_pl.schedules.Linear"),
        (["--data.vectorization", "threads"], "'sequential', 'subprocess'"),
        (["--data.env.nam", "x"], "Option 'nam' is not accepted"),
        (["--data.env.name", "Nowhere-v1"], "Nowhere"),
        (["--trainer.foo", "1"], "--trainer.foo"),
        (["--early_stopping.patience", "-1"], "patience=-1"),
        (["--model.batch_size", "48"], "batch_size=48 does not divide"),
        (["--trainer.callbacks", "my.Callback"], "my"),
    ],
)
def test_what_the_user_gets_wrong_is_one_message_and_status_2(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert fit(*options, "--run_dir", "here") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("maze-pl: error:") == 1
    assert "Traceback" not in error
    assert len(error.splitlines()) < 14


def test_errors_in_code_of_the_user_keep_their_trace(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "broken_env.py").write_text(
        "import gymnasium\ndef make() -> gymnasium.Env:\n    raise ValueError('bug')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(project))
    with pytest.raises(ValueError, match="bug"):
        fit("--data.env", "broken_env.make", "--run_dir", "here")


def test_help_and_version_answer_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"maze-pl {maze_pl.__version__}\n"
    assert main(["--help"]) == 0
    assert "ppo_cartpole" in capsys.readouterr().out
    assert main([]) == 2
    assert "usage: maze-pl" in capsys.readouterr().err
    assert main(["train"]) == 2
    assert "unknown command 'train'" in capsys.readouterr().err
