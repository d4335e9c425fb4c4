"""Evolution on two ranks is evolution on one: pairs are dealt out, and every rank takes the same step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.distributed.launch import run, torchrun
from tests.exact.comparison import differences
from tests.exact.evolution import train

NAMES = ("cartpole", "team_memory")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.long
def test_two_ranks_learn_what_one_learns(tmp_path: Path) -> None:
    run(torchrun("-m", "tests.exact.evolution", str(tmp_path), "two", *NAMES, n_ranks=2), folders=[tmp_path])
    for name in NAMES:
        alone, two = train(tmp_path, "one", name), torch.load(tmp_path / f"{name}-two.ckpt", weights_only=True)
        assert len(two["maze_pl"]["ranks"]) == 2
        assert two["maze_pl"]["env_steps"] == alone["maze_pl"]["env_steps"]
        for part in ("state_dict", "optimizer_states", "PopulationDataModule", "global_step"):
            assert differences(alone[part], two[part]) == [], (name, part)
