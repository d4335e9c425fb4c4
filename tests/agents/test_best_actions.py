"""The most likely combinations of choices, against all of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.agents.best_actions import best_products, likeliest_actions


def test_products_computed_by_hand() -> None:
    factors = [np.array([0.6, 0.4]), np.array([0.1, 0.0, 0.9])]
    found = best_products(factors, 3)
    assert [choices for choices, _ in found] == [(0, 2), (1, 2), (0, 0)]
    np.testing.assert_allclose([probability for _, probability in found], [0.54, 0.36, 0.06])
    assert len(best_products(factors, 100)) == 4, "without what never happens"


@pytest.mark.parametrize("k", [1, 2, 7, 50])
def test_products_are_those_of_a_search_of_all(k: int) -> None:
    generator = np.random.default_rng(k)
    for _ in range(20):
        factors = [generator.dirichlet(np.ones(size)) for size in generator.integers(1, 5, 4)]
        everything = []
        for choices in product(*(range(len(factor)) for factor in factors)):
            everything.append(float(np.prod([factor[choice] for factor, choice in zip(factors, choices, strict=True)])))
        found = [probability for _, probability in best_products(factors, k)]
        np.testing.assert_allclose(found, sorted(everything, reverse=True)[:k])


def test_actions_of_all_kinds_of_discrete_heads() -> None:
    probabilities = {
        "pick": np.array([[1.0, 0.0, 0.0], [0.0, 0.7, 0.3]]),
        "dials": [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])],
        "switches": np.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.8]]]),
    }
    space = spaces.Dict(
        {
            "pick": spaces.Discrete(3, start=1),
            "dials": spaces.MultiDiscrete([2, 3]),
            "switches": spaces.MultiBinary([2, 2]),
        }
    )
    found = likeliest_actions(space, probabilities, 1, 2)
    assert [action["pick"] for action, _ in found] == [2, 3]
    np.testing.assert_allclose([probability for _, probability in found], [0.56, 0.24])
    assert found[0][0]["dials"].tolist() == [0, 2]
    assert found[0][0]["switches"].tolist() == [[1, 0], [0, 1]]
    assert all(space.contains(action) for action, _ in found)
