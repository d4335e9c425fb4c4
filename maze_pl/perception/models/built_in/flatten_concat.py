"""Networks for observations that need no special treatment: flatten all, concatenate, dense layers, linear outputs.

Discrete observations enter as the number that they are; turning them into one-hot vectors is a wrapper's task.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import Layers, dense_layers
from maze_pl.perception.module_class import ModuleClass
from maze_pl.perception.weight_init import make_module_init_normc

Shapes = Mapping[str, Sequence[int]]


class _FlattenConcatNet(nn.Module):
    """Shared part: hidden layers and one linear output for each name in `out_sizes`."""

    def __init__(
        self, obs_shapes: Shapes, out_sizes: Mapping[str, int], non_lin: ModuleClass, hidden_units: Layers, std: float
    ) -> None:
        super().__init__()
        self._ranks = {name: len(shape) for name, shape in obs_shapes.items()}
        self._only = next(iter(obs_shapes)) if list(self._ranks.values()) == [1] else None
        widths = [sum(math.prod(shape) for shape in obs_shapes.values()), *hidden_units]
        self.body = dense_layers(widths, non_lin)
        self.heads = nn.ModuleList(nn.Linear(widths[-1], size) for size in out_sizes.values())
        self._names = tuple(out_sizes)
        self.body.apply(make_module_init_normc(1.0))
        self.heads.apply(make_module_init_normc(std))

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map observations [..., *shape] to outputs [..., size] by name."""
        latent = self.body(self._flatten(in_dict))
        return {name: head(latent) for name, head in zip(self._names, self.heads, strict=True)}

    def _flatten(self, in_dict: Mapping[str, Tensor]) -> Tensor:
        if self._only is not None and in_dict[self._only].is_floating_point():
            return in_dict[self._only]
        dtype = next(self.parameters()).dtype
        values = [(in_dict[name].to(dtype), rank) for name, rank in self._ranks.items()]
        # [..., *shape] -> [..., size]
        return torch.cat([value.flatten(-rank) if rank else value.unsqueeze(-1) for value, rank in values], dim=-1)


class FlattenConcatPolicyNet(_FlattenConcatNet):
    """Dense policy network: every observation flattened and concatenated, hidden layers, one linear output per head.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_logits_shapes: Action head -> shape of its logits.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        non_lin: ModuleClass = nn.Tanh,
        hidden_units: Layers = (256, 256),
    ) -> None:
        sizes = {head: math.prod(shape) for head, shape in action_logits_shapes.items()}
        super().__init__(obs_shapes, sizes, non_lin, hidden_units, std=0.01)


class FlattenConcatStateValueNet(_FlattenConcatNet):
    """Dense value network: every observation flattened and concatenated, hidden layers, the output "value" [..., 1].

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
    """

    def __init__(self, obs_shapes: Shapes, non_lin: ModuleClass = nn.Tanh, hidden_units: Layers = (256, 256)) -> None:
        super().__init__(obs_shapes, {"value": 1}, non_lin, hidden_units, std=1.0)


class FlattenConcatSharedStateValueNet(_FlattenConcatNet):
    """The output "value" [..., 1] from the hidden layers of the policy's own network, which learn from both losses.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        policy_network: The policy's network for these observations, a `FlattenConcatPolicyNet`.

    Raises:
        TypeError: It is another network.

    Example:
        >>> policy = FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, hidden_units=[8])
        >>> critic = FlattenConcatSharedStateValueNet({"observation": (4,)}, policy)
        >>> critic.body is policy.body, critic({"observation": torch.zeros(5, 4)})["value"].shape
        (True, torch.Size([5, 1]))
    """

    def __init__(self, obs_shapes: Shapes, policy_network: nn.Module) -> None:
        if not isinstance(policy_network, FlattenConcatPolicyNet):
            raise TypeError(f"policy_network is a {type(policy_network).__name__}, expected a FlattenConcatPolicyNet")
        units = [layer.out_features for layer in policy_network.body if isinstance(layer, nn.Linear)]
        super().__init__(obs_shapes, {"value": 1}, nn.Identity, units, std=1.0)
        self.body = policy_network.body
