"""Warnings about agents that act in other bounds than those of their training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from maze_pl.agents import TorchPolicy
    from maze_pl.core.actor_id import StepKey
    from maze_pl.core.spec import Spec


def warn_of_policy_bounds(policy: TorchPolicy, spec: Spec) -> None:
    """Warn if actions of a policy fill other boxes than those of an environment.

    Args:
        policy: The policy.
        spec: Spaces of the environment, of the same names and shapes.
    """
    for key, step in policy.spec.steps.items():
        filled = {}
        for head, distribution in policy.distribution_classes(key).items():
            if distribution.uses_bounds:
                filled[head] = step.action_space[head]
        warn_of_other_bounds("the policy", key, filled, spec.steps[key].action_space)


def warn_of_other_bounds(
    agent: str, step_key: StepKey, filled: Mapping[str, spaces.Space[Any]], here: spaces.Dict
) -> None:
    """Warn if actions fill other boxes than those of an environment, once for each head.

    Args:
        agent: Name of the agent in the message.
        step_key: The sub-step.
        filled: Head -> space whose bounds determine the agent's actions.
        here: Action space of the environment.
    """
    for head, box in filled.items():
        own = here.spaces.get(head)
        are_boxes = isinstance(box, spaces.Box) and isinstance(own, spaces.Box)
        if not are_boxes or _are_same(box, own):
            continue
        fact = f"{agent} acts in {box}, the bounds of its training, and the environment has {own}"
        effect = "actions are not scaled to these bounds, only clipped"
        place = f"action head {head!r} of sub-step {step_key!r}"
        warnings.warn(f"{place}: {fact}; {effect}", UserWarning, stacklevel=4)


def _are_same(one: Any, other: Any) -> bool:
    """True for equal bounds, except for rounding to another type of floats."""
    pairs = ((one.low, other.low), (one.high, other.high))
    return all(np.allclose(there, here, rtol=1e-6, atol=0.0) for there, here in pairs)
