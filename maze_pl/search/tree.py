"""Nodes of a search tree, their statistics, and the policy that these improve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from maze_pl.agents.best_actions import Action
from maze_pl.core.actor_id import ActorID
from maze_pl.core.policy import Array

VISIT_SCALE: Final = 50.0
"""Constant c_visit of Danihelka et al. 2022."""
VALUE_SCALE: Final = 0.1
"""Constant c_scale of Danihelka et al. 2022, for values that are scaled to [0, 1]."""

ActionKey = tuple[tuple[str, tuple[int, ...]], ...]


def action_key(action: Action) -> ActionKey:
    """Return a key for a discrete action: equal for equal actions."""
    return tuple((head, tuple(np.ravel(value).tolist())) for head, value in sorted(action.items()))


@dataclass
class Edge:
    """An action in a node.

    Attributes:
        action: The action.
        n_visits: Number of simulations that have taken it.
        total: Sum of the discounted returns of these, from the action on.
        child: The node that it leads to.
    """

    action: Action
    n_visits: int = 0
    total: float = 0.0
    child: "Node" = field(default_factory=lambda: Node())

    @property
    def mean(self) -> float:
        """Mean discounted return; for an edge that was visited."""
        return self.total / self.n_visits


@dataclass
class Node:
    """A sequence of actions from the root.

    Where chance decides who acts next, several actors may act here: each has edges, also for actions
    that look alike.

    Attributes:
        edges: Actions that were considered here, by actor.
        n_values: Number of simulations that have ended here.
        value_total: Sum of the values that they have found.
        actor: Actor in the first simulation that passed on from here; None before.
        observation: Its observation; None before.
        candidates: The policy's most likely actions for this observation, with their probabilities.
    """

    edges: dict[tuple[ActorID, ActionKey], Edge] = field(default_factory=dict)
    n_values: int = 0
    value_total: float = 0.0
    actor: ActorID | None = None
    observation: Mapping[str, Array] | None = None
    candidates: list[tuple[Action, float]] = field(default_factory=list)

    def edge(self, actor: ActorID, action: Action) -> Edge:
        """Return the edge of an actor's action."""
        return self.edges.setdefault((actor, action_key(action)), Edge(action))

    def knows(self, actor: ActorID, observation: Mapping[str, Array]) -> bool:
        """Return whether `candidates` are those of an actor for an observation."""
        if self.observation is None or actor != self.actor:
            return False
        return all(np.array_equal(self.observation[name], value) for name, value in observation.items())


class ValueRange:
    """Smallest and largest mean return of the edges of a tree, by which values are scaled to [0, 1]."""

    def __init__(self) -> None:
        self._lowest = math.inf
        self._highest = -math.inf

    def add(self, value: float) -> None:
        """Extend the range to a value."""
        self._lowest = min(self._lowest, value)
        self._highest = max(self._highest, value)

    def scaled(self, value: float) -> float:
        """Return the place of a value in the range; 0 in a range of one value."""
        width = self._highest - self._lowest
        return (value - self._lowest) / width if width > 0 else 0.0


def value_scale(edges: Sequence[Edge]) -> float:
    """Return the factor of values of [0, 1] that are added to log-probabilities."""
    return (VISIT_SCALE + max((edge.n_visits for edge in edges), default=0)) * VALUE_SCALE


def completed_values(node: Node, edges: Sequence[Edge], probabilities: Array) -> Array:
    """Return the value of each action, that of the node where the action was not visited.

    The node's value is a mean of the values found in it and of the actions' values, weighted by
    their probabilities: v_mix of Danihelka et al. 2022, appendix D.

    Args:
        node: The node.
        edges: Its actions.
        probabilities: [n] the policy's probabilities of them.
    """
    visits = np.array([edge.n_visits for edge in edges])
    visited = visits > 0
    values = np.array([edge.mean if edge.n_visits else 0.0 for edge in edges])
    mixed = node.value_total / max(1, node.n_values)
    if visited.any():
        weights = probabilities * visited
        of_actions = (weights * values).sum() / weights.sum()
        mixed = (mixed + visits.sum() * of_actions) / (1 + visits.sum())
    completed: Array = np.where(visited, values, mixed)
    return completed


def next_edge(node: Node, actor: ActorID, candidates: Sequence[tuple[Action, float]], value_range: ValueRange) -> Edge:
    """Return the edge that a simulation takes in a node.

    The improved policy is softmax(log-probability + scaled completed value). The action is taken
    whose share of the visits is furthest below its probability in the improved policy.

    Args:
        node: The node.
        actor: The actor.
        candidates: Its actions and their probabilities.
        value_range: The range of values in the tree.
    """
    edges = [node.edge(actor, action) for action, _ in candidates]
    probabilities = np.array([probability for _, probability in candidates])
    completed = completed_values(node, edges, probabilities)
    scaled = np.array([value_range.scaled(value) for value in completed.tolist()])
    logits = np.log(probabilities) + value_scale(edges) * scaled
    improved = np.exp(logits - logits.max())
    improved /= improved.sum()
    visits = np.array([edge.n_visits for edge in edges])
    return edges[int((improved - visits / (1 + visits.sum())).argmax())]
