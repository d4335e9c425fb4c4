"""Action wrappers as functions of tensors, for batches of actions and for traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.bundle.observation_stages import constant, torch_type
from maze_pl.envs import wrappers as ours
from maze_pl.envs.wrapper import Wrapper

Tensors = dict[str, Tensor]


def within_bounds(action: Mapping[str, Tensor], space: spaces.Dict) -> Tensors:
    """Actions of a policy as an environment takes them: boxes clipped to their bounds.

    Args:
        action: Head -> [B, *shape].
        space: The heads.
    """
    clipped: Tensors = {}
    for head, part in space.spaces.items():
        value = action[head]
        if isinstance(part, spaces.Box):
            value = value.to(torch_type(part.dtype))
            value = value.maximum(constant(part.low)).minimum(constant(part.high))
        clipped[head] = value
    return clipped


def applied(wrapper: Wrapper, action: Tensors) -> Tensors:
    """Return the actions that a wrapper passes on.

    Args:
        wrapper: A wrapper that `wrapper_roles` includes.
        action: Head -> [B, ...].
    """
    if type(wrapper) is ours.DiscretizeActionsWrapper:
        return _values_of_bins(wrapper, action)
    if type(wrapper) is ours.SplitActionsWrapper:
        return _joined(wrapper, action)
    return action


def marked(wrapper: Wrapper, marks: Tensors) -> Tensors:
    """Return which entries of the actions that a wrapper passes on are made from marked entries of its actions.

    Args:
        wrapper: A wrapper that `wrapper_roles` includes.
        marks: Head -> [B, ...] bool for each entry of an action.
    """
    if type(wrapper) is ours.DiscretizeActionsWrapper:
        changed = dict(marks)
        for head in wrapper.bins.keys() & marks.keys():
            changed[head] = marks[head].reshape(-1, *wrapper.bins[head][1])
        return changed
    return applied(wrapper, marks)


def split_heads(wrapper: Wrapper, of_heads: Mapping[str, str]) -> dict[str, str]:
    """Give the heads that a wrapper splits a head into the entry of that head.

    Args:
        wrapper: A wrapper that `wrapper_roles` includes.
        of_heads: Head of the actions that the wrapper passes on -> entry.

    Returns:
        Head of the actions that the wrapper takes -> entry.
    """
    split = dict(of_heads)
    if type(wrapper) is ours.SplitActionsWrapper:
        for head in wrapper.indices.keys() & of_heads.keys():
            entry = split.pop(head)
            split |= dict.fromkeys(wrapper.indices[head], entry)
    return split


def _values_of_bins(wrapper: ours.DiscretizeActionsWrapper, action: Tensors) -> Tensors:
    changed = dict(action)
    for head in wrapper.bins.keys() & action.keys():
        table, shape = wrapper.bins[head]  # [entries, bins]
        choices = action[head].reshape(-1, len(table))
        changed[head] = constant(table)[torch.arange(len(table)), choices].reshape(-1, *shape)
    return changed


def _joined(wrapper: ours.SplitActionsWrapper, action: Tensors) -> Tensors:
    changed = dict(action)
    for head, parts in wrapper.indices.items():
        if parts.keys() <= action.keys():  # otherwise the head is another sub-step's
            columns = torch.cat([changed.pop(name) for name in parts], dim=-1)
            order: Any = np.argsort(np.concatenate([np.asarray(indices) for indices in parts.values()]))
            changed[head] = columns[:, torch.from_numpy(order)]
    return changed
