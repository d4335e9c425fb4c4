"""Two ranks, each with actors of its own, learn the same from what all of them did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.launch import run, torchrun
from tests.distributed.rank_report import reports
from tests.exact.comparison import differences


@pytest.mark.slow
@pytest.mark.long
def test_two_ranks_with_actors_of_their_own_have_equal_parameters(tmp_path: Path) -> None:
    run(torchrun(str(Path(__file__).with_name("actors.py")), "here", "workers", n_ranks=2), folders=[tmp_path])
    for case in ("here", "workers"):
        first, second = reports(tmp_path / case)
        assert not set(first["seen"]) & set(second["seen"])
        for name in ("state_dict", "optimizer", "statistics", "callback_metrics", "env_steps", "global_step"):
            assert differences(first[name], second[name]) == [], name
        assert first["env_steps"] == 2 * 2 * 3 * 2 * 20
        assert differences(first["before"], first["state_dict"]) != []
        lag = first["statistics"]["train/ImpalaEvents/lag_max"]
        assert lag == 0.0 if case == "here" else 0.0 <= lag <= 2.0
