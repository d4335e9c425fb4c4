"""Learning from replay that was interrupted ends exactly where it ends without, with its replay buffer."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.collect.engines import ProcessEngine
from tests.exact.comparison import comparable_with_buffers, differences
from tests.exact.replay_worker import train

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


NAMES = ["pendulum", "cartpole", "hierarchy", "td3_pendulum", "dqn_cartpole", "dqn_hierarchy"]


@pytest.mark.parametrize("name", NAMES)
def test_six_epochs_equal_three_and_three_more(tmp_path: Path, name: str) -> None:
    train(tmp_path, name, "whole")
    whole = comparable_with_buffers(tmp_path / f"{name}-whole.ckpt")
    assert whole["epoch"] == 6 and whole["global_step"] > 0 and len(whole["buffers"]) == 1
    for point in ("epoch", "validation") if name.endswith("cartpole") else ("epoch",):
        kept = tmp_path / f"{name}-kept-{point}.ckpt"
        assert differences(comparable_with_buffers(kept)["state_dict"], whole["state_dict"]) != []
        train(tmp_path, name, "resumed", kept)
        assert differences(whole, comparable_with_buffers(tmp_path / f"{name}-resumed.ckpt")) == [], point


@pytest.mark.parametrize("name", ["hierarchy", "dqn_hierarchy", "td3_pendulum"])
def test_workers_decide_nothing_about_the_result(tmp_path: Path, name: str) -> None:
    for how, engine in (("here", None), ("there", ProcessEngine(2))):
        train(tmp_path, name, how, epochs=2, engine=engine)
    here, there = (comparable_with_buffers(tmp_path / f"{name}-{how}.ckpt") for how in ("here", "there"))
    assert differences(here, there) == []
