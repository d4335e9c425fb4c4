"""Module classes by their path, as configurations name activations."""

from __future__ import annotations

from torch import nn

from maze_pl.core.class_path import import_object

ModuleClass = type[nn.Module] | str
"""A module class or its path, such as "torch.nn.ReLU"."""


def module_class(path: ModuleClass) -> type[nn.Module]:
    """The module class itself, or the one that a path such as "torch.nn.ReLU" names.

    Raises:
        ValueError: There is no such module class.
    """
    try:
        found = import_object(path) if isinstance(path, str) else path
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot import the module class {path!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ValueError(f"{path!r} is not a subclass of torch.nn.Module; an example is torch.nn.Tanh")
    return found
