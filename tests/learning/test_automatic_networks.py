"""One line solves small problems with automatic networks; hyper-parameters are part of the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

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


class LargestRow(gymnasium.Env[Any, Any]):
    """A single decision: the place of the largest number in a table of one column."""

    observation_space = spaces.Box(0.0, 1.0, (5, 1))
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.table = self.np_random.random((5, 1), np.float32)
        return self.table, {}

    def step(self, action: Any) -> Any:
        reward = float(self.table[:, 0].argmax() == action)
        return self.table, reward, True, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("config", ["ppo_auto", "conf_train/dqn"])
def test_an_action_may_name_a_row_of_a_table(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = f"fit --config {config} --data.env {__name__}.LargestRow --stop_at_return.threshold 0.8 --run_dir here"
    assert main(line.split()) == 0
