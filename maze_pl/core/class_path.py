"""From a dotted path, as configurations name classes and functions, to what it names."""

import importlib
from typing import Any


def import_object(path: str) -> Any:
    """The class or function at a dotted path.

    Raises:
        ImportError: There is no such module or attribute.
    """
    module_path, _, name = path.rpartition(".")
    if not module_path:
        raise ImportError(f"{path!r} is not a dotted path such as package.module.Name")
    try:
        return getattr(importlib.import_module(module_path), name)
    except AttributeError as error:
        raise ImportError(f"{module_path} has nothing named {name}") from error
