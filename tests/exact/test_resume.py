"""Training that was interrupted ends exactly where training that was not interrupted ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.exact.comparison import comparable, differences, without_times
from tests.exact.runs import run

MEMORIES = ["memory", "team_memory", "team_transformer", "team_critic_memory"]
ALL = ["cartpole", "lunarlander", "agreement", "delta", "team", "hierarchy", *MEMORIES]
ON_TWO_RANKS = ["cartpole", "lunarlander", "delta", "team_memory", "team_critic_memory"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("n_ranks", "names"), [(1, ALL), (2, ON_TWO_RANKS)])
def test_six_epochs_equal_three_and_three_more_in_a_new_process(tmp_path: Path, n_ranks: int, names: list[str]) -> None:
    for phase in ("start", "resume"):
        run(tmp_path, ["ppo", "a2c"], [phase], names, n_ranks)
    for algorithm in ("ppo", "a2c"):
        check_resumed(tmp_path / algorithm, n_ranks, names)


def check_resumed(folder: Path, n_ranks: int, names: list[str]) -> None:
    for name in names:
        whole = without_times(comparable(folder / f"{name}-whole.ckpt"))
        assert whole["epoch"] == 6 and whole["global_step"] > 0
        for point in ("epoch", "validation"):
            kept = comparable(folder / f"{name}-kept-{point}.ckpt")
            assert differences(kept["state_dict"], whole["state_dict"]) != []
            resumed = without_times(comparable(folder / f"{name}-from-{point}.ckpt"))
            assert differences(whole, resumed) == [], (folder, name, point)
        if n_ranks == 2:
            ranks = torch.load(folder / f"{name}-whole.ckpt", weights_only=True)["RolloutDataModule"]["ranks"]
            assert differences(ranks[0][0]["histories"], ranks[1][0]["histories"]) != [], "both ranks saw the same data"
