"""The configurations that RLlib trains reach what they promise, judged by episodes that maze_pl plays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maze_pl
from maze_pl.__main__ import main
from tests.learning.cutting_episodes import N_EPISODES, sampled_episodes, total

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("algorithm", "threshold"),
    [("ppo", 450), ("appo", 180), ("dqn", 180)],
)
def test_cartpole_is_balanced(algorithm: str, threshold: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    command = ["rllib", "--config", f"rllib_{algorithm}_cartpole", "--stop_at_return.threshold", str(threshold)]
    assert main([*command, "--run_dir", "run"]) == 0
    agent, env = maze_pl.load("run"), maze_pl.load_env("run")
    for episode in range(N_EPISODES):
        observation, _ = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            action = agent.act(observation, env.actor_id().step_key, deterministic=True)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
    returns = [summary.reward for summary in env.drain_episode_summaries()]
    assert sum(returns) / N_EPISODES >= 0.9 * threshold


def test_the_masked_cutting_agent_needs_few_raw_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 40,000 env steps; the optimum is 31."""
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    assert main(["rllib", "--config", "rllib_ppo_cutting_2d", "--run_dir", "run", "--trainer.max_epochs", "2"]) == 0
    episodes = sampled_episodes(Path("run/checkpoints/last.ckpt"))
    pieces = [one.kpis["raw_piece_usage_per_step"] * one.env_steps for one in episodes]
    assert sum(pieces) / N_EPISODES <= 31.5
    assert [one.env_steps for one in episodes] == [180] * N_EPISODES
    assert [total(episodes, event) for event in ("invalid_cut", "invalid_piece_selected")] == [0, 0]
