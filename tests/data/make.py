"""Writes the files that later versions must be able to read, to `tests/data/VERSION`.

    python tests/data/make.py [VERSION]

Run it once, for a release: the folder of a version that was released never changes. `tests/test_older_files.py` reads
all folders with the current code. Runs are as small as they can be: few steps, few units.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from tests.older_files import decisions_of_bundle, decisions_of_run

FOLDER = Path(__file__).resolve().parent
DENSE = "{class_path: maze_pl.perception.%s, init_args: {non_lin: torch.nn.Tanh, hidden_units: [8]}}"
ITEMS = "{class_path: maze_pl.perception.%s, init_args: {items_key: inventory, levels: 5, hidden_units: [8, 8]%s}}"
PIECE_NET = ITEMS % ("ItemSetPolicyNet", ", mask_key: inventory_mask")
POLICY_NETWORKS = "model.networks.policy.networks"
CRITIC_NETWORKS = "model.networks.critic.networks"
WRAPPERS = """[
  {class_path: maze_pl.envs.wrappers.TimeLimitWrapper, init_args: {max_episode_steps: 15}},
  {class_path: maze_pl.envs.wrappers.ObservationNormalizationWrapper, init_args: {exclude: [inventory]}},
  {class_path: maze_pl.envs.wrappers.ReturnNormalizationRewardWrapper, init_args: {gamma: 0.99}},
]"""
EVALUATION = {"data.evaluators": "{eval: {n_episodes: 2, deterministic: true}}", "trainer.max_epochs": "1"}
ROLLOUT = {"data.epoch_length": "2", "data.n_rollout_steps": "20", "data.n_envs": "2", "model.batch_size": "20"}
ON_POLICY = {**EVALUATION, **ROLLOUT}
CARTPOLE = {
    POLICY_NETWORKS: f"[{DENSE % 'FlattenConcatPolicyNet'}]",
    CRITIC_NETWORKS: f"[{DENSE % 'FlattenConcatStateValueNet'}]",
}
BLOCK = "{block_type: maze_pl.perception.%s, block_params: {%s}}"
MODALITIES = "model.networks.model_builder.modality_config"
RUNS: dict[str, dict[str, str]] = {
    "ppo_flat": {"config": "ppo_cartpole", **CARTPOLE, **ON_POLICY},
    "ppo_structured": {
        "config": "ppo_cutting_2d",
        POLICY_NETWORKS: f"[{PIECE_NET}, {DENSE % 'FlattenConcatPolicyNet'}]",
        CRITIC_NETWORKS: f"[{ITEMS % ('ItemSetStateValueNet', '')}]",
        "data.wrappers": WRAPPERS,
        **ON_POLICY,
    },
    "ppo_recurrent": {
        "config": "ppo_cartpole_recurrent",
        f"{MODALITIES}.hidden": BLOCK % ("DenseBlock", "hidden_units: [8]"),
        f"{MODALITIES}.recurrence": BLOCK % ("RecurrentBlock", "hidden_size: 8, cell: gru"),
        **ON_POLICY,
    },
    "sac_replay": {
        "config": "sac_pendulum",
        POLICY_NETWORKS: f"[{DENSE % 'FlattenConcatPolicyNet'}]",
        CRITIC_NETWORKS: f"[{DENSE % 'FlattenConcatStateActionValueNet'}]",
        "data.batch_size": "20",
        "data.replay_buffer_size": "300",
        "data.initial_buffer_size": "250",
        "data.epoch_length": "2",
        "data.save_buffer": "true",
        **EVALUATION,
    },
    "bc_cartpole": {
        "config": "bc_lunar_lander",
        POLICY_NETWORKS: f"[{DENSE % 'FlattenConcatPolicyNet'}]",
        "data.env.name": "CartPole-v1",
        "data.dataset.input_data": "played/ppo_flat/trajectories",
        "data.batch_size": "20",
        "trainer.check_val_every_n_epoch": "1",
        **EVALUATION,
    },
}
PLAYED = "ppo_flat", "ppo_structured"
SWEEP = {
    "config": "ppo_cartpole",
    "options": {**CARTPOLE, **ON_POLICY},
    "search": {"model.lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    "sampler": "random",
    "n_trials": 2,
}
NOT_KEPT = "tensorboard", "networks", "pictures", "run.log", ".lock", "view.html"
"""Files of commands that none of them reads again."""


def command(*words: str) -> None:
    """Run a command of maze_pl.

    Raises:
        RuntimeError: It failed.
    """
    print("maze-pl", *words, flush=True)
    with open("output.txt", "w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        status = main(list(words))
    if status:
        raise RuntimeError(f"maze-pl {' '.join(words)}: {Path('output.txt').read_text(encoding='utf-8')}")


def train(name: str) -> None:
    """Train a run of `RUNS` to `runs/NAME`."""
    words = [word for option, value in RUNS[name].items() for word in (f"--{option}", value)]
    command("fit", *words, "--run_dir", f"runs/{name}")


def play(name: str) -> None:
    """Record episodes of a run in all formats to `played/NAME`."""
    command("rollout", f"runs/{name}", "--n_episodes", "2", "--max_steps", "15", "--output_dir", f"played/{name}")


def forget_folder(checkpoint: Path) -> None:
    """Replace the absolute path of a replay buffer's folder; the buffer lies beside the checkpoint."""
    content = torch.load(checkpoint, weights_only=True)
    content["ReplayDataModule"]["replay"]["folder"] = "checkpoints"
    torch.save(content, checkpoint)


def make() -> None:
    """Write all files to the current folder."""
    train("ppo_flat")
    train("ppo_structured")
    for name in PLAYED:
        play(name)
    for name in ("ppo_recurrent", "sac_replay", "bc_cartpole"):
        train(name)
    command("export", "runs/ppo_recurrent", "--to", "agent.bundle")
    Path("sweep.yaml").write_text(yaml.safe_dump(SWEEP), encoding="utf-8")
    command("sweep", "sweep.yaml", "--run_dir", "sweep")
    for path in sorted(Path().rglob("*"), reverse=True):  # what a folder holds before the folder
        if path.is_dir() and path.name in NOT_KEPT:
            shutil.rmtree(path)
        elif path.name in NOT_KEPT or path.name.startswith("events.out.tfevents"):
            path.unlink()
    for trial in Path("sweep").rglob("best.ckpt"):
        trial.unlink()  # equal to `last.ckpt` after one epoch
    Path("output.txt").unlink()
    for checkpoint in Path("runs/sac_replay/checkpoints").glob("*.ckpt"):
        forget_folder(checkpoint)
    decisions = {name: decisions_of_run(Path("runs", name)) for name in RUNS}
    decisions["agent.bundle"] = decisions_of_bundle(Path("agent.bundle"))
    Path("decisions.json").write_text(json.dumps(decisions, indent=1), encoding="utf-8")


def main_program() -> None:
    """Write the folder of a version; by default, that of the package."""
    version = sys.argv[1] if len(sys.argv) > 1 else maze_pl.__version__
    target = FOLDER / version
    if target.exists():
        sys.exit(f"{target} exists; files of a released version never change. Remove the folder to make it again.")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make()
        os.chdir(FOLDER)
        shutil.copytree(folder, target)


if __name__ == "__main__":
    main_program()
