"""The shipped configurations of cutting-2D reach what they promise, with sampled actions and without an invalid cut."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maze_pl.__main__ import main
from tests.learning.cutting_episodes import N_EPISODES, sampled_episodes, total

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "n_epochs", "at_most"),
    [
        ("ppo_cutting_2d", 1, 31.3),
        pytest.param("ppo_cutting_2d_constant", 1, 32.0, marks=pytest.mark.long),
        pytest.param("ppo_cutting_2d_pointer", 1, 31.3, marks=pytest.mark.long),
    ],
)
def test_the_masked_agent_needs_few_raw_pieces_and_makes_no_invalid_cut(
    config: str, n_epochs: int, at_most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 40,000 and 80,000 env steps, a fifth of what there is to learn from."""
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    assert main(["fit", "--config", config, "--run_dir", "run", "--trainer.max_epochs", str(n_epochs)]) == 0
    episodes = sampled_episodes(Path("run/checkpoints/last.ckpt"))
    pieces = [one.kpis["raw_piece_usage_per_step"] * one.env_steps for one in episodes]
    assert sum(pieces) / N_EPISODES <= at_most
    assert [one.env_steps for one in episodes] == [180] * N_EPISODES
    assert [total(episodes, event) for event in ("invalid_cut", "invalid_piece_selected")] == [0, 0]
    assert total(episodes, "valid_cut") == 180 * N_EPISODES
