"""An agent's policy and critic as one module, to be trained, moved and saved as a whole."""

from typing import Any, NoReturn

from torch import nn

from maze_pl.agents.network_io import StateShapes, state_shapes
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_critic import Critic
from maze_pl.core.actor_id import StepKey


class TorchActorCritic(nn.Module):
    """A policy and, for algorithms that need one, a critic.

    Recurrent modules that a network of the critic shares with the policy's only network of the same
    sub-step have the policy state. All others have a separate state, which algorithms carry along
    the acts of each actor while they learn; acting does not need it.

    Args:
        policy: The policy.
        critic: Estimates values of states or of actions in states; may be None.

    Attributes:
        critic_state_shapes: Sub-step -> shapes of the state that only the critic has, for sub-steps
            whose critic has one.
    """

    def __init__(self, policy: TorchPolicy, critic: Critic | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.critic_state_shapes: dict[StepKey, StateShapes] = {}
        if critic is None:
            return
        for key, network in critic.recurrent.items():
            policy_networks = list(policy.networks[policy.spec.step_keys.index(key)].children())
            shapes = _own_state_shapes(network, policy_networks)
            if shapes:
                self.critic_state_shapes[key] = shapes

    def compile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse `torch.compile` of the whole, which is never called: only its networks are.

        Raises:
            NotImplementedError: Always, with the alternatives.
        """
        each = "compile each network of the policy, as in networks.policy.networks[0][0].compile()"
        captured = "updates by a compiled network are not captured, so that small ones get slower"
        raise NotImplementedError(f"policy and critic are not called as one module: {each}; {captured}")


def _own_state_shapes(network: nn.Module, policy_networks: list[nn.Module]) -> StateShapes:
    """Return the shapes of a critic's state that is not the policy state.

    Args:
        network: The critic's network of a sub-step.
        policy_networks: The policy's networks of the same sub-step.
    """
    shapes = state_shapes(network)
    if len(policy_networks) != 1:
        return shapes
    of_policy = {id(parameter) for parameter in policy_networks[0].parameters()}
    policy_state = state_shapes(policy_networks[0])
    for module in network.modules():
        parts = state_shapes(module)
        is_innermost = not any(state_shapes(child) for child in module.children())
        if not parts or not is_innermost:
            continue
        is_shared = of_policy.issuperset(id(parameter) for parameter in module.parameters())
        if is_shared and parts.items() <= policy_state.items():
            shapes = {name: shape for name, shape in shapes.items() if name not in parts}
    return shapes
