"""Training that was interrupted ends exactly where training that was not interrupted ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.exact.comparison import comparable, differences, without_times
from tests.exact.runs import run

ALL = ["cartpole", "lunarlander", "agreement", "delta", "team", "hierarchy", "memory", "team_memory"]
ON_TWO_RANKS = ["cartpole", "lunarlander", "delta", "team_memory"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "n_ranks", "names"),
    [("ppo", 1, ALL), ("ppo", 2, ON_TWO_RANKS), ("a2c", 1, ALL), ("a2c", 2, ON_TWO_RANKS)],
)
def test_six_epochs_equal_three_and_three_more_in_a_new_process(
    tmp_path: Path, algorithm: str, n_ranks: int, names: list[str]
) -> None:
    run(tmp_path, algorithm, "start", names, n_ranks)
    run(tmp_path, algorithm, "resume", names, n_ranks)
    for name in names:
        whole = without_times(comparable(tmp_path / f"{name}-whole.ckpt"))
        assert whole["epoch"] == 6 and whole["global_step"] > 0
        for point in ("epoch", "validation"):
            kept = comparable(tmp_path / f"{name}-kept-{point}.ckpt")
            assert differences(kept["state_dict"], whole["state_dict"]) != []
            resumed = without_times(comparable(tmp_path / f"{name}-from-{point}.ckpt"))
            assert differences(whole, resumed) == [], (name, point)
        if n_ranks == 2:
            ranks = torch.load(tmp_path / f"{name}-whole.ckpt", weights_only=True)["RolloutDataModule"]["ranks"]
            assert differences(ranks[0][0]["histories"], ranks[1][0]["histories"]) != [], "both ranks saw the same data"
