"""Networks that come with the package.

- FlattenConcat: for observations that need no special treatment: flatten, concatenate, dense
  layers, linear outputs. Discrete observations enter as numbers; use a wrapper to turn them into
  one-hot vectors.
- ItemSet: for observations that contain a set of items, one of which is to be chosen. All items go
  through the same layers, so that nothing depends on their order or number. Items that may not be
  chosen are not computed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import is_list, is_whole
from maze_pl.perception.blocks.weight_init import make_module_init_normc

Shapes = Mapping[str, Sequence[int]]


def _check_widths(hidden_units: Layers, least: int = 0) -> None:
    """Refuse anything but a list of at least `least` layer widths.

    Raises:
        ValueError: `hidden_units` is something else, such as a single number.
    """
    good = is_list(hidden_units) and len(hidden_units) >= least
    if not good or not all(is_whole(width, 1) for width in hidden_units):
        expected = "a list of whole numbers above 0, such as [64, 64]"
        raise ValueError(f"hidden_units={hidden_units!r}: expected {expected}")


class _FlattenConcatNet(nn.Module):
    """Shared part: hidden layers and one linear output for each name in `out_shapes`."""

    def __init__(
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        non_lin: ModuleClass,
        hidden_units: Layers,
        std: float,
    ) -> None:
        super().__init__()
        _check_widths(hidden_units)
        self._ranks = {name: len(shape) for name, shape in obs_shapes.items()}
        self._only = next(iter(obs_shapes)) if list(self._ranks.values()) == [1] else None
        widths = [sum(math.prod(shape) for shape in obs_shapes.values()), *hidden_units]
        self.body = dense_layers(widths, non_lin)
        self.heads = nn.ModuleList(nn.Linear(widths[-1], math.prod(shape)) for shape in out_shapes.values())
        self._names = tuple(out_shapes)
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
        return torch.cat(
            [value.flatten(-rank) if rank else value.unsqueeze(-1) for value, rank in values],
            dim=-1,
        )


class FlattenConcatPolicyNet(_FlattenConcatNet):
    """Dense policy network: observations flattened and concatenated, hidden layers, linear outputs.

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
        super().__init__(obs_shapes, action_logits_shapes, non_lin, hidden_units, std=0.01)


class FlattenConcatStateValueNet(_FlattenConcatNet):
    """Dense value network with the output "value" [..., 1].

    Observations are flattened and concatenated; hidden layers and a linear output follow.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
    """

    def __init__(self, obs_shapes: Shapes, non_lin: ModuleClass = nn.Tanh, hidden_units: Layers = (256, 256)) -> None:
        super().__init__(obs_shapes, {"value": (1,)}, non_lin, hidden_units, std=1.0)


class FlattenConcatStateActionValueNet(_FlattenConcatNet):
    """Dense Q-network: observations and continuous heads flattened and concatenated, hidden layers.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_shapes: Continuous head of the action -> shape.
        q_shapes: Output -> shape.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        action_shapes: Shapes,
        q_shapes: Shapes,
        non_lin: ModuleClass = nn.Tanh,
        hidden_units: Layers = (256, 256),
    ) -> None:
        super().__init__({**obs_shapes, **action_shapes}, q_shapes, non_lin, hidden_units, std=1.0)


class FlattenConcatSharedStateValueNet(_FlattenConcatNet):
    """Output "value" [..., 1] from the policy network's hidden layers, which learn from both losses.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        policy_network: The policy's network for these observations, a `FlattenConcatPolicyNet`.

    Raises:
        TypeError: `policy_network` is another network.

    Example:
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


class _ItemSetNet(nn.Module):
    """Shared part: splits observations into items and context, which has no entry per item."""

    def __init__(self, obs_shapes: Shapes, items_key: str, levels: int) -> None:
        super().__init__()
        shape = tuple(obs_shapes.get(items_key, ()))
        if len(shape) != 2:
            known = f"there are {dict(obs_shapes)}"
            raise ValueError(f"{items_key=} must name an observation [n, size]; {known}")
        self.items_key = items_key
        self.item_size = shape[1]
        self.levels = levels
        others = {name: other for name, other in obs_shapes.items() if tuple(other[:1]) != shape[:1]}
        self._context = {name: math.prod(other) for name, other in others.items()}
        self.context_size = sum(self._context.values()) * levels

    def _split(self, in_dict: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return items [B, N, F], and the encoded context [B, context_size]."""
        dtype = next(self.parameters()).dtype
        items = in_dict[self.items_key].flatten(0, -3).to(dtype)
        n = items.shape[0]
        flat = [in_dict[name].reshape(n, size).to(dtype) for name, size in self._context.items()]
        context = torch.cat(flat, -1) if flat else items.new_zeros(n, 0)
        return items, self._numbers(context)

    def _numbers(self, x: Tensor) -> Tensor:
        """Encode whole numbers [n, F] as one-hot vectors [n, F * levels]."""
        levels = torch.arange(self.levels, dtype=x.dtype, device=x.device)
        return (x.clamp(max=self.levels - 1).unsqueeze(-1) == levels).flatten(-2).to(x.dtype)


class ItemSetPolicyNet(_ItemSetNet):
    """Chooses one item of a set: computes a score for each item, for any number and order of items.

        h_{l+1, i} = ReLU(A_l h_{l, i} + B_l mean_j h_{l, j} + b_l),   logit_i = w h_{L, i}

    h_0 is the item and the context. The mean, which the first layer does not use, is over the items
    that may be chosen. Zaheer et al. 2017, arXiv:1703.06114.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions. Observations without one entry
            per item are the context.
        action_logits_shapes: The only action head, with one option per item slot.
        items_key: Observation [n, size] with one item per slot.
        mask_key: Observation [n] that is 0 where the slot holds no item that may be chosen. Such
            slots are not computed and get the most negative finite logit.
        levels: Numbers are whole and below this; larger ones count as the largest. They are one-hot
            encoded, which helps if exact equality of numbers matters.
        hidden_units: Width of each hidden layer; at least one layer.

    Raises:
        ValueError: No observation [n, size] has that name.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        items_key: str,
        mask_key: str,
        levels: int,
        hidden_units: Layers = (64, 64),
    ) -> None:
        super().__init__(obs_shapes, items_key, levels)
        _check_widths(hidden_units, least=1)
        self.mask_key = mask_key
        (self.head,) = action_logits_shapes
        sizes = [self.item_size * levels + self.context_size, *hidden_units]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.means = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairwise(sizes[1:]))
        self.score = nn.Linear(sizes[-1], 1).apply(make_module_init_normc(0.01))
        self.layers.apply(make_module_init_normc(math.sqrt(2.0)))
        self.means.apply(make_module_init_normc(0.1))

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map observations [..., *shape] to logits [..., n]."""
        items, context = self._split(in_dict)
        counts = in_dict[self.mask_key].reshape(items.shape[:2]) != 0
        row, place = counts.nonzero(as_tuple=True)
        inputs = torch.cat([self._numbers(items[row, place]), context[row]], -1)
        latent = self.layers[0](inputs).relu()
        n_of_row = counts.sum(-1, keepdim=True).clamp(min=1)
        for layer, of_mean in zip(self.layers[1:], self.means, strict=True):
            total = latent.new_zeros(items.shape[0], latent.shape[1]).index_add(0, row, latent)
            mean = total / n_of_row
            latent = (layer(latent) + of_mean(mean)[row]).relu()
        logits = latent.new_full(counts.shape, torch.finfo(latent.dtype).min)
        logits = logits.index_put((row, place), self.score(latent).squeeze(-1))
        return {self.head: logits.view(in_dict[self.items_key].shape[:-1])}


class ItemSetStateValueNet(_ItemSetNet):
    """Dense value network whose inputs are the number of items of each kind, and the context.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions. Observations without one entry
            per item are the context.
        items_key: Observation [n, size] with one item per slot, all zeros in empty slots.
        levels: Numbers are whole and below this, so that there are levels**size kinds; larger
            numbers in the context count as the largest.
        any_order: Whether items with the same numbers in another order are of the same kind, such
            as rectangles that may be rotated.
        hidden_units: Width of each hidden layer.

    Raises:
        ValueError: No observation [n, size] has that name.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        items_key: str,
        levels: int,
        any_order: bool = False,
        hidden_units: Layers = (128, 64),
    ) -> None:
        super().__init__(obs_shapes, items_key, levels)
        _check_widths(hidden_units)
        self.any_order = any_order
        sizes = [levels**self.item_size + self.context_size, *hidden_units]
        self.layers = dense_layers(sizes, nn.ReLU).apply(make_module_init_normc(1.0))
        self.value = nn.Linear(sizes[-1], 1).apply(make_module_init_normc(0.1))

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map observations [..., *shape] to the output "value" [..., 1]."""
        items, context = self._split(in_dict)
        counts = count_kinds(items, self.levels, self.any_order).to(items.dtype)
        value = self.value(self.layers(torch.cat([counts / 3, context], -1)))
        return {"value": value.view(*in_dict[self.items_key].shape[:-2], 1)}


def count_kinds(items: Tensor, levels: int, any_order: bool = False) -> Tensor:
    """Count the items [B, N, F] of each kind, except items that are all zeros: [B, levels**F].

    An item's kind is the number whose digits are the item's numbers, sorted in ascending order if
    `any_order`.
    """
    digits = items.long().sort(-1).values if any_order else items.long()
    n_digits = items.shape[-1]
    kind = (digits * levels ** torch.arange(n_digits - 1, -1, -1, device=items.device)).sum(-1)
    counts = torch.zeros(items.shape[0], levels**n_digits, device=items.device)
    counts = counts.scatter_add(-1, kind, torch.ones_like(kind, dtype=counts.dtype))
    counts[:, 0] = 0
    return counts
