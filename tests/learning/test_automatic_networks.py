"""One line solves small problems with automatic networks; hyper-parameters are part of the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main

LINES = {
    "FrozenLake-v1": (1.0, "--data.env.dict_kwargs.is_slippery false"),
    "CliffWalking-v1": (-15.0, "--model.entropy_coef 0.001"),
    "Taxi-v4": (
        7.0,
        "--trainer.max_epochs 12 --model.entropy_coef maze_pl.schedules.Linear "
        "--model.entropy_coef.start 0.1 --model.entropy_coef.end 0",
    ),
    "minigrid:MiniGrid-Empty-8x8-v0": (0.9, ""),
}

LONG = "CliffWalking-v1", "Taxi-v4", "minigrid:MiniGrid-Empty-8x8-v0"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the observation space has text at .'mission'.:UserWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in LINES]
)
def test_one_line_reaches_the_goal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    goal, options = LINES[name]
    line = f"fit --config ppo_auto --data.env.name {name} {options} --stop_at_return.threshold {goal}"
    assert main([*line.split(), "--run_dir", "here"]) == 0  # 1 if the evaluations do not reach the threshold
