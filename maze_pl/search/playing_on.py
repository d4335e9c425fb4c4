"""Simulations that a policy plays on, to their ends or to the next environment step."""

from collections.abc import Callable, Sequence
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


def play_on(
    decision: Decision,
    simulations: Sequence[Simulation],
    calls: PolicyCalls,
    is_deterministic: Sequence[bool],
    is_finished: Callable[[Simulation], bool],
    receive: Callable[[int, PlannedAct], object] | None = None,
) -> None:
    """Let a policy act in simulations until each is over or finished.

    Args:
        decision: Source of randomness.
        simulations: The simulations.
        calls: The policy.
        is_deterministic: Whether it takes its most likely action, for each simulation.
        is_finished: Whether a simulation has gone far enough.
        receive: Called with the number of a simulation and the act that it has just performed.
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
