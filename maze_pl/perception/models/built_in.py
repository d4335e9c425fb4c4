"""Shared parts of the networks that come with the package.

- FlattenConcat: for observations that need no special treatment: flatten, concatenate, dense
  layers, linear outputs. Discrete observations enter as numbers; use a wrapper to turn them into
  one-hot vectors.
- ItemSet: for observations that contain a set of items, one of which is to be chosen. All items go
  through the same layers, so that nothing depends on their order or number. Items that may not be
  chosen are not computed.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maze_pl.agents.network_io import LATENT
from maze_pl.perception.blocks.dense import dense_layers
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Normalization
from maze_pl.perception.blocks.perception_block import is_list, is_whole
from maze_pl.perception.blocks.weight_init import make_module_init_normc

Shapes = Mapping[str, Sequence[int]]


def check_widths(hidden_units: Layers, least: int = 0) -> None:
    """Refuse anything but a list of at least `least` layer widths.

    Raises:
        ValueError: `hidden_units` is something else, such as a single number.
    """
    good = is_list(hidden_units) and len(hidden_units) >= least
    if not good or not all(is_whole(width, 1) for width in hidden_units):
        expected = "a list of whole numbers above 0, such as [64, 64]"
        raise ValueError(f"hidden_units={hidden_units!r}: expected {expected}")


class FlattenConcatNet(nn.Module):
    """Shared part: hidden layers and one linear output for each name in `out_shapes`.

    Attributes:
        input_ranks: Observation -> number of its dimensions, of all that are joined to one vector.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        non_lin: ModuleClass,
        hidden_units: Layers,
        std: float,
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__()
        check_widths(hidden_units)
        if normalization not in (None, "batch", "layer"):
            raise ValueError(f"{normalization=}: expected 'batch', 'layer' or None")
        self.input_ranks = {name: len(shape) for name, shape in obs_shapes.items()}
        # the only observation, if it is a vector and needs no flattening
        self._only = next(iter(obs_shapes)) if list(self.input_ranks.values()) == [1] else None
        widths = [sum(math.prod(shape) for shape in obs_shapes.values()), *hidden_units]
        self.body = dense_layers(widths, non_lin, normalization)
        self.heads = nn.ModuleList(nn.Linear(widths[-1], math.prod(shape)) for shape in out_shapes.values())
        self._names = tuple(out_shapes)
        self._n_features = widths[-1]
        self._returns_latent = False
        self.body.apply(make_module_init_normc(1.0))
        self.heads.apply(make_module_init_normc(std))

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Map observations [..., *shape] to outputs [..., size] by name."""
        latent = self.body(self._flatten(in_dict))
        outputs = {name: head(latent) for name, head in zip(self._names, self.heads, strict=True)}
        if self._returns_latent:
            outputs[LATENT] = latent
        return outputs

    def return_latent(self) -> int:
        """Have `forward` also return the output of the last hidden layer, "latent" [..., L]; return L."""
        if LATENT in self._names:
            raise ValueError(f"a head has the name {LATENT!r} of the features of the network: rename the head")
        self._returns_latent = True
        return self._n_features

    def _flatten(self, in_dict: Mapping[str, Tensor]) -> Tensor:
        if self._only is not None and in_dict[self._only].is_floating_point():
            return in_dict[self._only]
        dtype = next(self.parameters()).dtype
        vectors: list[Tensor] = []
        for name, rank in self.input_ranks.items():
            value = in_dict[name].to(dtype)
            # [..., *shape] -> [..., size]
            vectors.append(value.flatten(-rank) if rank else value.unsqueeze(-1))
        return torch.cat(vectors, dim=-1)


class ItemSetNet(nn.Module):
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
