"""Simulations that a policy plays on, to their ends or to the next environment step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.simulation import Simulation


@dataclass
class DiscountedReturn:
    """Return of a simulation, act by act.

    Attributes:
        gamma: Discount of an environment step.
        total: Sum of the discounted rewards.
        discount: Discount of what follows.
    """

    gamma: float
    total: float = 0.0
    discount: float = 1.0

    def add_last_act(self, simulation: Simulation) -> None:
        """Add the reward of the last act of a simulation."""
        self.total += self.discount * simulation.reward
        self.discount *= self.gamma**simulation.env_steps


def started_in_time(decision: Decision, futures: Iterable[int]) -> list[Simulation]:
    """Return simulations that start in the present state: at least one, and as many as the time allows.

    Args:
        decision: The decision.
        futures: Number of the future of each simulation.
    """
    simulations: list[Simulation] = []
    for place, future in enumerate(futures):
        if simulations and decision.is_out_of_time:
            break
        simulations.append(decision.started(place, future))
    return simulations


def play_on(
    decision: Decision,
    simulations: Sequence[Simulation],
    calls: PolicyCalls,
    is_deterministic: Sequence[bool],
    is_finished: Callable[[Simulation], bool],
    receive: Callable[[int, PlannedAct], object] | None = None,
    *,
    keeps_time: bool = True,
) -> None:
    """Let a policy act in simulations until each is over or finished, or the time for the decision is over.

    At least one act is performed in each.

    Args:
        decision: Source of randomness.
        simulations: The simulations.
        calls: The policy.
        is_deterministic: Whether it takes its most likely action, for each simulation.
        is_finished: Whether a simulation has gone far enough.
        receive: Called with the number of a simulation and the act that it has just performed.
        keeps_time: Whether to stop when the time is over; simulations are then not finished.
    """
    while True:
        places = [place for place, one in enumerate(simulations) if not (one.is_over or is_finished(one))]
        if not places:
            return
        playing = [simulations[place] for place in places]
        actions = calls.act(playing, decision.generator, [is_deterministic[place] for place in places])
        for place, simulation, action in zip(places, playing, actions, strict=True):
            act = PlannedAct(simulation.actor, simulation.observation, action)
            simulation.step(action)
            if receive is not None:
                receive(place, act)
        if keeps_time and decision.is_out_of_time:
            return
