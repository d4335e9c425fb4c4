"""Search that tries each action and lets a rule play on."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from maze_pl.agents.best_actions import Action
from maze_pl.core.policy import Array
from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.playing_on import DiscountedReturn, play_on
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions
from maze_pl.search.simulation import Simulation
from maze_pl.search.value_function import ValueFunction

N_ERRORS: Final = 2.0
"""Standard errors by which an action must be better than the policy's favourite."""

N_TOGETHER: Final = 256
"""Simulations that are played at once, at most."""


class Lookahead(SearchMethod):
    """Tries each action, lets a rule play on, and takes the action with the largest mean return.

    The rollout algorithm of Bertsekas and Castanon 1999, "Rollout algorithms for stochastic
    scheduling problems". Where the future is random, it is the same in the n-th simulation of
    each action. Another action replaces the policy's most likely one only if it is better by two
    standard errors, because the largest of several means often belongs to a lucky action. This does
    not apply if others are equally likely.

    Args:
        calls: The policy, which chooses the actions that are tried.
        rule: The policy that plays on. It takes its most likely actions.
        options: Budget and horizon. Without a budget, each action is tried once.
        values: Value of the states in which simulations stop before their end; None if it is not
            known, so that rewards after the horizon do not count.
        gamma: Discount of an environment step, as for `values`.
    """

    def __init__(
        self,
        calls: PolicyCalls,
        rule: PolicyCalls,
        options: SearchOptions,
        values: ValueFunction | None = None,
        gamma: float = 1.0,
    ) -> None:
        self._calls = calls
        self._rule = rule
        self._options = options
        self._values = values
        self._gamma = gamma

    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the best act; the policy's most likely one if several are equal."""
        root = decision.started(0, 0)
        (candidates,) = self._calls.candidates([root])
        actor, observation = root.actor, root.observation
        if len(candidates) == 1:
            return [PlannedAct(actor, observation, candidates[0][0])]
        returns: list[list[float]] = []
        while True:
            n_rounds = self._rounds_together(len(returns), len(candidates))
            found = self._returns(decision, len(returns), n_rounds, [action for action, _ in candidates])
            if returns and decision.is_out_of_time:
                break  # which may have cut it off
            returns += found
            if self._is_complete(decision, len(returns), len(candidates)):
                break
        has_favourite = candidates[0][1] > candidates[1][1]
        best = best_place(np.array(returns), has_favourite=has_favourite)
        return [PlannedAct(actor, observation, candidates[best][0])]

    def _returns(
        self, decision: Decision, first_future: int, n_futures: int, actions: Sequence[Action]
    ) -> list[list[float]]:
        """Return the discounted returns [n_futures, actions] of each action in several futures.

        If the time is over, they are of simulations that have come equally far, perhaps of the first actions only.
        """
        rounds = range(first_future, first_future + n_futures)
        tried = [(future, action) for future in rounds for action in actions]
        simulations: list[Simulation] = []
        returns: list[DiscountedReturn] = []
        for place, (future, action) in enumerate(tried):
            if simulations and decision.is_out_of_time:
                break
            simulations.append(decision.started(place, future))
            simulations[-1].step(action)
            returns.append(DiscountedReturn(self._gamma))
            returns[-1].add_last_act(simulations[-1])

        def receive(place: int, _: PlannedAct) -> None:
            returns[place].add_last_act(simulations[place])

        is_deterministic = [True] * len(simulations)
        play_on(decision, simulations, self._rule, is_deterministic, self._is_far_enough, receive)
        totals = [own.total for own in returns]
        if self._values is not None:
            values = self._values(decision, simulations)
            totals = [own.total + own.discount * value for own, value in zip(returns, values, strict=True)]
        return np.array(totals).reshape(n_futures, -1).tolist()

    def _rounds_together(self, n_rounds: int, n_actions: int) -> int:
        """Return in how many futures the actions are tried at once: one if time is limited."""
        if self._options.milliseconds is not None or self._options.simulations is None:
            return 1
        left = self._options.simulations // n_actions - n_rounds
        return min(max(left, 1), max(N_TOGETHER // n_actions, 1))

    def _is_far_enough(self, simulation: Simulation) -> bool:
        """Return whether a simulation has reached the horizon."""
        return simulation.n_acts >= self._options.horizon

    def _is_complete(self, decision: Decision, n_rounds: int, n_actions: int) -> bool:
        """Return whether the budget does not allow another round of simulations."""
        if self._options.milliseconds is not None:
            return decision.is_out_of_time
        return (n_rounds + 1) * n_actions > (self._options.simulations or n_actions)


def best_place(returns: Array, *, has_favourite: bool) -> int:
    """Return the place of the best action; the first one if several are equal.

    Args:
        returns: [futures, actions] return of each action in each future.
        has_favourite: Whether the first action is to be taken unless another one is better for certain.

    Example:
        >>> returns = np.array([[1.0, 1.5, 9.0], [2.0, 2.5, 0.0], [3.0, 3.75, 0.5]])
        >>> best_place(returns, has_favourite=False), best_place(returns, has_favourite=True)
        (2, 1)
    """
    gains = returns - returns[:, :1]
    mean = gains.mean(0)
    if has_favourite and len(returns) > 1:
        error = gains.std(0, ddof=1) / np.sqrt(len(returns))
        mean = np.where(mean > N_ERRORS * error, mean, np.minimum(mean, 0.0))
    return int(mean.argmax())
