"""Networks that come with the package."""

from maze_pl.perception.models.built_in.flatten_concat import FlattenConcatPolicyNet, FlattenConcatStateValueNet

__all__ = ["FlattenConcatPolicyNet", "FlattenConcatStateValueNet"]
