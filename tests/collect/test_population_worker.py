"""Perturbed policies play what update and pair say, a part at a time, and nothing else decides about it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from maze_pl.collect.population_worker import Played, PopulationWorker
from maze_pl.core.population import NoiseTable
from maze_pl.envs.vector import SequentialVectorEnv
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift, Log

NOISE = NoiseTable(1, 1000)


class Long(Drift):
    """Episodes of 450 steps."""

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time == 450, False, info


def make_actor(env: Any = Drift, policy: Any = None, **options: Any) -> PopulationWorker:
    make = partial(SequentialVectorEnv, [env], seed=3, autoreset=False, seed_by_env=False)
    return PopulationWorker(3, {}, policy or Counter(), 0, 0, training=[make], noise=NOISE, **options)


def play(actor: PopulationWorker, number: int, update: int = 0, stddev: float = 0.5, **options: Any) -> Played:
    while (played := actor.play_perturbed(number, update, stddev, {}, **options)) is None:
        pass
    return played


def test_noise_is_added_and_subtracted_and_the_policy_itself_is_left_alone() -> None:
    policy = Counter()
    policy.weight.data.fill_(2.0)
    actor = make_actor(policy=policy)
    seen = []
    for number in range(4):
        play(actor, number, update=7)
        seen.append(actor.perturbed.weight.item())
        assert policy.weight.item() == 2.0
    noise = [NOISE.piece(NOISE.offset(1, 7, pair), 1).item() for pair in (0, 1)]
    assert seen == pytest.approx([2 + 0.5 * noise[0], 2 - 0.5 * noise[0], 2 + 0.5 * noise[1], 2 - 0.5 * noise[1]])
    assert policy.training and policy.modes == set()
    assert actor.perturbed.modes == {False}


def test_both_of_a_pair_play_the_same_episode_and_every_pair_another_one() -> None:
    log = Log()
    actor = make_actor(partial(Drift, log))
    played = [play(actor, number, update) for update in (0, 1) for number in range(4)]
    (seeds,) = log.seeds
    assert seeds[0::2] == seeds[1::2]
    assert len(set(seeds)) == 4
    assert [one.env_steps for one in played[0::2]] == [one.env_steps for one in played[1::2]]
    assert [one.reward for one in played] == pytest.approx([sum(rewards) for rewards in log.rewards[0]])
    assert [one.summaries[0].reward for one in played] == pytest.approx([one.reward for one in played])
    assert [one.summaries[0].env_steps for one in played] == [one.env_steps for one in played]


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_episode_is_the_same_after_whatever_else_was_played(deterministic: bool) -> None:
    expected = [play(make_actor(deterministic=deterministic), number) for number in range(4)]
    actor = make_actor(deterministic=deterministic)
    assert [play(actor, number).reward for number in (3, 1, 0, 2, 1)] == [expected[n].reward for n in (3, 1, 0, 2, 1)]
    other = [play(make_actor(deterministic=not deterministic), number) for number in range(4)]
    assert [one.reward for one in other] != [one.reward for one in expected]


def test_long_episodes_are_played_in_parts_and_may_be_abandoned() -> None:
    log = Log()
    actor = make_actor(partial(Long, log))
    expected = play(make_actor(Long), 1)
    assert actor.play_perturbed(1, 0, 0.5, {}) is None
    assert len(log.rewards[0][0]) == 200
    assert actor.play_perturbed(0, 0, 0.5, {}) is None  # instead
    parts = [actor.play_perturbed(1, 0, 0.5, {}) for _ in range(3)]
    assert parts[:2] == [None, None]
    assert (parts[2].reward, parts[2].env_steps) == (expected.reward, expected.env_steps)
    assert parts[2].env_steps == 450
    assert len(parts[2].summaries) == 1  # that of the abandoned ones is nowhere


def test_what_the_policy_has_learned_counts_from_the_next_update_on() -> None:
    policy = Counter()
    actor = make_actor(policy=policy)
    for update, weight in ((0, 1.0), (1, 5.0)):
        policy.weight.data.fill_(weight)
        play(actor, 0, update)
        policy.weight.data.fill_(-100.0)
        play(actor, 1, update)
        assert abs(actor.perturbed.weight.item() - weight) < 3
    other = Counter()
    other.weight.data.fill_(30.0)
    play(actor, 0, 2, policy=other)
    assert abs(actor.perturbed.weight.item() - 30) < 3


class Two(Counter):
    """Has a second parameter, without an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.other = torch.nn.Parameter(torch.zeros(3))


@pytest.mark.parametrize("is_told", [False, True])
def test_parameters_that_are_frozen_later_are_not_perturbed_and_others_get_their_noise(is_told: bool) -> None:
    policy = Two()
    actor = make_actor(policy=policy)
    for update, is_trained in enumerate(([True, True], [False, True], [True, False], [True, True])):
        flags = tuple(is_trained)
        if not is_told:
            for parameter, flag in zip(policy.parameters(), flags, strict=True):
                parameter.requires_grad_(flag)
        play(actor, 0, update, flags=flags if is_told else None)
        size = flags[0] + 3 * flags[1]
        noise = 0.5 * NOISE.piece(NOISE.offset(size, update, 0), size)
        expected = torch.zeros(4)
        expected[[flags[0], flags[1], flags[1], flags[1]]] = noise
        found = torch.cat([actor.perturbed.weight.detach().reshape(1), actor.perturbed.other.detach()])
        assert torch.equal(found, expected)


def test_environments_end_with_the_actor() -> None:
    log = Log()
    actor = make_actor(partial(Drift, log))
    play(actor, 0)
    play(actor, 1)
    actor.close()
    assert len(log.seeds) == log.closed == 1
