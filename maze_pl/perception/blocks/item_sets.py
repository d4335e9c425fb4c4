"""Shared parts of blocks for sets of items: inputs by role, encoding, and sums over each set.

All items pass through the same layers, so that nothing depends on their order or number. A network
that was trained with n slots for items works with any other number of slots.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.levels import one_hot_levels
from maze_pl.perception.blocks.perception_block import Keys, Shapes, as_keys, as_shapes, is_list
from maze_pl.perception.blocks.shape_normalization_block import ShapeNormalizationBlock
from maze_pl.perception.blocks.weight_init import make_module_init_normc


class ItemSets(ABC):
    """A batch of B sets, and sums over the items of each.

    Tensors with an entry per item are [*items, ...], where `items` is either [B, N], all slots, or
    [M], the M slots in use of all sets together.

    Args:
        mask: [B, N] True where a slot is in use.
    """

    def __init__(self, mask: Tensor) -> None:
        self._mask = mask

    @abstractmethod
    def select(self, slots: Tensor) -> Tensor:
        """Return the entries of the items: [B, N, ...] to [*items, ...]."""

    @abstractmethod
    def spread(self, values: Tensor) -> Tensor:
        """Give each item the entry of its set: [B, d] to [*items, d], or a shape that broadcasts."""

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """Add the entries of each set's items: [*items, d] to [B, d]; 0 without items."""

    @abstractmethod
    def max(self, values: Tensor) -> Tensor:
        """Return the maximum of each set's items: [*items, d] to [B, d]; 0 without items."""

    @abstractmethod
    def place(self, values: Tensor, other: float) -> Tensor:
        """Put one number per item in its slot, and `other` in empty slots: [*items] to [B, N]."""

    @abstractmethod
    def in_slots(self, values: Tensor) -> Tensor:
        """Put the entries of items in their slots: [*items, d] to [B, N, d]; 0 in empty slots."""

    def in_use(self) -> Tensor:
        """Return which slots hold items, [B, N]."""
        return self._mask

    def count(self) -> Tensor:
        """Return the number of items of each set, [B, 1], or 1 for an empty set."""
        return self._mask.sum(-1, keepdim=True).clamp(min=1)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean over each set's items: [*items, d] to [B, d]; 0 without items."""
        return self.sum(values) / self.count()

    @abstractmethod
    def softmax(self, scores: Tensor) -> Tensor:
        """Return weights that add up to 1 in each set: [*items, d] to [*items, d]."""


class ItemsInUse(ItemSets):
    """Sets of which only the slots in use are computed; shapes depend on the values of the mask.

    Args:
        mask: [B, N] True where a slot is in use.
    """

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask)
        self._row, self._slot = mask.nonzero(as_tuple=True)

    def select(self, slots: Tensor) -> Tensor:
        """See `ItemSets.select`."""
        return slots[self._row, self._slot]

    def spread(self, values: Tensor) -> Tensor:
        """See `ItemSets.spread`."""
        return values[self._row]

    def sum(self, values: Tensor) -> Tensor:
        """See `ItemSets.sum`."""
        zeros = values.new_zeros(self._mask.shape[0], values.shape[1])
        return zeros.index_add(0, self._row, values)

    def max(self, values: Tensor) -> Tensor:
        """See `ItemSets.max`."""
        highest = self._filled(values, -torch.inf).amax(1)
        return torch.where(self._mask.any(-1, keepdim=True), highest, 0.0)

    def softmax(self, scores: Tensor) -> Tensor:
        """See `ItemSets.softmax`."""
        lowest = torch.finfo(scores.dtype).min
        return self.select(self._filled(scores, lowest).softmax(1))

    def _filled(self, values: Tensor, other: float) -> Tensor:
        """Put the entries of items in their slots: [M, d] to [B, N, d]; `other` in empty slots."""
        slots = values.new_full((*self._mask.shape, values.shape[1]), other)
        return slots.index_put((self._row, self._slot), values)

    def place(self, values: Tensor, other: float) -> Tensor:
        """See `ItemSets.place`."""
        return values.new_full(self._mask.shape, other).index_put((self._row, self._slot), values)

    def in_slots(self, values: Tensor) -> Tensor:
        """See `ItemSets.in_slots`."""
        return self._filled(values, 0.0)


class AllSlots(ItemSets):
    """Sets of which all slots are computed, in use or not; shapes do not depend on values."""

    def select(self, slots: Tensor) -> Tensor:
        """See `ItemSets.select`; unused slots become zeros, whatever they hold."""
        mask = self._mask[(..., *[None] * (slots.dim() - 2))]
        return torch.where(mask, slots, torch.zeros((), dtype=slots.dtype, device=slots.device))

    def spread(self, values: Tensor) -> Tensor:
        """See `ItemSets.spread`."""
        return values.unsqueeze(1)

    def sum(self, values: Tensor) -> Tensor:
        """See `ItemSets.sum`."""
        return torch.where(self._mask.unsqueeze(-1), values, 0.0).sum(1)

    def max(self, values: Tensor) -> Tensor:
        """See `ItemSets.max`."""
        highest = torch.where(self._mask.unsqueeze(-1), values, -torch.inf).amax(1)
        return torch.where(self._mask.any(-1, keepdim=True), highest, 0.0)

    def place(self, values: Tensor, other: float) -> Tensor:
        """See `ItemSets.place`."""
        return torch.where(self._mask, values, other)

    def in_slots(self, values: Tensor) -> Tensor:
        """See `ItemSets.in_slots`."""
        return torch.where(self._mask.unsqueeze(-1), values, 0.0)

    def softmax(self, scores: Tensor) -> Tensor:
        """See `ItemSets.softmax`; unused slots get 0."""
        lowest = torch.finfo(scores.dtype).min
        weights = torch.where(self._mask.unsqueeze(-1), scores, lowest).softmax(1)
        return torch.where(self._mask.unsqueeze(-1), weights, 0.0)


@dataclass(frozen=True)
class Encoded:
    """Encoded inputs of a batch of sets.

    Attributes:
        sets: The items of each set.
        embeddings: [*items, d] embedding of each item.
        context: [B, C] everything that is not about single items.
        chosen: [B, K] encoded items that were chosen before, part of the context; None if there
            are no such inputs.
    """

    sets: ItemSets
    embeddings: Tensor
    context: Tensor
    chosen: Tensor | None


class ItemSetBlock(ShapeNormalizationBlock, ABC):
    """Embeds each item of a set, given the others and the context.

        h_{1, i}     = f(A_1 x_i + C c + b_1)
        h_{l + 1, i} = f(A_l h_{l, i} + B_l mean_j h_{l, j} + b_l)

    x_i are the numbers of item i and c is the context. Zaheer et al. 2017, arXiv:1703.06114.

    Options are described in the subclasses.
    """

    takes_numbers = True

    @classmethod
    def further_keys(cls, options: Mapping[str, Any]) -> list[str]:
        """See `PerceptionBlock.further_keys`."""
        keys = [options.get("mask_key")]
        for option in ("chosen_keys", "compare_keys"):
            names = options.get(option)
            if is_list(names):
                keys += names  # type: ignore[arg-type]
        return [key for key in keys if isinstance(key, str)]

    @classmethod
    def optional_keys(cls, options: Mapping[str, Any]) -> list[str]:
        """See `PerceptionBlock.optional_keys`; nothing is chosen before the first sub-step."""
        chosen = options.get("chosen_keys")
        return [key for key in cls.further_keys(options) if is_list(chosen) and key in chosen]  # type: ignore[operator]

    @classmethod
    def options_without(cls, options: Mapping[str, Any], missing: Sequence[str]) -> Mapping[str, Any]:
        """See `PerceptionBlock.options_without`."""
        if not missing:
            return options
        return {**options, "chosen_keys": [key for key in options["chosen_keys"] if key not in missing]}

    def __init__(
        self,
        in_keys: Keys,
        out_keys: Keys,
        in_shapes: Shapes,
        out_num_dims: int,
        mask_key: str | None,
        chosen_keys: Sequence[str],
        compare_keys: Sequence[str],
        hidden_units: Layers,
        non_lin: ModuleClass,
        levels: int | None,
        any_order: bool,
        skip_zeros: bool,
        skip_masked: bool,
    ) -> None:
        name = type(self).__name__
        keys = as_keys(in_keys, f"{name}: in_keys")
        shapes = as_shapes(in_shapes, f"{name}: in_shapes")
        n_leading = max(len(shapes[0]) - 2, 0)
        num_dims = [max(len(shape) - n_leading, 0) + 1 for shape in shapes]
        super().__init__(in_keys, out_keys, in_shapes, num_dims[: len(keys)], out_num_dims)
        self.require(len(self.out_keys) == 1, "one output")
        self.require_flags(any_order=any_order, skip_zeros=skip_zeros, skip_masked=skip_masked)
        self.require_lists(hidden_units=hidden_units)
        if levels is not None:
            self.require_numbers(2, levels=levels)
        self._require_names("mask_key", [] if mask_key is None else [mask_key])
        self._require_names("chosen_keys", chosen_keys)
        self._require_names("compare_keys", compare_keys)
        self.mask_key = mask_key
        self.chosen_keys = list(chosen_keys)
        self.compare_keys = list(compare_keys)
        self.levels = levels
        self.any_order = any_order
        self.skip_zeros = skip_zeros
        self.skip_masked = skip_masked
        self.items_key = self.in_keys[0]
        roles = [self.items_key, *self.chosen_keys, *self.compare_keys]
        if mask_key is not None:
            roles.append(mask_key)
        self.require(len(set(roles)) == len(roles), "each key to have one role")
        self.context_keys = [key for key in self.in_keys if key not in roles]
        self._own_shapes = {key: shape[n_leading:] for key, shape in zip(self.in_keys, self.in_shapes, strict=True)}
        self._check_shapes()
        self._make_layers(list(hidden_units), self.module_class(non_lin=non_lin))

    def _require_names(self, option: str, names: Sequence[str]) -> None:
        """Refuse anything but a list of names of inputs other than the items."""
        others = self.in_keys[1:]
        good = is_list(names) and all(isinstance(name, str) and name in others for name in names)
        self.require(good, f"{option} to name some of the further inputs {others}, not {names!r}")

    def _check_shapes(self) -> None:
        """Refuse inputs whose shapes do not fit their roles."""
        items = self._own_shapes[self.items_key]
        self.require(len(items) == 2, "first the items, (N, F)")
        if self.mask_key is not None:
            mask = self._own_shapes[self.mask_key]
            self.require(mask == items[:1], f"the mask {self.mask_key!r} of shape {items[:1]}")
        for key in self.chosen_keys:
            fits = len(self._own_shapes[key]) <= 1
            self.require(fits, f"{key!r} to be an index () or several (k,)")
        for key in self.compare_keys:
            fits = len(self._own_shapes[key]) == 1 and self.levels is not None
            self.require(fits, f"{key!r} to be a vector, and levels, in order to compare with it")

    def _make_layers(self, widths: list[int], activation: type[nn.Module]) -> None:
        n_numbers = self._own_shapes[self.items_key][1]
        n_others = 0
        item_width = n_numbers
        context_width = 0
        for key in self.compare_keys:
            n_others += self._own_shapes[key][0]
        for key in self.context_keys:
            context_width += math.prod(self._own_shapes[key])
        if self.levels is not None:
            n_differences = n_numbers * n_others * (2 * self.levels - 1)
            item_width = n_numbers * self.levels + n_differences
            context_width += n_others * self.levels
        for key in self.chosen_keys:
            n_chosen = math.prod(self._own_shapes[key])
            context_width += n_chosen * (self._numbers_width(n_numbers) + 1)
        self.context_width = context_width
        self.embedding_width = widths[-1]
        self.activation = activation()
        self.first = nn.Linear(item_width, widths[0])
        self.of_context = nn.Linear(context_width, widths[0], bias=False) if context_width else None
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.means = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairwise(widths))
        hidden = make_module_init_normc(2.0**0.5)
        self.first.apply(hidden)
        self.layers.apply(hidden)
        self.means.apply(make_module_init_normc(0.1))
        if self.of_context is not None:
            self.of_context.apply(make_module_init_normc(1.0))

    def _numbers_width(self, n_numbers: int) -> int:
        return n_numbers if self.levels is None else n_numbers * self.levels

    def encode(self, block_input: dict[str, Tensor]) -> Encoded:
        """Embed the items, given inputs [B, *shape]."""
        dtype = self.first.weight.dtype
        slots = block_input[self.items_key]
        sets = self._sets(slots, block_input)
        items = self._sorted(sets.select(slots).to(dtype))
        context = [block_input[key].flatten(1).to(dtype) for key in self.context_keys]
        chosen = [self._chosen(slots, key, block_input[key], dtype) for key in self.chosen_keys]
        context += chosen
        numbers = [self._numbers(items)]
        if self.levels is not None:
            for key in self.compare_keys:
                other = self._sorted(block_input[key].to(dtype))
                context.append(self._numbers(other))
                differences = items.unsqueeze(-1) - sets.spread(other).unsqueeze(-2)
                highest = self.levels - 1
                numbers.append(one_hot_levels(differences.flatten(-2), -highest, highest, dtype))
        joined = torch.cat(context, -1) if context else items.new_zeros(slots.shape[0], 0)
        embeddings = self.first(torch.cat(numbers, -1) if len(numbers) > 1 else numbers[0])
        if self.of_context is not None:
            embeddings = embeddings + sets.spread(self.of_context(joined))
        embeddings = self.activation(embeddings)
        for layer, of_mean in zip(self.layers, self.means, strict=True):
            common = sets.spread(of_mean(sets.mean(embeddings)))
            embeddings = self.activation(layer(embeddings) + common)
        return Encoded(sets, embeddings, joined, torch.cat(chosen, -1) if chosen else None)

    def _sets(self, slots: Tensor, block_input: dict[str, Tensor]) -> ItemSets:
        """Return the items in use; all slots are in use unless a mask or zeros rule some out.

        Compiled and exported programs compute all slots: ONNX Runtime computes some operations
        wrongly if all sets are empty. So do accelerators: finding the slots in use waits for them,
        and their graphs have fixed shapes.
        """
        mask: Tensor | None = None
        if self.mask_key is not None:
            mask = block_input[self.mask_key] != 0
        if self.skip_zeros:
            is_item = (slots != 0).any(-1)
            mask = is_item if mask is None else mask & is_item
        if mask is None:
            return AllSlots(torch.ones_like(slots[..., 0], dtype=torch.bool))
        is_eager_on_host = slots.device.type == "cpu" and not torch.compiler.is_compiling()
        return ItemsInUse(mask) if self.skip_masked and is_eager_on_host else AllSlots(mask)

    def _sorted(self, x: Tensor) -> Tensor:
        return x.sort(-1).values if self.any_order else x

    def _numbers(self, x: Tensor) -> Tensor:
        """Encode the numbers of items [..., F]."""
        return x if self.levels is None else one_hot_levels(x, 0, self.levels - 1, x.dtype)

    def _chosen(self, slots: Tensor, key: str, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Gather items by their indices [B] or [B, k]: [B, k * (width + 1)], zeros for no item."""
        places = index.reshape(slots.shape[0], math.prod(self._own_shapes[key])).long()
        exists = (places >= 0) & (places < slots.shape[1])
        places = places.clamp(0, slots.shape[1] - 1).unsqueeze(-1).expand(-1, -1, slots.shape[2])
        items = torch.where(exists.unsqueeze(-1), slots.gather(1, places).to(dtype), 0.0)
        numbers = self._numbers(self._sorted(items))
        flag = exists.unsqueeze(-1).to(dtype)
        return torch.cat([torch.where(exists.unsqueeze(-1), numbers, 0.0), flag], -1).flatten(1)
