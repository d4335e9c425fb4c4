"""Custom networks for cutting rectangles of many sizes: the value of a choice follows from the remaining rectangles.

Each size of rectangle has a learned value, whatever its orientation. The value of a cut is the sum of the values of the
remaining rectangles, and the score of a piece follows from the values of the ways to cut it, minus its own value. There
are few parameters, and they generalise to pieces that hardly ever occur in training.

    maze-pl fit --config examples/cutting_2d_mixed/configs/ppo_cutting_2d_mixed.yaml
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from maze_pl.perception import FlattenConcatPolicyNet
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.models.built_in import Shapes, count_kinds


class _RectangleNet(nn.Module):
    """Shared part: values w of all rectangles with sides below `levels`, and the gains of all ways to cut.

        q(way) = w(first rest) + w(second rest) - w(piece),   w = 0 for rectangles without area

    The value of a rectangle may also depend on the number of equal ones in stock, up to `n_copies` - 1.
    """

    def __init__(self, levels: int, hidden_units: int, n_copies: int) -> None:
        super().__init__()
        sides = torch.cartesian_prod(torch.arange(levels), torch.arange(levels))
        features = one_hot(sides.sort(-1).values, levels).flatten(1) * (sides.prod(-1, keepdim=True) > 0)
        self.levels, self.n_copies = levels, n_copies
        self.features = nn.Buffer(features.float(), persistent=False)
        layers = nn.Linear(2 * levels, hidden_units, bias=False), nn.Linear(hidden_units, n_copies, bias=False)
        self.worth = nn.Sequential(layers[0], nn.ReLU(), layers[1]).apply(make_module_init_normc(1.0))

    def gain(self, piece: Tensor, order: Tensor, counts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Gains of all ways to cut.

        Args:
            piece: [n, 2]
            order: [n, 2]
            counts: [n, levels**2] pieces of each kind in stock; None counts none.

        Returns:
            [n, 2, 2] by rotation and cutting order, and [n, 2] which rotations fit.
        """
        piece, order = piece.long(), order.long()
        order = torch.stack([order, order.flip(-1)], 1)  # [n, 2, 2] by rotation
        whole = piece.unsqueeze(1).expand_as(order)
        (width, height), (w, h) = whole.unbind(-1), order.unbind(-1)
        x, y = (whole - order).clamp(min=0).unbind(-1)  # what is left of each side
        rests = torch.stack([x, height, w, y, width, y, x, h], -1)  # [n, rotation, cutting order * which rest * side]
        sides = torch.cat([torch.unflatten(rests.flatten(1), -1, (8, 2)), piece.unsqueeze(1)], 1).sort(-1).values
        kind = sides[..., 0] * self.levels + sides[..., 1]  # [n, 9]
        copies = torch.zeros_like(kind) if counts is None else counts.long().gather(-1, kind)
        copies[:, -1] -= 1  # the piece is not its own copy
        place = copies.clamp(0, self.n_copies - 1).long().unsqueeze(-1)
        worth = self.worth(self.features)[kind].gather(-1, place).squeeze(-1)
        total = torch.unflatten(worth[:, :-1], -1, (2, 2, 2)).sum(-1) - worth[:, -1, None, None]
        return total, (whole >= order).all(-1)


class PieceChoicePolicyNet(_RectangleNet):
    """Chooses the piece to be cut; pieces that the order does not fit into get the most negative finite logit.

        logit(piece) = log sum_way exp(q(way))

    It looks at the observations `inventory` [n, 2], zeros where there is no piece, and `ordered_piece` [2].

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_logits_shapes: The one action head, which has as many options as there are places in stock.
        levels: All sides are whole numbers below this.
        hidden_units: Width of the hidden layer of values.
        n_copies: Number of values of each size: the first one is used if no equal rectangle is in stock, the next one
            if there is one, and so on.
    """

    def __init__(
        self, obs_shapes: Shapes, action_logits_shapes: Shapes, levels: int, hidden_units: int = 64, n_copies: int = 1
    ) -> None:
        super().__init__(levels, hidden_units, n_copies)
        (self.head,) = action_logits_shapes

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Logits [..., n] from observations [..., *shape]."""
        items, order = in_dict["inventory"].flatten(0, -3), in_dict["ordered_piece"].flatten(0, -2)
        suitable = (items.sort(-1).values >= order.sort(-1).values.unsqueeze(1)).all(-1)
        row, place = suitable.nonzero(as_tuple=True)
        gain, fits = self.gain(items[row, place], order[row], count_kinds(items, self.levels, any_order=True)[row])
        lowest = torch.finfo(gain.dtype).min
        score = gain.masked_fill(~fits.unsqueeze(-1), lowest).flatten(1).logsumexp(-1)
        logits = score.new_full(suitable.shape, lowest).index_put((row, place), score)
        return {self.head: logits.view(in_dict["inventory"].shape[:-1])}


class CutPolicyNet(_RectangleNet):
    """Chooses how a piece is cut, by the values of the remaining rectangles plus a correction by dense layers.

        logit(rotation) = log sum_order exp(q(rotation, order)) + f_1,   logit(order) = sum_rotation p * q + f_2

    with the probabilities p of the rotations, so that both heads agree on the way to cut. It looks at the observations
    `selected_piece` [2] and `ordered_piece` [2].

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_logits_shapes: The heads for rotation and cutting order, in this order, with two options each.
        levels: All sides are whole numbers below this.
        hidden_units: Width of the hidden layers.
    """

    def __init__(self, obs_shapes: Shapes, action_logits_shapes: Shapes, levels: int, hidden_units: int = 64) -> None:
        super().__init__(levels, hidden_units, n_copies=1)
        self.rotation, self.cut_order = action_logits_shapes
        self.rest = FlattenConcatPolicyNet({"sides": (4 * levels,)}, action_logits_shapes, nn.ReLU, [hidden_units])

    def forward(self, in_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Logits [..., 2] of both heads from observations [..., *shape]."""
        shape = in_dict["ordered_piece"].shape
        piece, order = (in_dict[name].reshape(-1, 2) for name in ("selected_piece", "ordered_piece"))
        gain, fits = self.gain(piece, order)
        sides = one_hot(torch.cat([piece, order], -1).long(), self.levels).flatten(1).to(gain.dtype)
        rest, gain = self.rest({"sides": sides}), gain * fits.unsqueeze(-1)
        rotation = (gain.logsumexp(-1) + rest[self.rotation]).masked_fill(~fits, torch.finfo(gain.dtype).min)
        cut_order = (rotation.softmax(-1).unsqueeze(-1) * gain).sum(1) + rest[self.cut_order]
        return {self.rotation: rotation.view(shape), self.cut_order: cut_order.view(shape)}
