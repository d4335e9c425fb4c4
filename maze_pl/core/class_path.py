"""Import of classes and functions by their dotted paths, as configurations name them."""

import importlib
from typing import Any, TypeVar

Base = TypeVar("Base")


def import_object(path: str) -> Any:
    """Import the class or function at a dotted path, which may be in a class: `my_envs.Mazes.small`.

    Raises:
        ImportError: There is no such module or attribute.
    """
    holder_path, _, name = path.rpartition(".")
    if not holder_path:
        raise ImportError(f"{path!r} is not a dotted path such as package.module.Name")
    try:
        return getattr(_holder(holder_path), name)
    except AttributeError as error:
        raise ImportError(_nothing_named(name, holder_path)) from error


def _nothing_named(name: str, holder: str) -> str:
    """Return the message about a name that a module or class does not have, with the remedy."""
    fault = f"{holder} has nothing named {name}"
    if holder == "__main__":
        fault += ": define it in the running script or notebook, or put it into a file"
    return fault


def _holder(path: str) -> Any:
    """Return the module or class at a dotted path.

    Raises:
        ImportError: There is neither.
    """
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        module, _, name = path.rpartition(".")
        is_of_path = f"{path}.".startswith(f"{error.name}.")  # and not a module that it imports
        if not module or not is_of_path:
            raise
        holder = _holder(module)
        found = getattr(holder, name, None)
        if isinstance(found, type):
            return found
        if found is None and not hasattr(holder, "__path__"):  # of packages, it may be a module
            raise ImportError(_nothing_named(name, module)) from error
        raise


def import_class(path: type[Base] | str, base: type[Base], where: str = "") -> type[Base]:
    """Return a class, given directly or by its dotted path, if it is a subclass of `base`.

    Args:
        path: The class or its path.
        base: Required base class.
        where: Prefix of messages, such as the name of the option.

    Raises:
        ValueError: The class cannot be imported, or is not a subclass of `base`.
    """
    try:
        found: Any = import_object(path) if isinstance(path, str) else path
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}cannot import {path!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{where}{path!r} is not a subclass of {base.__name__}")
    return found


def definer_of(kind: type, name: str) -> type:
    """Return the class from which a class has an attribute."""
    return next(part for part in kind.__mro__ if name in vars(part))


def is_defined_with(kind: type, name: str, other: str) -> bool:
    """True if a class has an attribute from the class that defines another one, or from a subclass of it.

    If not, the other one was overridden later, and the attribute may not apply to it.
    """
    return issubclass(definer_of(kind, name), definer_of(kind, other))
