"""Functions that play whole episodes without storing them, for evaluation and populations."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import torch

from maze_pl.collect.actor_slots import ActorSlots
from maze_pl.collect.content_checks import check_current_masks, check_current_values
from maze_pl.collect.endless_episodes import MANY_ACTS
from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.policy import Array, Policy
from maze_pl.envs.vector.vector_env import StepExtras, VectorEnv


def play_episodes(
    vector: VectorEnv,
    policy: Policy,
    episodes: Sequence[int],
    *,
    deterministic: bool,
    generator: torch.Generator | None = None,
    unbounded: Mapping[StepKey, Collection[str]] | None = None,
    on_many_acts: Callable[[int], object] | None = None,
) -> Sequence[EpisodeSummary]:
    """Play the given episodes, each to its end.

    Args:
        vector: Environments without automatic reset.
        policy: Chooses the actions.
        episodes: Indices of the episodes, which seed them; no more than there are environments.
        deterministic: Whether the policy takes its most likely action.
        generator: Source of the policy's randomness where it samples.
        unbounded: Observations that may be infinite, by sub-step, as the policy clips them.
        on_many_acts: Called after `MANY_ACTS` acts with the number of episodes that have not ended.

    Returns:
        Summaries in the order of `episodes`.
    """
    acts = play_acts(vector, policy, episodes, deterministic=deterministic, generator=generator, unbounded=unbounded)
    for n_acts, (envs, _) in enumerate(acts):
        if n_acts == MANY_ACTS and on_many_acts is not None:
            on_many_acts(len(envs))
    return vector.drain_summaries()


def play_acts(
    vector: VectorEnv,
    policy: Policy,
    episodes: Sequence[int],
    *,
    deterministic: bool,
    generator: torch.Generator | None = None,
    check_masks: bool = False,
    unbounded: Mapping[StepKey, Collection[str]] | None = None,
) -> Iterator[tuple[Array, StepExtras]]:
    """Play episodes act by act, as far as the caller iterates; arguments as for `play_episodes`.

    With `check_masks`, masks that allow nothing are refused, as in training. A policy that ignores masks may
    get to states in which nothing is allowed.

    Yields:
        The environments in which an actor has just acted, and results that only some of them have; the
        vector's staging holds all others.
    """
    staging = vector.staging
    slots = ActorSlots(vector.spec, vector.n_envs)
    is_flat = vector.spec.is_flat
    first = vector.first_env_index
    names = {key: {name: f"observation {name!r}" for name in arrays} for key, arrays in staging.observation.items()}
    episode_index = np.array(episodes)
    n_acts = np.zeros(len(episodes), np.int64)
    envs = np.arange(len(episodes))  # whose episodes are running
    has_marked_actors = False
    vector.reset(envs, episode_index)
    while envs.size:
        keys = staging.next_key[envs]
        if not is_flat:
            slots.assign(envs, staging)
        acting_keys = [0] if is_flat else np.flatnonzero(np.bincount(keys)).tolist()
        for key in acting_keys:
            group = envs if is_flat else envs[keys == key]
            batch = slots.batch(staging, key, group)
            batch.episode_index = episode_index[group]
            batch.n_acts = n_acts[group]
            batch.env_index = group
            observation = {names[batch.step_key][name]: array for name, array in batch.observation.items()}
            infinite = {names[batch.step_key][name] for name in (unbounded or {}).get(batch.step_key, ())}
            check_current_values(observation, group, batch.n_acts, "an episode", first, infinite)
            if check_masks:
                check_current_masks(vector.spec, batch, group, batch.n_acts, first)
            acting_slot = slots.next_slot[group]
            step = slots.act(
                policy,
                batch,
                key,
                group,
                acting_slot,
                deterministic=deterministic,
                generator=generator,
            )
            for head, values in step.action.items():
                staging.action[batch.step_key][head][group] = values
            if not (is_flat and has_marked_actors):  # the only actor of an episode acts at its start
                slots.acted_in_episode[group, slots.offsets[key] + acting_slot] = True
                has_marked_actors = True
        extras = vector.step(envs)
        rewards = {"the reward": staging.reward[envs]}
        check_current_values(rewards, envs, n_acts[envs], "an episode", first)
        n_acts += 1
        yield envs, extras
        is_over = staging.terminated[envs] | staging.truncated[envs]
        if is_over.any() or not is_flat:
            acting_slot = slots.next_slot[envs]
            slots.release(envs, keys, acting_slot, staging.actor_done[envs], is_over)
            slots.end_actors(extras.done_actors, staging)
            envs = envs[~is_over]
