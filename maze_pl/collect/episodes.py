"""Playing of whole episodes without storing them, for evaluation and populations."""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from maze_pl.collect.storage import ActorSlots, check_now
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import Array, Policy
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
        vector: Environments without automatic reset.
        policy: Chooses the actions.
        episodes: Indices of the episodes, which seed them; no more than there are environments.
        deterministic: Whether the policy takes its most likely action.
        generator: Source of the policy's randomness where it samples.

    Returns:
        Summaries in the order of `episodes`.
    """
    deque(playing(vector, policy, episodes, deterministic=deterministic, generator=generator), 0)
    return vector.drain_summaries()


def playing(
    vector: VectorEnv,
    policy: Policy,
    episodes: Sequence[int],
    *,
    deterministic: bool,
    generator: torch.Generator | None = None,
) -> Iterator[Array]:
    """Play episodes act by act, as far as the caller iterates; arguments as for `play_episodes`.

    Yields:
        The environments in which an actor has just acted; the vector's staging holds the outcomes.
    """
    staging, slots, first = vector.staging, ActorSlots(vector.spec, vector.n_envs), vector.first_env_index
    options, flat = {"deterministic": deterministic, "generator": generator}, vector.spec.is_flat
    indices, envs, n_acts = np.array(episodes), np.arange(len(episodes)), np.zeros(len(episodes), np.int64)
    vector.reset(envs.tolist(), list(episodes))
    while envs.size:
        keys, groups = staging.next_key[envs], [(0, envs)]
        if not flat:
            slots.find(envs, staging)
            groups = [(key, envs[keys == key]) for key in sorted(set(keys.tolist()))]
        for key, group in groups:
            batch = slots.batch(staging, key, group)
            batch.episode_index, batch.n_acts = indices[group], n_acts[group]
            seen = {f"observation {name!r}": array for name, array in batch.observation.items()}
            check_now(seen, group, batch.n_acts, "an episode", first)
            step = slots.act(policy, batch, key, group, slots.next[group], **options)
            for head, values in step.action.items():
                staging.action[batch.step_key][head][group] = values
            slots.seen[group, slots.offsets[key] + slots.next[group]] = True
        vector.step(envs.tolist())
        check_now({"the reward": staging.reward[envs]}, envs, n_acts[envs], "an episode", first)
        n_acts += 1
        yield envs
        over = staging.terminated[envs] | staging.truncated[envs]
        if over.any() or not flat:
            slots.release(envs, keys, slots.next[envs], staging.actor_done[envs], over)
            envs = envs[~over]
