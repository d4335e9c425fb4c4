"""Shared parts of dense blocks."""

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass, Normalization
from maze_pl.perception.blocks.normalization import normalization_layers
from maze_pl.perception.blocks.perception_block import PerceptionBlock


def dense_layers(
    widths: Layers,
    non_lin: ModuleClass | list[type[nn.Module]],
    normalization: Normalization | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Make dense layers between consecutive widths, each followed by an activation.

    Each layer consists of a linear map, normalisation, activation and dropout, in this order. With
    batch normalisation, which would subtract it again, the linear map has no bias.

    Args:
        widths: Width of the input, then of each layer.
        non_lin: Activation, or one for each layer.
        normalization: "batch", "layer", or None.
        dropout: Probability of setting an output of a layer to 0 in training mode.
    """
    if isinstance(non_lin, list):
        activations = non_lin
    else:
        activations = [import_class(non_lin, nn.Module, "non_lin: ")] * (len(widths) - 1)
    layers: list[nn.Module] = []
    for (n_in, n_out), activation in zip(pairwise(widths), activations, strict=True):
        layers.append(nn.Linear(n_in, n_out, bias=normalization != "batch"))
        layers += normalization_layers(normalization, n_out)
        layers.append(activation())
        if dropout > 0.0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class NetBlock(PerceptionBlock):
    """A module `net` applied to the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # attribute access is slower
        if not x.is_floating_point():  # such as integers and flags in observations
            x = self.as_floats(x)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]
