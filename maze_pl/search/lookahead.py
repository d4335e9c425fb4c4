"""Search that tries each action and lets a rule play on."""

from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.playing_on import play_on
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions


class Lookahead(SearchMethod):
    """Tries each action, lets a rule play on, and takes the action with the largest mean return.

    The rollout algorithm of Bertsekas and Castanon 1999, "Rollout algorithms for stochastic
    scheduling problems". Where the future is random, it is the same in the n-th simulation of
    each action.

    Args:
        calls: The policy, which chooses the actions that are tried.
        rule: The policy that plays on. It takes its most likely actions.
        options: Budget and horizon. Without a budget, each action is tried once.
    """

    def __init__(self, calls: PolicyCalls, rule: PolicyCalls, options: SearchOptions) -> None:
        self._calls = calls
        self._rule = rule
        self._options = options

    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the best act; the policy's most likely one if several are equal."""
        root = decision.started(0, 0)
        (candidates,) = self._calls.candidates([root])
        actor, observation = root.actor, root.observation
        totals = [0.0] * len(candidates)
        n_rounds = 0
        while True:
            simulations = [decision.started(place, n_rounds) for place in range(len(candidates))]
            for simulation, (action, _) in zip(simulations, candidates, strict=True):
                simulation.step(action)
            play_on(
                decision,
                simulations,
                self._rule,
                [True] * len(simulations),
                lambda one: one.n_acts >= self._options.horizon,
            )
            totals = [total + one.total for total, one in zip(totals, simulations, strict=True)]
            n_rounds += 1
            if self._is_complete(decision, n_rounds, len(candidates)):
                break
        best = max(range(len(candidates)), key=lambda place: totals[place])
        return [PlannedAct(actor, observation, candidates[best][0])]

    def _is_complete(self, decision: Decision, n_rounds: int, n_actions: int) -> bool:
        """Return whether the budget does not allow another round of simulations."""
        if self._options.milliseconds is not None:
            return decision.is_out_of_time
        return (n_rounds + 1) * n_actions > (self._options.simulations or n_actions)
