"""Plain values of a configuration, in place of those that YAML cannot hold."""

from enum import Enum
from typing import Any

import torch
from jsonargparse import Namespace


def with_plain_values(node: Any) -> Any:
    """Replace enumerations and devices, used by Lightning's callbacks, by plain values."""
    if isinstance(node, Enum):
        return node.value
    if isinstance(node, torch.device):
        return str(node)
    if isinstance(node, list | tuple):
        return [with_plain_values(item) for item in node]
    if isinstance(node, dict):
        return {key: with_plain_values(item) for key, item in node.items()}
    if isinstance(node, Namespace):
        copy = node.clone()
        for key, value in list(vars(copy).items()):
            copy[key] = with_plain_values(value)
        return copy
    return node
