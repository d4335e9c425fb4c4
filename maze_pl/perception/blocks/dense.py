"""Shared parts of dense blocks."""

from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor, nn

from maze_pl.core.class_path import import_class
from maze_pl.perception.blocks.layer_options import Layers, ModuleClass
from maze_pl.perception.blocks.perception_block import PerceptionBlock


def dense_layers(widths: Layers, non_lin: ModuleClass) -> nn.Sequential:
    """Make dense layers between consecutive widths, each followed by an activation."""
    activation = import_class(non_lin, nn.Module, "non_lin: ")
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers)


class NetBlock(PerceptionBlock):
    """A module `net` applied to the last dimension of a single tensor."""

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the output [..., width]."""
        net, x = self._modules["net"], block_input[self.in_keys[0]]  # attribute access is slower
        if not x.is_floating_point():  # such as integers and flags in observations
            x = x.to(next(self.parameters()).dtype)
        return {self.out_keys[0]: net(x)}  # type: ignore[misc]
