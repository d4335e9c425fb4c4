"""Networks that come with the package."""

from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatPolicyNet, FlattenConcatStateValueNet
from maze_pl.perception.models.built_in.item_set import ItemSetPolicyNet, ItemSetStateValueNet
from maze_pl.perception.models.built_in.rectangle_cutting import CutPolicyNet, PieceChoicePolicyNet

__all__ = [
    "CutPolicyNet",
    "FlattenConcatPolicyNet",
    "FlattenConcatStateValueNet",
    "ItemSetPolicyNet",
    "ItemSetStateValueNet",
    "PieceChoicePolicyNet",
]
