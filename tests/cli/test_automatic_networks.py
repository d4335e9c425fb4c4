"""Commands with automatic networks: one line for each environment, resuming, and `--print_model`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main

ENVIRONMENTS = {
    "CartPole-v1": [],
    "LunarLander-v3": [],
    "Taxi-v4": [],
    "FrozenLake-v1": ["--data.env.dict_kwargs.is_slippery", "false"],
    "CliffWalking-v1": [],
    "Blackjack-v1": [],
    "MountainCarContinuous-v0": [],
    "minigrid:MiniGrid-Empty-8x8-v0": [],
}
SMALL = ["--data.n_envs", "2", "--data.n_rollout_steps", "25", "--model.batch_size", "50", "--data.epoch_length", "1"]
NO_NETWORKS = """
model:
  class_path: maze_pl.modules.PPO
data:
  class_path: maze_pl.datamodules.RolloutDataModule
  init_args: {env: {class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: Blackjack-v1}}}
"""

pytestmark = pytest.mark.filterwarnings("ignore:the observation space has text at .'mission'.:UserWarning")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert main(["fit", *options, "--print_model"]) == 0
    return capsys.readouterr().out


def test_auto_replaces_named_networks_and_no_networks_are_automatic(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced = printed(capsys, "--config", "ppo_cartpole", "--model.networks", "auto")
    text, _, tables = replaced.partition("\n\n")
    description = yaml.safe_load(text)
    assert description["class_path"] == "maze_pl.perception.TemplateModelComposer"
    assert tables.startswith("policy: InferenceBlock, 4,610 parameters")
    (project / "here.yaml").write_text(text, encoding="utf-8")
    said = printed(capsys, "--config", "ppo_cartpole", "--model.networks", "here.yaml")
    assert said == tables
    (project / "plain.yaml").write_text(NO_NETWORKS, encoding="utf-8")
    assert "observation_2_OneHotBlock" in printed(capsys, "--config", "plain.yaml")


def test_options_of_automatic_networks_are_set_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    composer = ["--model.networks", "maze_pl.perception.AutomaticModelComposer"]
    options = ["--model.networks.hidden_units", "[8]", "--model.networks.kinds", "{observation: scaled}"]
    output = printed(capsys, "--config", "ppo_auto", "--data.env.name", "FrozenLake-v1", *composer, *options)
    assert "observation_ScalingBlock" in output and "policy: InferenceBlock, 52 parameters" in output


def state_of(run: str) -> dict[str, torch.Tensor]:
    content = torch.load(Path(run, "checkpoints", "last.ckpt"), weights_only=True)
    return dict(content["state_dict"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_one_line_trains_and_the_run_can_be_resumed_and_loaded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["fit", "--config", "ppo_auto", "--data.env.name", name, *ENVIRONMENTS[name]]
    few = [*SMALL, "--data.evaluators", '{"eval": {"n_episodes": 1}}']
    assert main([*line, *few, "--trainer.max_epochs", "2", "--run_dir", "whole"]) == 0
    assert main([*line, *few, "--trainer.max_epochs", "1", "--run_dir", "halves"]) == 0
    assert (
        yaml.safe_load(Path("halves/config.yaml").read_text(encoding="utf-8"))["model"]["init_args"]["networks"]
        == "auto"
    )
    is_elsewhere = ":" in name  # in a module that only the user can trust
    trust = ["--trust"] if is_elsewhere else []
    assert main(["fit", "--resume", "halves", "--trainer.max_epochs", "2", *trust]) == 0
    resumed = state_of("halves")
    for key, value in state_of("whole").items():
        assert torch.equal(value, resumed[key]), key
    agent, env = maze_pl.load("whole", trust=is_elsewhere), maze_pl.load_env("whole", trust=is_elsewhere)
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(agent.act(observation))
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MountainCarContinuous-v0", "Taxi-v4"])
def test_sac_trains_with_one_line(name: str) -> None:
    few = ["--data.initial_buffer_size", "64", "--data.batch_size", "16", "--data.epoch_length", "2"]
    few += ["--trainer.max_epochs", "1", "--data.evaluators", '{"eval": {"n_episodes": 1}}', "--run_dir", "here"]
    assert main(["fit", "--config", "sac_auto", "--data.env.name", name, *few]) == 0
    assert any("critic.twins" in key for key in state_of("here"))
