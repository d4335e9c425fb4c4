"""Statistics of a search tree against hand-computed cases and formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from maze_pl.core.actor_id import ActorID
from maze_pl.search.tree import Edge, Node, ValueRange, action_key, completed_values, next_edge, value_scale

ACTOR = ActorID(0, 0)


def test_values_completed_by_hand() -> None:
    node = Node(n_values=1, value_total=2.0)
    edges = [Edge({"a": 0}, 3, 12.0), Edge({"a": 1}), Edge({"a": 2}, 1, 1.0)]
    # of the visited actions: (0.5 * 4 + 0.2 * 1) / 0.7; of the node: (2 + 4 * that) / 5
    mixed = (2.0 + 4 * (2.2 / 0.7)) / 5
    found = completed_values(node, edges, np.array([0.5, 0.3, 0.2]))
    np.testing.assert_allclose(found, [4.0, mixed, 1.0])


def test_the_value_of_a_node_counts_alone_before_actions_are_visited() -> None:
    node = Node(n_values=2, value_total=5.0)
    found = completed_values(node, [Edge({"a": 0}), Edge({"a": 1})], np.array([0.9, 0.1]))
    np.testing.assert_allclose(found, [2.5, 2.5])


@pytest.mark.parametrize("seed", range(20))
def test_visits_follow_the_improved_policy(seed: int) -> None:
    """Against the formula, one action at a time."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(2, 6))
    probabilities = generator.dirichlet(np.ones(n)).tolist()
    node = Node(n_values=1, value_total=float(generator.normal()))
    candidates = [({"a": choice}, probability) for choice, probability in enumerate(probabilities)]
    value_range = ValueRange()
    for choice in range(n):
        edge = node.edge(ACTOR, {"a": choice})
        edge.n_visits = int(generator.integers(0, 4))
        edge.total = float(generator.normal()) * edge.n_visits
        if edge.n_visits:
            value_range.add(edge.mean)
    value_range.add(-3.0)
    edges = [node.edge(ACTOR, action) for action, _ in candidates]
    completed = completed_values(node, edges, np.array(probabilities))
    scale = 0.1 * (50 + max(edge.n_visits for edge in edges))
    weights = []
    for place in range(n):
        weights.append(probabilities[place] * math.exp(scale * value_range.scaled(float(completed[place]))))
    n_all = sum(edge.n_visits for edge in edges)
    margins = [weights[place] / sum(weights) - edges[place].n_visits / (1 + n_all) for place in range(n)]
    assert next_edge(node, ACTOR, candidates, value_range) is edges[margins.index(max(margins))]


def test_equal_actions_have_one_edge() -> None:
    node = Node()
    first = node.edge(ACTOR, {"b": np.array([1, 2]), "a": 3})
    assert node.edge(ACTOR, {"a": np.int64(3), "b": [1, 2]}) is first
    assert action_key({"a": 3}) != action_key({"a": 2})


@pytest.mark.parametrize("other", [ActorID(1, 0), ActorID(0, 1)], ids=["sub-step", "agent"])
def test_actors_in_the_same_node_share_neither_statistics_nor_candidates(other: ActorID) -> None:
    node = Node(actor=ACTOR, observation={"x": np.zeros(2), "y": np.ones(1)})
    assert node.edge(other, {"a": 0}) is not node.edge(ACTOR, {"a": 0})
    assert node.knows(ACTOR, {"x": np.zeros(2), "y": np.ones(1)})
    assert not node.knows(other, {"x": np.zeros(2), "y": np.ones(1)})
    assert not node.knows(other, {"x": np.zeros(2)}), "fewer observations, all equal"
    assert not node.knows(other, {"z": np.zeros(2)}), "another observation"


def test_values_are_scaled_to_the_range_found() -> None:
    value_range = ValueRange()
    value_range.add(4.0)
    assert value_range.scaled(4.0) == 0.0, "no range yet"
    value_range.add(-4.0)
    assert [value_range.scaled(value) for value in (-4.0, 2.0, 4.0)] == [0.0, 0.75, 1.0]
    assert value_scale([Edge({"a": 0}, 7, 1.0), Edge({"a": 1})]) == pytest.approx(5.7)
