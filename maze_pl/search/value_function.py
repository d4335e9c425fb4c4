"""Values of the states that simulations have reached."""

from collections.abc import Sequence

import numpy as np
import torch

from maze_pl.agents.torch_state_critic import StateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.playing_on import DiscountedReturn, play_on
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.simulation import Simulation


class ValueFunction:
    """Expected discounted return from the states that simulations have reached.

    It is the critic's value or, without a critic, the return of an episode that the policy plays to
    its end. A shared critic of several sub-steps only knows states between environment steps: from
    within one, the policy's most likely actions complete the step.

    Args:
        calls: The policy.
        critic: The critic; None for episodes.
        gamma: Discount of an environment step.
        n_sub_steps: Number of sub-steps of the environment.
        horizon: Acts after which a simulation ends.
    """

    def __init__(
        self, calls: PolicyCalls, critic: StateCritic | None, gamma: float, n_sub_steps: int, horizon: int
    ) -> None:
        self._calls = calls
        self._critic = critic
        self._gamma = gamma
        self._horizon = horizon
        self._needs_whole_steps = critic is not None and critic.kind == "shared" and n_sub_steps > 1

    def __call__(self, decision: Decision, simulations: Sequence[Simulation]) -> list[float]:
        """Return the value of each simulation's state; simulations may be played on for that.

        A terminated episode has the value 0; a truncated one is worth the critic's value, as
        in training.
        """
        returns = [DiscountedReturn(self._gamma) for _ in simulations]

        def receive(place: int, _: PlannedAct) -> None:
            returns[place].add_last_act(simulations[place])

        has_critic = self._critic is not None
        is_deterministic = [has_critic] * len(simulations)
        play_on(
            decision,
            simulations,
            self._calls,
            is_deterministic,
            self._is_far_enough,
            receive,
            keeps_time=not has_critic,  # a critic may not know the states in between
        )
        found = [one.total for one in returns]
        if self._critic is None:
            return found
        places = [place for place, one in enumerate(simulations) if not one.is_terminated]
        values = _critic_values(self._critic, [simulations[place] for place in places])
        for place, value in zip(places, values, strict=True):
            found[place] += returns[place].discount * value
        return found

    def _is_far_enough(self, simulation: Simulation) -> bool:
        """Return whether the value of a simulation's state can be computed."""
        if self._critic is None:
            return simulation.n_acts >= self._horizon
        return not self._needs_whole_steps or simulation.is_between_env_steps


@torch.inference_mode()
def _critic_values(critic: StateCritic, simulations: Sequence[Simulation]) -> list[float]:
    """Return the critic's value of each simulation's state."""
    values = [0.0] * len(simulations)
    groups: dict[StepKey, list[int]] = {}
    for place, simulation in enumerate(simulations):
        groups.setdefault(simulation.actor.step_key, []).append(place)
    for key, places in groups.items():
        names = simulations[places[0]].observation
        observation = {}
        for name in names:
            observation[name] = torch.from_numpy(np.stack([simulations[place].observation[name] for place in places]))
        agents = torch.tensor([simulations[place].actor.agent_id for place in places])
        for place, value in zip(places, critic.value(key, observation, agents).tolist(), strict=True):
            values[place] = value
    return values
