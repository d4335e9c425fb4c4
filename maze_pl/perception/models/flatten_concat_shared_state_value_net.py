"""Value network on the policy network's hidden layers."""

from torch import nn

from maze_pl.perception.models.built_in import FlattenConcatNet, Shapes
from maze_pl.perception.models.flatten_concat_policy_net import FlattenConcatPolicyNet


class FlattenConcatSharedStateValueNet(FlattenConcatNet):
    """Output "value" [..., 1] from the policy network's hidden layers, which learn from both losses.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        policy_network: The policy's network for these observations, a `FlattenConcatPolicyNet`.

    Raises:
        TypeError: `policy_network` is another network.

    Example:
        >>> import torch
        >>> policy = FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, hidden_units=[8])
        >>> critic = FlattenConcatSharedStateValueNet({"observation": (4,)}, policy)
        >>> critic.body is policy.body, critic({"observation": torch.zeros(5, 4)})["value"].shape
        (True, torch.Size([5, 1]))
    """

    def __init__(self, obs_shapes: Shapes, policy_network: nn.Module) -> None:
        if not isinstance(policy_network, FlattenConcatPolicyNet):
            found = f"policy_network is a {type(policy_network).__name__}"
            raise TypeError(f"{found}, expected a FlattenConcatPolicyNet")
        units = [layer.out_features for layer in policy_network.body if isinstance(layer, nn.Linear)]
        super().__init__(obs_shapes, {"value": (1,)}, nn.Identity, units, std=1.0)
        self.body = policy_network.body
