"""Players of whole episodes begin each one with wrappers in their first state, whatever was played before."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from maze_pl.collect.best_episode_worker import BestEpisodeWorker
from maze_pl.collect.population_worker import PopulationWorker
from maze_pl.core.population import NoiseTable
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import ArrayEnv, ArrayStep, ArrayVectorEnv, CartPoleArrayEnv, GymMazeEnv
from maze_pl.envs.arrays import ArrayWrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.modules import ES
from tests.datamodules.counter import Counter
from tests.datamodules.drift import Drift
from tests.envs.stateful_wrappers import GrowingLimitWrapper, RisingPriceWrapper, make_walk


class RisingPrice(ArrayWrapper):
    """Pays each act with the number of the episode."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.level = np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.level[which] += 1
        return super().reset(which, seeds)

    def step(self, actions: Any, which: Any) -> ArrayStep:
        result = super().step(actions, which)
        result.reward = self.level.astype(np.float64)
        return result


def test_episodes_of_perturbed_policies() -> None:
    make = partial(make_wrapped, lambda: GymMazeEnv(Drift()), [partial(GrowingLimitWrapper, limit=1)])
    training = [partial(SequentialVectorEnv, [make], seed=3, autoreset=False, seed_by_env=False)]
    player = PopulationWorker(3, {}, Counter(), 0, 0, training=training, noise=NoiseTable(1, 1000))
    played = [player.play_perturbed(number, 0, 0.5, {}) for number in range(4)]
    assert [one.env_steps for one in played if one is not None] == [1] * 4


def test_episodes_of_perturbed_policies_in_arrays() -> None:
    def make() -> ArrayEnv:
        return RisingPrice(CartPoleArrayEnv())

    policy = ES(networks="auto", spec=Spec.of(make())).policy
    population = partial(ArrayVectorEnv, make, 4, seed=3, autoreset=False, seed_by_env=False)
    player = PopulationWorker(3, {}, policy, 0, 0, noise=NoiseTable(1, 100_000), population=population)
    for update in range(2):
        rewards, _, summaries = player.play_together(range(8), update, 0.5)  # two groups
        assert rewards.tolist() == [summary.env_steps for summary in summaries]


def test_the_best_of_several_episodes() -> None:
    make = partial(make_wrapped, make_walk, [RisingPriceWrapper])
    training = [partial(SequentialVectorEnv, [make] * 2, seed=3, autoreset=False, seed_by_env=False)]
    policy = RandomPolicy(make().action_spaces_dict)
    player = BestEpisodeWorker(3, {}, policy, 0, 0, training=training)
    for start in range(3):
        best = player.play_best(start, {})
        assert [summary.reward for summary in best.summaries] == [10.0, 10.0]
        assert float(best.record.reward.sum()) == 10.0
