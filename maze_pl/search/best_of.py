"""Search that samples whole episodes and follows the best one."""

from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.playing_on import play_on
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions

_AT_ONCE = 32
"""Number of simulations that are played at the same time."""


class BestOf(SearchMethod):
    """Samples episodes from the policy and follows the one with the largest sum of rewards.

    The first episode consists of the policy's most likely actions. In a deterministic environment the
    result is therefore never worse than these, and the best episode is followed to its end.

    Kool et al. 2019, arXiv:1803.08475, section 5 (sampling).

    Args:
        calls: The policy.
        options: Budget and horizon.
    """

    def __init__(self, calls: PolicyCalls, options: SearchOptions) -> None:
        self._calls = calls
        self._options = options

    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the acts of the best episode; the earliest one if several are equal."""
        best: list[PlannedAct] = []
        best_total = float("-inf")
        n_played = 0
        budget = self._options.simulations  # None if only time is limited
        while budget is None or n_played < budget:
            n_more = _AT_ONCE if budget is None else min(_AT_ONCE, budget - n_played)
            for total, acts in self._episodes(decision, n_played, n_more):
                if total > best_total:
                    best_total = total
                    best = acts
            n_played += n_more
            if decision.is_out_of_time:
                break
        return best

    def _episodes(self, decision: Decision, first: int, n: int) -> list[tuple[float, list[PlannedAct]]]:
        """Play n episodes; return the sum of rewards and the acts of each."""
        simulations = [decision.started(place, first + place) for place in range(n)]
        episodes: list[list[PlannedAct]] = [[] for _ in simulations]
        play_on(
            decision,
            simulations,
            self._calls,
            [first + place == 0 for place in range(n)],
            lambda one: one.n_acts >= self._options.horizon,
            lambda place, act: episodes[place].append(act),
        )
        return [(one.total, acts) for one, acts in zip(simulations, episodes, strict=True)]
