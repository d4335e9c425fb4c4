"""Cloning from the command line: what is monitored, what the clone is handed on to, and what is refused."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.runs.rollout import rollout
from tests.bad_input.project import few_fast

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:Be aware that when using `ckpt_path`")

CLONE = ["fit", "--config", "bc_lunar_lander", "--data.dataset.input_data", "recorded", "--trainer.max_epochs", "2"]
FEW = ["--data.evaluators", '{"eval": {"n_episodes": 2}}']
PLAYED = ["--data.env.name", "CartPole-v1", *FEW, "--trainer.check_val_every_n_epoch", "1"]
ALONE = ["--data.env", "null", "--data.evaluators", "null", "--trainer.check_val_every_n_epoch", "1"]
PPO = ["--config", "ppo_cartpole", "--trainer.max_epochs", "1", "--data.epoch_length", "1", *FEW]


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten short episodes in a folder."""
    monkeypatch.chdir(tmp_path)
    for played in rollout(lambda: make_gym_maze_env("CartPole-v1"), "heuristic", 10, max_steps=30):
        TrajectoryFiles("recorded").write(played.spaces)


@pytest.mark.slow
def test_the_best_clone_is_that_of_the_highest_return_and_ppo_goes_on_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rare = ["--trainer.check_val_every_n_epoch", "2", "--early_stopping.patience", "7", "--experiment", "cloning"]
    assert main([*CLONE, *PLAYED, *rare, "--run_dir", "clone"]) == 0
    said = capsys.readouterr().out
    assert "new best eval/return" in said
    assert "best: eval return" in said
    clone = torch.load("clone/checkpoints/best.ckpt", weights_only=True)
    shutil.move("clone", "moved")
    assert main(["fit", *PPO, "--warm-start", "moved", "--model.critic_burn_in_epochs", "1", "--run_dir", "tuned"]) == 0
    said = "".join(capsys.readouterr())
    log = Path("tuned", "run.log").read_text(encoding="utf-8")
    source = "weights and wrapper statistics are those of moved/checkpoints/best.ckpt"
    taken = f"{source}; the configuration is that of --config\n"
    assert taken in said and taken in log
    tuned = torch.load("tuned/checkpoints/best.ckpt", weights_only=True)
    for name, value in clone["state_dict"].items():
        assert name == "_extra_state" or torch.equal(value, tuned["state_dict"][name]), name
    config = yaml.safe_load(Path("tuned", "config.yaml").read_text(encoding="utf-8"))
    assert config["data"]["class_path"] == "maze_pl.datamodules.RolloutDataModule"
    assert main(["fit", *PPO, "--run_dir", "alone", "--model.critic_burn_in_epochs", "1"]) == 0
    alone = yaml.safe_load(Path("alone", "config.yaml").read_text(encoding="utf-8"))
    assert config == alone, "nothing of the configuration is that of the clone"
    networks = ["--model.networks", "model/flatten_concat"]
    assert main(["fit", *PPO, "--warm-start", "moved", *networks, "--run_dir", "b"]) == 2
    assert "the networks of moved do not fit" in capsys.readouterr().err


@pytest.mark.slow
def test_from_data_alone_the_best_clone_is_that_of_the_least_loss(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CLONE, *ALONE, "--run_dir", "clone", "--early_stopping.patience", "5"]) == 0
    assert "new best eval/loss" in capsys.readouterr().out
    callbacks = torch.load("clone/checkpoints/best.ckpt", weights_only=True)["callbacks"]
    assert "maze_pl.EarlyStopping{'monitor': 'eval/loss', 'mode': 'min'}" in callbacks
    with Path("clone", "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["eval_ImitationEvents/policy_loss/substep_0"]) for row in rows]
    assert losses[1] < losses[0]
    assert [row["step"] for row in rows] == ["240", "480"]
    assert maze_pl.load("clone").act({"observation": [0.0, 0.0, 0.1, 0.1]})["action"] in (0, 1)
    assert main(["validate", "clone"]) == 0
    played = ["--env", "env/gym_env", "--env.name", "CartPole-v1", "--n_episodes", "1", "--runner", "sequential"]
    assert main(["rollout", "clone", *played]) == 0


def test_whatever_is_logged_decides_which_clone_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    name = "eval_ImitationEvents/discrete_accuracy/substep_0/action"
    assert main([*CLONE, *ALONE, "--best_checkpoint.monitor", name, "--run_dir", "clone"]) == 0
    with Path("clone", "metrics.csv").open(encoding="utf-8") as file:
        best = max(float(row[name]) for row in csv.DictReader(file))
    assert f"new best {name} {best:.3f}!" in capsys.readouterr().out


@pytest.mark.slow
def test_evaluations_within_epochs_are_compared_with_the_policy_that_they_are_of() -> None:
    often = [
        "--trainer.val_check_interval",
        "2",
        "--trainer.check_val_every_n_epoch",
        "null",
        "--data.batch_size",
        "40",
    ]
    assert main([*CLONE, *PLAYED[:4], *often, "--run_dir", "clone"]) == 0
    best = torch.load("clone/checkpoints/best.ckpt", weights_only=True)
    assert best["global_step"] % 2 == 0
    callbacks = [state for name, state in best["callbacks"].items() if name.startswith("BestCheckpoint")]
    assert float(callbacks[0]["best_model_score"]) == float(callbacks[0]["current_score"])


@pytest.mark.parametrize(
    ("options", "said"),
    few_fast(
        [
            ([], ["recorded", "does not fit"]),  # the environment is LunarLander
            ([*PLAYED, "--model.critic_burn_in_epochs", "3"], ["critic_burn_in_epochs needs a critic"]),
            ([*PLAYED, "--model.networks", "model/vector_obs_memory"], ["is recurrent", "ObservationStackWrapper"]),
            ([*PLAYED, "--data.dataset.input_data", "nowhere"], ["nowhere"]),
            ([*PLAYED, "--model.entropy_coef", "-1"], ["entropy_coef=-1.0 must be at least 0"]),
            ([*ALONE[:2], "--model.lr", "1"], ["evaluators=['eval'] need an environment", "evaluators=null"]),
            ([*PLAYED, "--model", "algorithm/ppo"], ["PPO learns from Rollout batches", "RolloutDataModule"]),
            (
                ["--config", "ppo_cartpole", "--model", "algorithm/bc"],
                ["BC learns from TrajectoryBatch", "use SelfLabellingDataModule or TrajectoryDataModule"],
            ),
        ]
    ),
)
def test_what_cannot_be_cloned_is_refused(
    options: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*CLONE, *options, "--run_dir", "clone"]) == 2
    message = capsys.readouterr().err
    assert all(text in message for text in said), message
    assert len(message.partition("maze-pl: error: ")[2].splitlines()) == 1
    assert not Path("clone", "checkpoints", "last.ckpt").exists()
