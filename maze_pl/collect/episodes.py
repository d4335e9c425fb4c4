"""Plays whole episodes without keeping them, for evaluation."""

from collections.abc import Sequence

import numpy as np
import torch

from maze_pl.collect.checks import check_now
from maze_pl.collect.memory import Memory
from maze_pl.collect.slots import ActorSlots
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
    step_keys, staging, slots = vector.spec.step_keys, vector.staging, ActorSlots(vector.spec, vector.n_envs)
    memory = Memory(slots)
    waiting = list(episodes)[::-1]
    n_acts = np.zeros(vector.n_envs, np.int64)  # of the running episodes
    envs = np.arange(min(vector.n_envs, len(waiting)))
    vector.reset(envs.tolist(), [waiting.pop() for _ in envs])
    while envs.size:
        keys = staging.next_key[envs]
        slots.find(envs, keys, staging.next_agent[envs])
        for index in np.unique(keys).tolist():
            key, group = step_keys[index], envs[keys == index]
            observation = {name: array[group] for name, array in staging.observation[key].items()}
            seen = {f"observation {name!r}": array for name, array in observation.items()}
            check_now(seen, group, n_acts[group], "an episode", vector.first_env_index)
            who = group, slots.offsets[index] + slots.next[group]
            is_first = ~slots.seen[who]
            batch = PolicyBatch(key, observation, staging.next_agent[group], is_first=is_first)
            options = {"deterministic": deterministic, "generator": generator}
            step = memory.act(policy, batch, index, group, slots.next[group], **options)
            for head, values in step.action.items():
                staging.action[key][head][group] = values
            slots.seen[who] = True
        vector.step(envs.tolist())
        check_now({"the reward": staging.reward[envs]}, envs, n_acts[envs], "an episode", vector.first_env_index)
        n_acts[envs] += 1
        over = staging.terminated[envs] | staging.truncated[envs]
        slots.release(envs, keys, slots.next[envs], staging.actor_done[envs], over)
        ended = envs[over]
        if ended.size:
            again = ended[: len(waiting)].tolist()
            if again:
                vector.reset(again, [waiting.pop() for _ in again])
                n_acts[again] = 0
            envs = np.setdiff1d(envs, ended[len(again) :])
    order = {episode: place for place, episode in enumerate(episodes)}
    return sorted(vector.drain_summaries(), key=lambda summary: order[summary.episode_index])
