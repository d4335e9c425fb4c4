"""What simple policies need on the three instances, counted in raw pieces, the one at the start included.

Means over episodes with fixed seeds; tolerances are four standard errors of such a mean, and what rounding leaves open.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maze_pl.envs.cutting_2d import (
    Cutting2DCoreEnvironment,
    Cutting2DMazeAction,
    GreedyCuttingPolicy,
    UniformDemand,
    maze_env_factory,
)
from tests.envs.cutting_2d.instances import CONSTANT, DOCUMENTED, FACTORIES, MIXED, episode_return, valid_cuts


def random_return(instance: dict[str, Any], n_steps: int, seed: int) -> float:
    """Return of the policy that chooses uniformly among all valid cuts: piece, rotation and order together."""
    env, generator = Cutting2DCoreEnvironment(**instance), np.random.default_rng((1, seed))
    env.seed(seed)
    state, total = env.reset(), 0.0
    for _ in range(n_steps):
        cuts = valid_cuts(state)
        state, reward, _, _, info = env.step(cuts[generator.integers(len(cuts))])
        assert info == {"msg": "valid_cut"}
        total += reward
    return total


@pytest.mark.parametrize(
    ("instance", "n_steps", "n_episodes", "raw_pieces", "deviation"),
    [(DOCUMENTED, 180, 60, 34.5, 1.1), (CONSTANT, 180, 60, 35.8, 1.2), (MIXED, 200, 60, 36.7, 2.3)],
    ids=["documented", "constant", "mixed"],
)
def test_random_valid_cuts(
    instance: dict[str, Any], n_steps: int, n_episodes: int, raw_pieces: float, deviation: float
) -> None:
    returns = [random_return(instance, n_steps, seed) for seed in range(n_episodes)]
    assert -np.mean(returns) == pytest.approx(raw_pieces, abs=4 * deviation / n_episodes**0.5 + 0.05)
    assert np.std(returns) == pytest.approx(deviation, rel=0.4)


@pytest.mark.parametrize("variant", list(FACTORIES))
@pytest.mark.parametrize(("instance", "raw_pieces"), [(DOCUMENTED, 31), (CONSTANT, 37)], ids=["documented", "constant"])
def test_greedy_cuts(variant: str, instance: dict[str, Any], raw_pieces: int) -> None:
    env = FACTORIES[variant](**instance)
    assert episode_return(env, GreedyCuttingPolicy(env.action_spaces_dict), 180, seed=0) == -raw_pieces


def test_greedy_cuts_of_mixed_orders() -> None:
    env = maze_env_factory(**MIXED)
    policy = GreedyCuttingPolicy(env.action_spaces_dict)
    returns = [episode_return(env, policy, 200, seed) for seed in range(60)]
    assert -np.mean(returns) == pytest.approx(28.74, abs=3 * 1.6 / 60**0.5)
    assert np.std(returns) == pytest.approx(1.6, rel=0.3)


def test_nobody_can_do_with_fewer_raw_pieces_than_their_area_allows() -> None:
    demand = UniformDemand((6, 5))
    needed = []
    for seed in range(300):
        generator, last = np.random.default_rng(seed), []
        orders = []
        while len(orders) < 200:
            orders += (last := demand.period((10, 8), generator, last))
        needed.append(np.ceil(sum(x * y for x, y in orders[:200]) / 80))
    assert np.mean(needed) == pytest.approx(26.8, abs=4 * 1.3 / 300**0.5 + 0.05)


# Six orders of 1 x 2 out of 4 x 3: four upright, side by side, and two turned above them. Piece -> turned, reversed.
SIX_OUT_OF_ONE = {
    (3, 2): (False, False),
    (2, 2): (False, False),
    (1, 2): (False, False),
    (4, 1): (True, False),
    (2, 1): (True, False),
    (4, 3): (False, True),
}


def test_the_optimum_of_the_constant_instance_is_31() -> None:
    env = Cutting2DCoreEnvironment(**CONSTANT)
    total = 0.0
    for _ in range(180):
        piece = next(size for size in SIX_OUT_OF_ONE if size in env.inventory.pieces)
        action = Cutting2DMazeAction(env.inventory.pieces.index(piece), *SIX_OUT_OF_ONE[piece])
        total += env.step(action)[1]
    assert total == -31
