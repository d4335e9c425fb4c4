"""Search that keeps the most likely sequences of actions."""

import math
from dataclasses import dataclass

from maze_pl.agents.best_actions import Action
from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import SearchOptions
from maze_pl.search.simulation import Simulation


@dataclass(frozen=True)
class _Sequence:
    """A sequence of actions, as far as it has been tried.

    Attributes:
        simulation: The simulation that has performed it.
        log_prob: Its log-probability.
        total: Its sum of rewards.
        acts: The acts.
    """

    simulation: Simulation
    log_prob: float
    total: float
    acts: list[PlannedAct]

    def continued(self, simulation: Simulation, log_prob: float, action: Action) -> "_Sequence":
        """Perform another action.

        Args:
            simulation: A simulation in the state at the end of the sequence.
            log_prob: Log-probability of the longer sequence.
            action: The action.
        """
        act = PlannedAct(simulation.actor, simulation.observation, action)
        simulation.step(action)
        return _Sequence(simulation, log_prob, simulation.total, [*self.acts, act])


class Beam(SearchMethod):
    """Keeps the most likely sequences of actions, and follows the one with the largest sum of rewards.

    Each sequence is continued by each of its most likely next actions. Of all these, those
    with the largest joint probability are kept, as many as the width of the beam. Sequences that
    have reached the end of the episode are set aside. Where the future is random, it is the same for all.

    Kool et al. 2019, arXiv:1803.08475, compare it with sampling.

    Args:
        calls: The policy.
        options: Width of the beam and horizon.
    """

    def __init__(self, calls: PolicyCalls, options: SearchOptions) -> None:
        self._calls = calls
        self._width = options.simulations or 1
        self._horizon = options.horizon

    def plan(self, decision: Decision) -> list[PlannedAct]:
        """Return the acts of the best sequence; the most likely one if several are equal."""
        free = [decision.simulation(place) for place in range(1, self._width)]
        beam = [_Sequence(decision.started(0, 0), 0.0, 0.0, [])]
        finished: list[_Sequence] = []
        while beam and len(beam[0].acts) < self._horizon:
            continued = self._continued(beam, free)
            beam = [one for one in continued if not one.simulation.is_over]
            over = [one for one in continued if one.simulation.is_over]
            free += [one.simulation for one in over]
            finished += over
        finished += beam
        return max(finished, key=lambda one: (one.total, one.log_prob)).acts

    def _continued(self, beam: list[_Sequence], free: list[Simulation]) -> list[_Sequence]:
        """Return the most likely continuations by one act.

        Args:
            beam: Sequences of the same length.
            free: Simulations that are not in use; changed in place.
        """
        continuations: list[tuple[float, int, Action]] = []
        candidates = self._calls.candidates([one.simulation for one in beam])
        for place, actions in enumerate(candidates):
            for action, probability in actions:
                continuations.append((beam[place].log_prob + math.log(probability), place, action))
        continuations.sort(key=lambda one: (-one[0], one[1]))
        chosen: list[list[tuple[float, Action]]] = [[] for _ in beam]
        for log_prob, place, action in continuations[: self._width]:
            chosen[place].append((log_prob, action))
        free += [one.simulation for one, kept in zip(beam, chosen, strict=True) if not kept]
        continued: list[_Sequence] = []
        for sequence, kept in zip(beam, chosen, strict=True):
            for log_prob, action in kept[1:]:
                copy = free.pop()
                copy.become(sequence.simulation)
                continued.append(sequence.continued(copy, log_prob, action))
            if kept:  # last, since it changes the simulation
                log_prob, action = kept[0]
                continued.append(sequence.continued(sequence.simulation, log_prob, action))
        return continued
