"""Value network of dense layers."""

from torch import nn

from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Normalization
from maze_pl.perception.models.built_in import FlattenConcatNet, Shapes


class FlattenConcatStateValueNet(FlattenConcatNet):
    """Dense value network with the output "value" [..., 1].

    Observations are flattened and concatenated; hidden layers and a linear output follow.

    Args:
        obs_shapes: Observation -> shape, without batch dimensions.
        non_lin: Activation after each hidden layer, a class or its path.
        hidden_units: Width of each hidden layer.
        normalization: Normalisation before each activation, "batch" or "layer"; None for none.
    """

    def __init__(
        self,
        obs_shapes: Shapes,
        non_lin: ModuleClass = nn.Tanh,
        hidden_units: Layers = (256, 256),
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__(obs_shapes, {"value": (1,)}, non_lin, hidden_units, std=1.0, normalization=normalization)
