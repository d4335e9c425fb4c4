"""Faults of recorded acts: wrong values, invalid masks, and actions that masks forbid."""

from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.allowed_options import forbidden_actions
from maze_pl.core.spaces import MaskError, allowed_entries, no_value
from maze_pl.core.spec import Spec
from maze_pl.records.columns import Columns

_Array = np.ndarray[Any, np.dtype[Any]]


def fault_of(spec: Spec, acts: dict[StepKey, Columns]) -> str:
    """Describe the first fault of some acts, also a forbidden action; empty if there is none."""
    return invalid_value(spec, acts) or forbidden_action(spec, acts)


def invalid_value(spec: Spec, acts: dict[StepKey, Columns]) -> str:
    """Describe a value outside its space or an invalid mask (of a forged file); empty if valid."""
    for key, step in spec.steps.items():
        columns = acts[key]
        n_acts = len(columns["agent_id"])
        spaces_of = {"observation": step.observation_space, "action": step.action_space}
        for tree, dict_space in spaces_of.items():
            for name, space in dict_space.spaces.items():
                if no_value(space, columns[tree][name], n_acts):
                    where = f"its {tree} {name!r} of sub-step {key!r}"
                    return f"{where} holds a value that is not in {space}"
    for key, step in spec.steps.items():
        for head, name in step.masks.items():
            mask = acts[key]["observation"][name]
            shape = (len(mask), spaces.flatdim(step.action_space[head]))
            try:
                allowed_entries(mask, shape, name, head)
            except MaskError as error:
                return str(error)
    return ""


def forbidden_action(spec: Spec, acts: dict[StepKey, Columns]) -> str:
    """Describe an action that its mask forbids; empty if there is none.

    Args:
        spec: Specification of the acts, with masks.
        acts: Acts whose values and masks are valid.
    """
    for key, step in spec.steps.items():
        for head, name in step.masks.items():
            actions = acts[key]["action"][head]
            mask = acts[key]["observation"][name]
            forbidden = forbidden_actions(actions, mask, step.action_space[head])
            if forbidden.any():
                place = int(forbidden.argmax())
                where = f"head {head!r} in act {place} of sub-step {key!r}"
                came = f"its action {actions[place].tolist()} of {where}"
                return f"{came} is forbidden by the mask {name!r}"
    return ""
