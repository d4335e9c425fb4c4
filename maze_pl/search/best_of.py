"""Search that samples whole episodes and follows the best one."""

from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.playing_on import play_on, started_in_time
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions
from maze_pl.search.simulation import Simulation

_AT_ONCE = 32
"""Number of simulations that are played at the same time."""


class BestOf(SearchMethod):
    """Samples episodes from the policy and follows the one with the largest sum of rewards.

    The first episode consists of the policy's most likely actions. In a deterministic environment the best
    episode is followed to its end and, with a number of episodes, the result is never worse than these actions.

    If time is limited, this episode is played first, alone, and as far as the time allows, so that the rest of it may
    be missing; of the others, only those count that are finished in time.

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
        n_more = 0
        left_before = 0.0
        budget = self._options.simulations  # None if only time is limited
        while budget is None or n_played < budget:
            n_more = self._n_at_once(decision, n_played, n_more, left_before)
            left_before = decision.seconds_left
            for total, acts in self._episodes(decision, n_played, n_more):
                if total > best_total:
                    best_total = total
                    best = acts
            n_played += n_more
            if decision.is_out_of_time:
                break
        return best

    def _n_at_once(self, decision: Decision, n_played: int, n_before: int, left_before: float) -> int:
        """Return how many episodes to play next.

        If time is limited, it is one at first, then as many as there is time for.

        Args:
            decision: The decision.
            n_played: Number of episodes so far.
            n_before: Number of episodes that were played at once before.
            left_before: Seconds that were left for the decision before these.
        """
        if self._options.simulations is not None:
            return min(_AT_ONCE, self._options.simulations - n_played)
        if not n_before:
            return 1
        left = decision.seconds_left
        seconds = (left_before - left) / n_before
        return max(1, min(_AT_ONCE, 2 * n_before, int(left / seconds)))

    def _episodes(self, decision: Decision, first: int, n: int) -> list[tuple[float, list[PlannedAct]]]:
        """Play n episodes; return the sum of rewards and the acts of each.

        Those that are not finished in time are left out, but for the very first.
        """
        simulations = started_in_time(decision, range(first, first + n))
        n = len(simulations)
        episodes: list[list[PlannedAct]] = [[] for _ in simulations]
        play_on(
            decision,
            simulations,
            self._calls,
            [first + place == 0 for place in range(n)],
            self._is_far_enough,
            lambda place, act: episodes[place].append(act),
        )
        found = []
        for place, (one, acts) in enumerate(zip(simulations, episodes, strict=True)):
            if one.is_over or self._is_far_enough(one) or first + place == 0:
                found.append((one.total, acts))
        return found

    def _is_far_enough(self, simulation: Simulation) -> bool:
        """Return whether a simulation has reached the horizon."""
        return simulation.n_acts >= self._options.horizon
