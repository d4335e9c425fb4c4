"""SAC that was interrupted ends exactly where SAC that was not interrupted ends, with its replay buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from maze_pl.collect.engines import ProcessEngine
from tests.exact.comparison import differences, without_times
from tests.exact.sac_worker import train

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEPT = ("state_dict", "optimizer_states", "ReplayDataModule", "global_step", "epoch", "maze_pl")


def comparable(path: Path) -> Any:
    """What must be equal, the buffers included; the same content may be pickled in several ways, so not their names."""
    checkpoint = torch.load(path, weights_only=True)
    replay = checkpoint["ReplayDataModule"].pop("replay")
    buffers = [torch.load(path.with_name(name), weights_only=True) for name in replay["files"]]
    return without_times({key: checkpoint[key] for key in KEPT} | {"buffers": buffers})


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "hierarchy"])
def test_six_epochs_equal_three_and_three_more(tmp_path: Path, name: str) -> None:
    train(tmp_path, name, "whole")
    whole = comparable(tmp_path / f"{name}-whole.ckpt")
    assert whole["epoch"] == 6 and whole["global_step"] > 0 and len(whole["buffers"]) == 1
    for point in ("epoch", "validation") if name == "cartpole" else ("epoch",):
        kept = tmp_path / f"{name}-kept-{point}.ckpt"
        assert differences(comparable(kept)["state_dict"], whole["state_dict"]) != []
        train(tmp_path, name, "resumed", kept)
        assert differences(whole, comparable(tmp_path / f"{name}-resumed.ckpt")) == [], point


def test_workers_decide_nothing_about_the_result(tmp_path: Path) -> None:
    for how, engine in (("here", None), ("there", ProcessEngine(2))):
        train(tmp_path, "hierarchy", how, epochs=2, engine=engine)
    here, there = (comparable(tmp_path / f"hierarchy-{how}.ckpt") for how in ("here", "there"))
    assert differences(here, there) == []
