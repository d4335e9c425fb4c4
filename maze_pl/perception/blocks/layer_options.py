"""Types of options of layers."""

from collections.abc import Sequence

from torch import nn

Layers = Sequence[int]
"""One number per layer."""


Sizes = Sequence[int | Sequence[int]]
"""For each layer, one number or a pair for height and width."""


ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""
