"""Policy network that chooses one item of a set."""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from maze_pl.perception.blocks.layer_options import Layers
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.models.built_in import ItemSetNet, Shapes, check_widths


class ItemSetPolicyNet(ItemSetNet):
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
        check_widths(hidden_units, least=1)
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
        may_be_chosen = in_dict[self.mask_key].reshape(items.shape[:2]) != 0
        row, place = may_be_chosen.nonzero(as_tuple=True)
        inputs = torch.cat([self._numbers(items[row, place]), context[row]], -1)
        latent = self.layers[0](inputs).relu()
        n_of_row = may_be_chosen.sum(-1, keepdim=True).clamp(min=1)
        for layer, of_mean in zip(self.layers[1:], self.means, strict=True):
            total = latent.new_zeros(items.shape[0], latent.shape[1]).index_add(0, row, latent)
            mean = total / n_of_row
            latent = (layer(latent) + of_mean(mean)[row]).relu()
        logits = latent.new_full(may_be_chosen.shape, torch.finfo(latent.dtype).min)
        logits = logits.index_put((row, place), self.score(latent).squeeze(-1))
        return {self.head: logits.view(in_dict[self.items_key].shape[:-1])}
