"""State critic with one network for all sub-steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.agents.network_io import (
    NetworkInput,
    evaluate_recurrent,
    state_shapes,
)
from maze_pl.agents.numpy_inference import NumpyNetwork
from maze_pl.agents.torch_state_critic import (
    CriticOutput,
    StateCritic,
    auxiliary_of,
    complete_observation,
    shared_observation_space,
    value_of,
)
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec


class TorchSharedStateCritic(StateCritic):
    """One network for all sub-steps.

    With one sub-step, its inputs are that sub-step's observations. With several, they are the
    observations of all sub-steps, with zeros for entries that do not belong to the current
    sub-step, and the one-hot observation "step_key", which names the current sub-step.

    Args:
        networks: A list or dict with the one network, which returns `{"value": [..., 1]}`.
        spec: Sub-steps with their observation and action spaces.

    Raises:
        ValueError: There is not exactly one network, it is recurrent although there are several
            sub-steps, or observations of the same name differ between sub-steps.
    """

    kind = "shared"

    def __init__(self, networks: Sequence[nn.Module] | Mapping[Any, nn.Module], spec: Spec) -> None:
        super().__init__()
        if len(networks) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(networks)}")
        self.network = next(iter(networks.values() if isinstance(networks, Mapping) else networks))
        self._plain = NumpyNetwork(self.network)
        self._index = {key: index for index, key in enumerate(spec.step_keys)}
        self._spaces = shared_observation_space(spec).spaces
        self._state_shapes = state_shapes(self.network)
        self._inputs = NetworkInput(self.network, {*self._spaces, *self._state_shapes})
        if self._state_shapes:
            self.recurrent = {spec.step_keys[0]: self.network}
            if len(spec.steps) > 1:
                raise ValueError(
                    "a critic of several sub-steps cannot be recurrent, but its network has the "
                    f"state {list(self._state_shapes)}: use a step critic"
                )
        self.register_buffer("_one_hot", torch.eye(len(self._index)), persistent=False)

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The network."""
        return [self.network]

    def value(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> Tensor:
        """[B] values; see `StateCritic.value`."""
        return self.output(step_key, observation, agent_id).value

    def output(
        self,
        step_key: StepKey,
        observation: Mapping[str, Tensor],
        agent_id: Tensor | None = None,
    ) -> CriticOutput:
        """Return the outputs of the network; arguments as for `value`."""
        outputs = self._evaluate(step_key, observation)
        return CriticOutput(value_of(outputs), auxiliary_of(outputs, self.network))

    def next_state(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `StateCritic.next_state`."""
        outputs = self._evaluate(step_key, observation)
        return {name: outputs[name] for name in self._state_shapes}

    def _evaluate(self, step_key: StepKey, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if len(self._index) > 1:
            one_hot = self.get_buffer("_one_hot")[self._index[step_key]]
            observation = complete_observation(observation, self._spaces, one_hot)
        inputs = self._inputs(observation)
        if self._state_shapes:
            return evaluate_recurrent(self.network, inputs, self._state_shapes)
        by_numpy = self._plain.outputs(inputs)
        outputs: dict[str, Tensor] = self.network(inputs) if by_numpy is None else by_numpy
        return outputs
