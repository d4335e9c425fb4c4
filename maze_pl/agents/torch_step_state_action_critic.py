"""State-action critic with one pair of networks per sub-step."""

from maze_pl.agents.critic_inputs import CriticInputs, inputs_by_step
from maze_pl.agents.torch_state_action_critic import TorchStateActionCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec


class TorchStepStateActionCritic(TorchStateActionCritic):
    """A pair of networks for each sub-step, shared by its agents.

    See `TorchStateActionCritic` for the arguments.
    """

    @classmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, CriticInputs]:
        """Inputs and outputs by sub-step; see `TorchStateActionCritic.critic_inputs`."""
        return inputs_by_step(spec)
