from __future__ import annotations

import time
import uuid

from maze_pl.events import EnvironmentContext


def test_environment_time_starts_at_zero_and_counts_completed_steps() -> None:
    context = EnvironmentContext()
    assert (context.env_time, context.env_step_incremented) == (0, False)
    context.increment_env_step()
    assert (context.env_time, context.env_step_incremented) == (1, True)
    context.reset_episode()
    assert (context.env_time, context.env_step_incremented) == (0, False)


def test_the_same_seed_gives_the_same_episode_id() -> None:
    one, two = EnvironmentContext(), EnvironmentContext()
    one.reset_episode(7)
    two.reset_episode(7)
    assert one.episode_id == two.episode_id
    two.reset_episode(8)
    assert one.episode_id != two.episode_id


def test_episodes_without_a_seed_have_different_ids_all_of_them_uuids() -> None:
    context = EnvironmentContext()
    ids = {context.episode_id}
    for seed in (None, None, 3):
        context.reset_episode(seed)
        ids.add(context.episode_id)
    assert len(ids) == 4
    assert {str(uuid.UUID(episode_id)) for episode_id in ids} == ids


def test_plays_of_the_same_episode_are_told_apart_by_their_start() -> None:
    context = EnvironmentContext()
    before = time.time()
    plays = []
    for _ in range(2):
        context.reset_episode(7)
        plays.append((context.episode_id, context.episode_started))
        while time.time() == context.episode_started:
            time.sleep(1e-6)
    (first, began), (second, began_again) = plays
    assert first == second
    assert before <= began < began_again <= time.time()
