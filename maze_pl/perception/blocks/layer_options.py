"""Types of options of layers."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

Layers = Sequence[int]
"""One number per layer."""


Sizes = Sequence[int | Sequence[int]]
"""For each layer, one number or a list with one number per dimension, such as height and width."""


ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""


Activations = ModuleClass | Sequence[ModuleClass]
"""One activation for all layers, or a list with one for each layer."""


Normalization = Literal["batch", "layer"]
"""Normalisation between a layer and its activation: over the elements of a batch, or over the
features of each element."""
