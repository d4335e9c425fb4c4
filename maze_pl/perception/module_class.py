"""Module classes by their path, as configurations name activations."""

from torch import nn

from maze_pl.core.class_path import import_class

ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""


def module_class(path: ModuleClass) -> type[nn.Module]:
    """The module class itself, or the one that a path such as "torch.nn.ReLU" names.

    Raises:
        ValueError: There is no such module class.
    """
    return import_class(path, nn.Module)
