"""State critic that adds up the changes of the value over the sub-steps."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maze_pl.agents.torch_state_critic import CriticOutput, StepwiseStateCritic, name_in_row
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec


class TorchDeltaStateCritic(StepwiseStateCritic):
    """Value network of the first sub-step, and networks for the value's change in each later one.

        V_0 = f_0(o_0),   V_k = stop_gradient(V_{k-1}) + f_k(o_k)

    A later network, which often observes only a small part of the state, thus only estimates how
    the preceding acts changed the value.

    Args:
        networks: One network per sub-step, by key or in the spec's order; each returns
            `{"value": [..., 1]}`.
        spec: Sub-steps with their observation and action spaces. Each sub-step acts exactly once
            per row, in this order.

    Raises:
        ValueError: There is not exactly one network per sub-step, a network is recurrent, or a
            sub-step has several agents.
    """

    kind = "delta"

    def __init__(
        self,
        networks: Sequence[nn.Module] | Mapping[StepKey, nn.Module],
        spec: Spec,
    ) -> None:
        super().__init__(networks, spec)
        self._names = {key: tuple(step.observation_space.spaces) for key, step in spec.steps.items()}
        several = {key: step.n_agents for key, step in spec.steps.items() if step.n_agents != 1}
        if several:
            raise ValueError(
                f"a delta critic needs one agent in each sub-step, not {several}, "
                "where -1 is a number that changes: use a step or a shared critic"
            )
        if self.recurrent:
            networks_of = f"networks {list(self.recurrent)}"
            raise ValueError(f"a delta critic cannot be recurrent, as its {networks_of} are: use a step critic")

    def output(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> CriticOutput:
        """Return values and the auxiliary outputs of the sub-step's network.

        Args:
            step_key: The sub-step.
            observation: Observations of the sub-step and, named by `name_in_row`, of the row's
                earlier sub-steps.
            agent_id: Ignored.
        """
        current = {name: observation[name] for name in self._names[step_key]}
        output = super().output(step_key, current)
        value = output.value
        for key in itertools.takewhile(lambda key: key != step_key, self._names):
            earlier = {name: observation[name_in_row(key, name)] for name in self._names[key]}
            with torch.no_grad():
                earlier_value = super().output(key, earlier).value
            value = value + earlier_value
        return CriticOutput(value, output.auxiliary)
