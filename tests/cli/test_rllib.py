"""The command `maze-pl rllib`: bad input is refused with one message, before anything is written."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import yaml

from maze_pl.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "ppo_cartpole"], "RLlib does not train a PPO: use a model such as maze_pl.rllib.RLlibPPO"),
        (["--trainer.max_epochs", "1"], "there is no model for RLlib to train"),
        (["--config", "rllib_ppo_cartpol"], "did you mean rllib_ppo_cartpole"),
    ],
)
def test_what_rllib_cannot_train_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rllib", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("installed", "age"), [("2.50.1", "older"), ("2.71.0", "newer")])
def test_another_ray_is_refused_with_both_versions(
    installed: str,
    age: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: installed if name == "ray" else version(name))
    assert main(["rllib", "--config", "rllib_ppo_cartpole"]) == 2
    assert f"Ray {installed} is {age} than Ray 2.60" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_the_options_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rllib", "--help"]) == 0
    assert "model.config" in capsys.readouterr().out
    assert main(["rllib"]) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.config.lrr", "1"], "model.config.lrr: RLlib's PPOConfig has no such option; did you mean lr?"),
        (["--model.config.num_epochs", "0.5", "--model.config.minibatch_size", "9999"], "RLlib's PPOConfig refuses"),
        (["--model.config.lr", "fast"], "model.config.lr='fast' is text: give a value such as"),
        (["--model.config.env", "CartPole-v1"], "model.config.env follows from the run: use data.env"),
        (["--model.address", "nonsense"], "address='nonsense' must be `auto` or `host:port`"),
        (
            [
                *("--model", "{class_path: maze_pl.rllib.RLlibDQN, init_args: {networks: auto}}"),
                *("--data.env.name", "MountainCarContinuous-v0"),
            ],
            "needs a Discrete, MultiDiscrete or MultiBinary space, got Box",
        ),
        (
            [
                *("--data.env", "env/tutorial_cutting_2d_struct_masked"),
                *("--model.networks", "model/tutorial_cutting_2d_struct_masked"),
            ],
            "RLlib trains each sub-step by itself, but a shared critic serves all of them",
        ),
    ],
)
def test_options_that_rllib_cannot_have_are_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rllib", "--config", "rllib_ppo_cartpole", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.rglob("*.ckpt")) == []


def test_values_of_options_have_the_types_of_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"lr": "1e-3", "num_epochs": "3", "use_kl_loss": "false", "epsilon": "[[0, 1.0]]"}
    words = [word for name, value in values.items() for word in (f"--model.config.{name}", value)]
    with pytest.raises(SystemExit):
        main(["rllib", "--config", "conf_rllib/ppo", *words, "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["config"]
    assert config == {"lr": 0.001, "num_epochs": 3, "use_kl_loss": False, "epsilon": [[0, 1.0]]}
