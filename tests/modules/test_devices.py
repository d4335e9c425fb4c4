"""Every algorithm and kind of critic trains on a GPU, where rollouts arrive from the CPU."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from maze_pl.__main__ import main

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
]

STRUCT = ["--config", "ppo_cutting_2d_struct"]
CRITICS = "maze_pl.perception"
RUNS = {
    "ppo": ["--config", "ppo_cartpole"],
    "a2c": ["--config", "a2c_cartpole"],
    "gaussian": ["--config", "ppo_pendulum"],
    "recurrent": ["--config", "ppo_cartpole_recurrent"],
    "step_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.StepStateCriticComposer"],
    "shared_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.SharedStateCriticComposer"],
    "delta_critic": [*STRUCT, "--model.networks.critic", f"{CRITICS}.DeltaStateCriticComposer"],
}


@pytest.mark.parametrize("name", RUNS)
def test_algorithms_train_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--data.n_envs=2", "--data.n_rollout_steps=16", "--data.epoch_length=1", "--trainer.max_epochs=2"]
    small += [] if name == "a2c" else ["--model.batch_size=16"]
    where = ["--trainer.accelerator=cuda", "--trainer.devices=1", "--run_dir=run", '--data.evaluators={"eval": {}}']
    assert main(["fit", *RUNS[name], *small, *where]) == 0
    with Path("run", "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    losses = [float(value) for name, value in rows[-1].items() if "policy_loss" in name or "critic_value_loss" in name]
    assert losses
    assert all(math.isfinite(loss) for loss in losses)
