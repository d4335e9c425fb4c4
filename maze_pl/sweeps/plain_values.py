"""Values of a sweep that come from Python, as YAML has them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from maze_pl.config.search_path import ConfigurationError, dump


def plain(value: Any, name: str = "") -> Any:
    """Return a value without numbers and arrays of NumPy and without tuples.

    Args:
        value: Content of a sweep file, or a part of it.
        name: Key of the part; its options follow after dots.

    Raises:
        ConfigurationError: A value cannot be written to a file; the message names its option.
    """
    if isinstance(value, Mapping):
        converted: dict[Any, Any] = {}
        for key, part in value.items():
            converted[plain(key, name)] = plain(part, f"{name}.{key}".lstrip("."))
        return converted
    if isinstance(value, list | tuple):
        return [plain(part, name) for part in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), name)
    try:
        dump(value)
    except yaml.representer.RepresenterError:
        expected = "numbers, texts, lists and mappings"
        raise ConfigurationError(f"{name} may consist of {expected}; got {value!r}") from None
    return value
