"""What can be wrong about evolution strategies, each ending in one message that says it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import disk_full_at, few_fast

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

ES = ["fit", "--config", "es_cartpole", "--trainer.max_epochs", "1", "--run_dir", "new"]
NETS = "--model.networks.init_args.policy.init_args.networks"
CLASSES = """
import torch


class Mute(torch.nn.Module):
    def __init__(self, torch_policy):
        super().__init__()
        self.policy, self.spec = torch_policy, torch_policy.spec


class Empty(torch.nn.Module):
    def __init__(self, obs_shapes, action_logits_shapes):
        super().__init__()

    def forward(self, observation):
        return {"action": torch.zeros(len(observation["observation"]), 2)}
"""


CASES: list[tuple[list[str], list[str]]] = [
    (["--data.shared_noise_table_size", "4000"], ["4,000 numbers is too small", "4,610 parameters", "100,000,000"]),
    (["--data.shared_noise_table_size", "0"], ["shared_noise_table_size=0 must be at least 1"]),
    (["--data.n_rollouts_per_update", "0"], ["n_rollouts_per_update and n_timesteps_per_update are both 0"]),
    (["--data.n_rollouts_per_update", "-2"], ["n_rollouts_per_update=-2 must be at least 0"]),
    (["--data.n_timesteps_per_update", "-1"], ["n_timesteps_per_update=-1 must be at least 0"]),
    (["--data", "runner/dev", "--data.n_shards", "2"], ["n_shards=2 must be 0"]),
    (["--data.max_steps", "-1"], ["max_steps=-1 must be at least 0"]),
    (["--model.policy_wrapper", "es_classes.Mute"], ["policy_wrapper returned a Mute", "act"]),
    (["--model.policy_wrapper", "es_classes.Mut"], ["es_classes.Mut"]),
    ([NETS, "[es_classes.Empty]"], ["nothing to learn", "no parameters"]),
    (["--model.noise_stddev", "0"], ["noise_stddev=0.0 must be greater than 0"]),
    (["--model.optimizer", "rmsprop"], ["optimizer", "'adam', 'sgd'", "rmsprop"]),
    (["--data", "maze_pl.datamodules.RolloutDataModule"], ["ES learns from Pop", "use PopulationDataModule"]),
    (["--model", "algorithm/ppo"], ["PPO learns from Rollout batches", "use ActorDataModule or Ro", ": ES"]),
]


@pytest.mark.parametrize(("arguments", "parts"), few_fast(CASES))
def test_invalid_options_are_refused_in_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    parts: list[str],
) -> None:
    (tmp_path / "es_classes.py").write_text(CLASSES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*ES, *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert [part for part in parts if part not in said] == [], said
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_disk_without_room_for_the_noise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with disk_full_at(1_000_000):
        assert main([*ES, "--data.shared_noise_table_size", "1000000"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert f"{tempfile.gettempdir()} (noise table, 4,000,000 bytes): File too large" in said
    assert not list(tmp_path.rglob("*.ckpt"))
