"""Monte-Carlo tree search that is guided by a policy and a value function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from maze_pl.agents.best_actions import Action
from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions
from maze_pl.search.simulation import Simulation
from maze_pl.search.tree import Edge, Node, ValueRange, next_edge, value_scale
from maze_pl.search.value_function import ValueFunction

_MOST_CONSIDERED: Final = 16
"""Number of actions among which the search chooses."""


@dataclass(frozen=True)
class _Candidate:
    """An action that may be taken.

    Attributes:
        edge: Its statistics.
        score: Log-probability plus Gumbel noise.
    """

    edge: Edge
    score: float


@dataclass
class _Descent:
    """A simulation on its way down the tree.

    Attributes:
        simulation: The simulation.
        node: The node in which it is.
        is_at_leaf: Whether it goes no further.
        edges: Edges that it has passed.
        rewards: Reward of each.
        discounts: Discount of each.
    """

    simulation: Simulation
    node: Node
    is_at_leaf: bool = False
    edges: list[Edge] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    discounts: list[float] = field(default_factory=list)


class Puct(SearchMethod):
    """Monte-Carlo tree search with Gumbel selection at the root and sequential halving.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel": the 16 actions with the
    largest sum of log-probability and Gumbel noise share the simulations, and the better half of
    them remains after each round. Below the root, visits follow the policy as improved by the values
    found so far. With `deterministic`, there is no Gumbel noise.

    A node stands for a sequence of actions, not for a state: simulations with different futures
    pass through the same nodes, in which different actors may act. Values are scaled to the range
    that was found in the tree.

    Args:
        calls: The policy.
        values: Value of leaves.
        gamma: Discount of an environment step.
        options: Budget and horizon.
    """

    def __init__(self, calls: PolicyCalls, values: ValueFunction, gamma: float, options: SearchOptions) -> None:
        self._calls = calls
        self._values = values
        self._gamma = gamma
        self._options = options

    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the act of the largest score and value among the most visited ones."""
        simulation = decision.started(0, 0)
        actor, observation = simulation.actor, simulation.observation
        considered = self._considered(decision, simulation)
        value_range = ValueRange()
        if len(considered) > 1:
            n_simulations = self._options.simulations
            if n_simulations is None:
                assert self._options.milliseconds is not None
                self._simulate(decision, considered, value_range)
                seconds = self._options.milliseconds / 1000
                n_simulations = int(len(considered) * seconds / (seconds - decision.seconds_left))
            self._halve(decision, considered, n_simulations, value_range)
        most = max(candidate.edge.n_visits for candidate in considered)
        finalists = [candidate for candidate in considered if candidate.edge.n_visits == most]
        best = _by_value(finalists, considered, value_range)[0]
        return [PlannedAct(actor, observation, best.edge.action)]

    def _considered(self, decision: Decision, simulation: Simulation) -> list[_Candidate]:
        """Return the actions with the largest scores, best first."""
        (actions,) = self._calls.candidates([simulation])
        n_most = min(_MOST_CONSIDERED, self._options.simulations or _MOST_CONSIDERED)
        noise = [0.0] * len(actions) if decision.deterministic else decision.random.gumbel(size=len(actions)).tolist()
        candidates = []
        for (action, probability), gumbel in zip(actions, noise, strict=True):
            candidates.append(_Candidate(Edge(action), math.log(probability) + gumbel))
        candidates.sort(key=lambda candidate: -candidate.score)
        return candidates[:n_most]

    def _halve(
        self, decision: Decision, considered: Sequence[_Candidate], n_simulations: int, value_range: ValueRange
    ) -> None:
        """Divide the simulations among ever fewer actions.

        Args:
            decision: The decision.
            considered: The actions, best first.
            n_simulations: Number of simulations.
            value_range: The range of values in the tree.
        """
        n_rounds = math.ceil(math.log2(len(considered)))
        remaining = list(considered)
        n_left = n_simulations - sum(candidate.edge.n_visits for candidate in considered)
        while n_left > 0:
            for _ in range(max(1, n_simulations // (n_rounds * len(remaining)))):
                if n_left <= 0 or decision.is_out_of_time:
                    return
                visited = remaining[:n_left]
                self._simulate(decision, visited, value_range)
                n_left -= len(visited)
            n_remaining = max(2, len(remaining) // 2)
            remaining = _by_value(remaining, considered, value_range)[:n_remaining]

    def _simulate(self, decision: Decision, candidates: Sequence[_Candidate], value_range: ValueRange) -> None:
        """Run a simulation for each action; their subtrees have nothing in common."""
        descents: list[_Descent] = []
        for place, candidate in enumerate(candidates):
            if descents and decision.is_out_of_time:
                break
            descent = _Descent(decision.started(place, candidate.edge.n_visits), Node())
            self._take(descent, candidate.edge)
            descents.append(descent)
        while descending := [descent for descent in descents if not descent.is_at_leaf]:
            for descent, actions in zip(descending, self._candidates_of(descending), strict=True):
                actor = descent.simulation.actor
                self._take(descent, next_edge(descent.node, actor, actions, value_range))
            if _is_cut_off(decision, descents):
                return
        values = self._values(decision, [descent.simulation for descent in descents])
        if _is_cut_off(decision, descents):
            return
        for descent, value in zip(descents, values, strict=True):
            descent.node.n_values += 1
            descent.node.value_total += value
            for edge, reward, discount in zip(
                reversed(descent.edges), reversed(descent.rewards), reversed(descent.discounts), strict=True
            ):
                value = reward + discount * value
                edge.n_visits += 1
                edge.total += value
                value_range.add(edge.mean)

    def _take(self, descent: _Descent, edge: Edge) -> None:
        """Perform the action of an edge."""
        simulation = descent.simulation
        simulation.step(edge.action)
        descent.edges.append(edge)
        descent.rewards.append(simulation.reward)
        descent.discounts.append(self._gamma**simulation.env_steps)
        descent.node = edge.child
        is_new = edge.n_visits == 0
        descent.is_at_leaf = is_new or simulation.is_over or simulation.n_acts >= self._options.horizon

    def _candidates_of(self, descents: Sequence[_Descent]) -> list[list[tuple[Action, float]]]:
        """Return the policy's most likely actions where each descent is; nodes keep the first ones."""
        unknown: list[_Descent] = []
        for descent in descents:
            if not descent.node.knows(descent.simulation.actor, descent.simulation.observation):
                unknown.append(descent)
        found = self._calls.candidates([descent.simulation for descent in unknown])
        of_simulation = {id(descent.simulation): actions for descent, actions in zip(unknown, found, strict=True)}
        for descent in unknown:
            if descent.node.observation is None:
                descent.node.actor = descent.simulation.actor
                descent.node.observation = descent.simulation.observation
                descent.node.candidates = of_simulation[id(descent.simulation)]
        return [of_simulation.get(id(descent.simulation), descent.node.candidates) for descent in descents]


def _is_cut_off(decision: Decision, descents: Sequence[_Descent]) -> bool:
    """Return whether the time is over, and the actions have other simulations that count instead."""
    return decision.is_out_of_time and all(descent.edges[0].n_visits for descent in descents)


def _by_value(
    candidates: Sequence[_Candidate], considered: Sequence[_Candidate], value_range: ValueRange
) -> list[_Candidate]:
    """Sort actions by the sum of score and scaled value, best first.

    Args:
        candidates: The actions.
        considered: All actions, whose visits determine the scale.
        value_range: The range of values in the tree.
    """
    scale = value_scale([candidate.edge for candidate in considered])

    def merit(candidate: _Candidate) -> float:
        edge = candidate.edge
        return candidate.score + (scale * value_range.scaled(edge.mean) if edge.n_visits else 0.0)

    return sorted(candidates, key=lambda candidate: -merit(candidate))
