"""Every algorithm and kind of critic trains on a GPU, where rollouts arrive from the CPU."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.trajectory_files import TrajectoryFiles
from maze_pl.runs.rollout import rollout
from tests.modules.capture_notes import CaptureNotes

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
]

DEVICE = "cuda"
STRUCT = ["--config", "ppo_cutting_2d_struct"]
CRITICS = "maze_pl.perception"
ROLLOUTS = ["--data.n_envs=2", "--data.n_rollout_steps=16", "--data.epoch_length=1"]
MINIBATCHES = [*ROLLOUTS, "--model.batch_size=16"]
REPLAY = ["--data.initial_buffer_size=32", "--data.n_rollout_steps=8", "--data.batch_size=8"]
REPLAY += ["--data.num_batches_per_iter=4", "--data.epoch_length=2", "--data.replay_buffer_size=200"]
ACTORS = ["--data.num_actors=2", "--data.actors_batch_size=2", "--data.n_rollout_steps=8", "--data.epoch_length=2"]
POPULATION = ["--data.n_rollouts_per_update=4", "--data.shared_noise_table_size=100000"]
RUNS = {
    "ppo": ["--config", "ppo_cartpole", *MINIBATCHES],
    "a2c": ["--config", "a2c_cartpole", *ROLLOUTS],
    "gaussian": ["--config", "ppo_pendulum", *MINIBATCHES],
    "recurrent": ["--config", "ppo_cartpole_recurrent", *MINIBATCHES],
    "step_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.StepStateCriticComposer", *MINIBATCHES],
    "shared_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.SharedStateCriticComposer", *MINIBATCHES],
    "delta_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.DeltaStateCriticComposer", *MINIBATCHES],
    "sac": ["--config", "sac_pendulum", *REPLAY],
    "discrete_sac": ["--config", "sac_cartpole", *REPLAY],
    "td3": ["--config", "td3_pendulum", *REPLAY],
    "dqn": ["--config", "dqn_cartpole", *REPLAY],
    "impala": ["--config", "impala_cartpole", *ACTORS],
    "es": ["--config", "es_cartpole", *POPULATION],
}
UNTRACED = ("recurrent", "step_critic", "es", "bc")  # minibatches of changing shapes; no `gradient_step`
FINITE = ("loss", "q_value", "grad_norm")


def check_run(name: str, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Train for two epochs, and check that losses are finite and traced."""
    monkeypatch.setattr(CaptureNotes, "runs", [])
    notes = f"--trainer.callbacks+={CaptureNotes.__module__}.{CaptureNotes.__name__}"
    where = [f"--trainer.accelerator={DEVICE}", "--trainer.devices=1", "--trainer.max_epochs=2", "--run_dir=run"]
    evaluators = ["--data.evaluators", '{"eval": {"n_episodes": 1}}']
    assert main(["fit", *command, *evaluators, *where, notes]) == 0
    with Path("run", "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    losses = {
        key: float(value)
        for key, value in rows[-1].items()
        if value and any(part in key for part in FINITE) and key.startswith("train")
    }
    assert losses
    assert all(math.isfinite(loss) for loss in losses.values()), losses
    ((device, refusal, n_traces),) = CaptureNotes.runs
    assert device == DEVICE
    assert refusal is None
    assert name in UNTRACED or n_traces > 0


@pytest.mark.parametrize("name", RUNS)
def test_algorithms_train_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_run(name, RUNS[name], monkeypatch)


def test_cloning_of_behaviour_trains_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for played in rollout(lambda: make_gym_maze_env("CartPole-v1"), "heuristic", 4, max_steps=30):
        TrajectoryFiles("recorded").write(played.spaces)
    command = ["--config", "bc_lunar_lander", "--data.env.name", "CartPole-v1", "--data.dataset.input_data", "recorded"]
    check_run("bc", [*command, "--data.batch_size=10", "--trainer.check_val_every_n_epoch=1"], monkeypatch)
