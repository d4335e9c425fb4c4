"""Episodes of the cutting problem in which a trained policy samples its actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import maze_pl

N_EPISODES = 20


def sampled_episodes(checkpoint: Path) -> list[Any]:
    """Summaries of episodes in which a trained policy samples its actions."""
    agent, env = maze_pl.load(checkpoint), maze_pl.load_env(checkpoint)
    generator = torch.Generator().manual_seed(0)
    for episode in range(N_EPISODES):
        observation, _ = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            action = agent.act(observation, env.actor_id().step_key, deterministic=False, generator=generator)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
    summaries: list[Any] = env.drain_episode_summaries()
    return summaries


def total(episodes: list[Any], event: str) -> float:
    """How often an event happened."""
    return sum(float(value) for one in episodes for key, value in one.statistics.items() if key[1] == event)
