"""Networks that come with the package."""

from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatPolicyNet as FlattenConcatPolicyNet
from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatStateValueNet as FlattenConcatStateValueNet
from maze_pl.perception.models.built_in.item_set import ItemSetPolicyNet as ItemSetPolicyNet
from maze_pl.perception.models.built_in.item_set import ItemSetStateValueNet as ItemSetStateValueNet
from maze_pl.perception.models.built_in.rectangle_cutting import CutPolicyNet as CutPolicyNet
from maze_pl.perception.models.built_in.rectangle_cutting import PieceChoicePolicyNet as PieceChoicePolicyNet
