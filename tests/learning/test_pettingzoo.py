"""One policy learns a game by playing against itself, and a team learns to spread out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pettingzoo import make

import maze_pl
from maze_pl.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # of PettingZoo's modules


def results_against_random(agent: Any, n_games: int) -> Any:
    """[n_games] 1 for a win, 0 for a draw, -1 for a loss; the agent begins in half of the games."""
    rng = np.random.default_rng(0)
    results = []
    for game in range(n_games):
        env = make("aec", "classic/tictactoe-v3")
        env.reset(seed=game)
        own, total = f"player_{1 + game % 2}", 0.0
        for player in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            total += reward * (player == own)
            if terminated or truncated:
                env.step(None)
            elif player == own:
                env.step(int(agent.act(observation, step_key="player")["action"]))
            else:
                env.step(int(rng.choice(np.flatnonzero(observation["action_mask"]))))
        results.append(total)
    return np.array(results)


def test_a_policy_that_plays_against_itself_beats_a_random_player(tmp_path: Path) -> None:
    options = ["--trainer.max_epochs", "12", "--model.entropy_coef", "0.02", "--model.lr_schedule", "linear"]
    assert main(["fit", "--config", "ppo_pettingzoo", *options, "--run_dir", str(tmp_path / "run")]) == 0
    results = results_against_random(maze_pl.load(tmp_path / "run" / "checkpoints" / "last.ckpt"), 400)
    assert (results > 0).mean() >= 0.8 and (results < 0).mean() <= 0.12  # measured: 0.83 and 0.02; at random 0.44


def test_a_team_learns_to_spread_out(tmp_path: Path) -> None:
    options = ["--data.env.name", "mpe2.simple_spread_v3", "--data.env.team_reward", "true"]
    options += ["--data.wrappers+", "maze_pl.envs.wrappers.ReturnNormalizationRewardWrapper"]
    options += ["--data.n_rollout_steps", "50", "--model.batch_size", "200", "--trainer.max_epochs", "8"]
    command = ["fit", "--config", "ppo_pettingzoo", *options, "--run_dir", str(tmp_path / "run")]
    assert main([*command, "--stop_at_return.threshold", "-68"]) == 0  # measured: -59.9; at random -82
