"""Q-network of dense layers."""

from torch import nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Normalization
from maze_pl.perception.models.built_in import FlattenConcatNet, Shapes


class FlattenConcatStateActionValueNet(FlattenConcatNet):
    """Dense Q-network: observations and continuous heads flattened and concatenated, hidden layers.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        action_shapes: Continuous head of the action -> shape.
        q_shapes: Output -> shape.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
        normalization: Normalisation before each activation, "batch" or "layer"; None for none.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        action_shapes: Shapes,
        q_shapes: Shapes,
        non_lin: ModuleClass = nn.Tanh,
        hidden_units: Layers = (256, 256),
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__(
            {**obs_shapes, **action_shapes}, q_shapes, non_lin, hidden_units, std=1.0, normalization=normalization
        )
