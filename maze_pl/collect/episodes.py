"""Plays whole episodes without keeping them, for evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from maze_pl.collect.checks import check_now
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import Policy, PolicyBatch
from maze_pl.envs.vector.vector_env import VectorEnv


def play_episodes(
    vector: VectorEnv,
    policy: Policy,
    episodes: Sequence[int],
    *,
    deterministic: bool,
    generator: torch.Generator | None = None,
) -> list[EpisodeSummary]:
    """Play the given episodes, each to its end.

    Args:
        vector: Environments that do not start their next episode by themselves.
        policy: Chooses the actions.
        episodes: Indices of the episodes, which seed them.
        deterministic: Whether the policy takes its most likely action.
        generator: Source of the policy's randomness where it samples.

    Returns:
        Summaries in the order of `episodes`.
    """
    step_keys, staging = vector.spec.step_keys, vector.staging
    waiting = list(episodes)[::-1]
    n_acts = np.zeros(vector.n_envs, np.int64)  # of the running episodes
    envs = np.arange(min(vector.n_envs, len(waiting)))
    vector.reset(envs.tolist(), [waiting.pop() for _ in envs])
    while envs.size:
        keys = staging.next_key[envs]
        for index in np.unique(keys).tolist():
            key, group = step_keys[index], envs[keys == index]
            observation = {name: array[group] for name, array in staging.observation[key].items()}
            seen = {f"observation {name!r}": array for name, array in observation.items()}
            check_now(seen, group, n_acts[group], "an episode", vector.first_env_index)
            batch = PolicyBatch(key, observation, staging.next_agent[group], is_first=n_acts[group] == 0)
            action = policy.act(batch, deterministic=deterministic, generator=generator).action
            for head, values in action.items():
                staging.action[key][head][group] = values
        vector.step(envs.tolist())
        check_now({"the reward": staging.reward[envs]}, envs, n_acts[envs], "an episode", vector.first_env_index)
        n_acts[envs] += 1
        ended = envs[staging.terminated[envs] | staging.truncated[envs]]
        if ended.size:
            again = ended[: len(waiting)].tolist()
            if again:
                vector.reset(again, [waiting.pop() for _ in again])
                n_acts[again] = 0
            envs = np.setdiff1d(envs, ended[len(again) :])
    order = {episode: place for place, episode in enumerate(episodes)}
    return sorted(vector.drain_summaries(), key=lambda summary: order[summary.episode_index])
