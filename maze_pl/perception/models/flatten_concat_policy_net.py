"""Policy network of dense layers."""

from torch import nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Normalization
from maze_pl.perception.models.built_in import FlattenConcatNet, Shapes


class FlattenConcatPolicyNet(FlattenConcatNet):
    """Dense policy network: observations flattened and concatenated, hidden layers, linear outputs.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_logits_shapes: Action head -> shape of its logits.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
        normalization: Normalisation before each activation, "batch" or "layer"; None for none.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        non_lin: ModuleClass = nn.Tanh,
        hidden_units: Layers = (256, 256),
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__(obs_shapes, action_logits_shapes, non_lin, hidden_units, std=0.01, normalization=normalization)
