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
            sub-step, because only policies carry a state.

    Raises:
        ValueError: The critic carries its own state.
    """

    def __init__(self, policy: TorchPolicy, critic: Critic | None = None) -> None:
        super().__init__()
        self.policy, self.critic = policy, critic
        for key, network in ({} if critic is None else critic.recurrent).items():
            nets = list(policy.networks[policy.spec.step_keys.index(key)].children())
            known, shapes = {id(parameter) for parameter in nets[0].parameters()}, state_shapes(network)
            carrying = [module for module in network.modules() if getattr(module, "state_shapes", None)]
            shared = all(known & {id(parameter) for parameter in module.parameters()} for module in carrying)
            if len(nets) > 1 or not shared or not shapes.items() <= state_shapes(nets[0]).items():
                raise ValueError(
                    f"the critic of sub-step {key!r} carries a state of its own, {list(shapes)}, but only policies do: "
                    "have its network share the part that remembers with the policy's network of that sub-step, which "
                    "all agents must share then, or remember nothing"
                )
