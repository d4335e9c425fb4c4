"""State-action critic with one pair of networks for all sub-steps."""

from maze_pl.agents.critic_inputs import CriticInputs, checked_inputs, inputs_by_step
from maze_pl.agents.torch_state_action_critic import TorchStateActionCritic
from maze_pl.agents.torch_state_critic import shared_observation_space, union_space
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec


class TorchSharedStateActionCritic(TorchStateActionCritic):
    """One pair of networks for all sub-steps; see `TorchStateActionCritic` for the arguments.

    With several sub-steps, its inputs are the observations and continuous heads of all of them,
    with zeros for entries that do not belong to the current sub-step, and the one-hot observation
    "step_key", which names the current sub-step. Its outputs are the outputs of all sub-steps,
    named `<step key>/<output>`.
    """

    @classmethod
    def critic_inputs(cls, spec: Spec) -> dict[StepKey, CriticInputs]:
        """Inputs and outputs, by the key "all"; see `TorchStateActionCritic.critic_inputs`."""
        by_step = inputs_by_step(spec)
        if len(by_step) == 1:
            return {"all": next(iter(by_step.values()))}
        action_spaces = {key: inputs.action_space for key, inputs in by_step.items()}
        heads = union_space(action_spaces, "action head")
        q_shapes = {}
        for key, inputs in by_step.items():
            for name, shape in inputs.q_shapes.items():
                q_shapes[f"{key}/{name}"] = shape
        shared = CriticInputs(shared_observation_space(spec), heads, q_shapes)
        return {"all": checked_inputs(shared, "some sub-steps")}
