"""An agent's policy and critic as one module, to be trained, moved and saved as a whole."""

from torch import nn

from maze_pl.agents.network_io import state_shapes
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_critic import Critic


class TorchActorCritic(nn.Module):
    """A policy and, for algorithms that need one, a critic.

    Args:
        policy: The policy.
        critic: Estimates values of states or of actions in states; may be None. A recurrent network
            of the critic must share its recurrent modules with the policy's network of the same
            sub-step, because only policies have a policy state.

    Raises:
        ValueError: The critic has a recurrent state of its own.
    """

    def __init__(self, policy: TorchPolicy, critic: Critic | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        if critic is None:
            return
        for key, network in critic.recurrent.items():
            policy_networks = list(policy.networks[policy.spec.step_keys.index(key)].children())
            if len(policy_networks) > 1 or not _shares_policy_state(network, policy_networks[0]):
                raise ValueError(
                    f"the critic of sub-step {key!r} has a state of its own, "
                    f"{list(state_shapes(network))}, but only policies may have one: let its network "
                    "share the recurrent part with the policy's network of that sub-step, which "
                    "must be one network for all agents, or use a critic that is not recurrent"
                )


def _shares_policy_state(network: nn.Module, policy_network: nn.Module) -> bool:
    """Return whether all recurrent modules of a critic's network belong to the policy's network."""
    policy_parameters = {id(parameter) for parameter in policy_network.parameters()}
    for module in network.modules():
        if not getattr(module, "state_shapes", None):
            continue
        if policy_parameters.isdisjoint(id(parameter) for parameter in module.parameters()):
            return False
    return state_shapes(network).items() <= state_shapes(policy_network).items()
