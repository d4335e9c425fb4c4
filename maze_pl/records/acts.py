"""Columns of a record from the acts of an episode; messages name the act that does not fit."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.exact_numbers import first_changed, overflow_of
from maze_pl.core.spaces import no_value
from maze_pl.core.spec import Spec

Array = np.ndarray[Any, np.dtype[Any]]
Tree = dict[str, Array]
Act = tuple[StepKey, int, int, float, bool, Mapping[str, Any], Mapping[str, Any]]
"""Step key, agent id, environment time before the act, reward, actor done, observation, action."""
_Trees = Mapping[int, Mapping[str, Any]]
"""Number of the act -> name -> value."""


def as_stored(values: Any, space: spaces.Space[Any], what: str, *, is_exact: bool = False) -> Array:
    """Copy numbers to an array of the dtype of their space.

    Args:
        values: Numbers of any shape.
        space: The space.
        what: Description of the numbers, for the message.
        is_exact: Refuse fractions in a space of integers instead of cutting them off.

    Raises:
        ValueError: The values are not numbers, or the dtype is one of integers that cannot hold one
            of them.
    """
    return as_type(values, np.dtype(space.dtype), what, is_exact)


def as_type(values: Any, dtype: np.dtype[Any], what: str, is_exact: bool) -> Array:
    """Copy numbers to an array of a dtype; see `as_stored`."""
    try:
        array = np.array(values)
    except ValueError as error:  # rows of different lengths
        came = reprlib.repr(values)
        raise ValueError(f"{what} is {came}, expected an array of type {dtype}") from error
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} is {reprlib.repr(values)}, expected numbers of type {dtype}")
    if (fault := overflow_of(array, dtype)) is not None:
        raise ValueError(f"{what} {fault}")
    if is_exact and (number := first_changed(array, dtype)) is not None:
        reason = f"its type {dtype} holds whole numbers only"
        raise ValueError(f"{what} has the value {number}, but {reason}")
    return array.astype(dtype)


def columns_of_acts(spec: Spec, acts: Sequence[Act], is_exact: bool) -> dict[str, Any]:
    """Return the attributes of a record that hold its acts, by name.

    Args:
        spec: Specification of observations and actions.
        acts: [L] the acts.
        is_exact: See `as_stored`.

    Raises:
        ValueError: There is no act, or one does not fit the specification; the message names it.
    """
    if not acts:
        raise ValueError("an episode needs at least one act; there is none")
    step_keys, agent_ids, env_times, rewards, actor_done, *trees = zip(*acts, strict=True)
    observations, actions = trees
    places: dict[StepKey, list[int]] = {key: [] for key in spec.steps}
    for place, key in enumerate(step_keys):
        if key not in places:
            known = list(spec.steps)
            raise ValueError(f"act {place} is of sub-step {key!r}; the sub-steps are {known}")
        places[key].append(place)
    key_index = np.zeros(len(acts), np.int64)
    for index, of_key in enumerate(places.values()):
        key_index[of_key] = index
    observation: dict[StepKey, Tree] = {}
    action: dict[StepKey, Tree] = {}
    for key, step in spec.steps.items():
        seen = {place: observations[place] for place in places[key]}
        chosen = {place: actions[place] for place in places[key]}
        where = f"of sub-step {key!r}"
        observation[key] = _stacked(seen, step.observation_space, f"observation {where}", is_exact)
        action[key] = _stacked(chosen, step.action_space, f"action {where}", is_exact)
    integers, flags = np.dtype(np.int64), np.dtype(np.bool_)
    return {
        "key_index": key_index,
        "agent_id": _column(agent_ids, integers, "the agent id"),
        "env_time": _column(env_times, integers, "the environment time"),
        "reward": _rewards(rewards) if is_exact else np.array(rewards, np.float64),
        "actor_done": _column(actor_done, flags, "actor_done"),
        "observation": observation,
        "action": action,
    }


def _column(values: Sequence[Any], dtype: np.dtype[Any], what: str) -> Array:
    """[L] a number of each act.

    Raises:
        ValueError: Something else is in its place; the message names the act.
    """
    try:
        array = as_type(values, dtype, what, is_exact=True)
    except ValueError:
        array = np.zeros(())
    if array.ndim == 1:
        return array
    numbers = []
    for place, value in enumerate(values):
        number = as_type(value, dtype, f"{what} of act {place}", is_exact=True)
        if number.ndim:
            raise ValueError(f"{what} of act {place} is {reprlib.repr(value)}, expected a single number")
        numbers.append(number)
    return np.array(numbers)


def _rewards(values: Sequence[Any]) -> Array:
    """[L] rewards of the acts.

    Raises:
        ValueError: One is not a finite number; the message names the act.
    """
    rewards = _column(values, np.dtype(np.float64), "the reward")
    is_finite = np.isfinite(rewards)
    if not is_finite.all():
        place = int(is_finite.argmin())
        raise ValueError(f"the reward of act {place} is {rewards[place]}, expected a finite number")
    return rewards


def _stacked(trees: _Trees, space: spaces.Dict, what: str, is_exact: bool) -> Tree:
    """Stack the observations or actions of the acts of one sub-step.

    Args:
        trees: Number of the act -> name -> value.
        space: Their space.
        what: Description for messages.
        is_exact: See `as_stored`.
    """
    arrays = {}
    for name, part in space.spaces.items():
        shape = part.shape or ()
        try:
            values = [tree[name] for tree in trees.values()]
            array = as_stored(values, part, name, is_exact=is_exact)
        except (IndexError, KeyError, TypeError, ValueError):
            return _stacked_alone(trees, space, what, is_exact)
        if _without_ones(array.shape[1:]) != _without_ones(shape):
            return _stacked_alone(trees, space, what, is_exact)
        arrays[name] = array.reshape(len(values), *shape)
        if is_exact and no_value(part, arrays[name], len(values)):
            return _stacked_alone(trees, space, what, is_exact)
    return arrays


def _stacked_alone(trees: _Trees, space: spaces.Dict, what: str, is_exact: bool) -> Tree:
    """Perform `_stacked` act by act, which is slower and names the act that does not fit.

    Raises:
        ValueError: There is one.
    """
    arrays = {}
    for name, part in space.spaces.items():
        arrays[name] = np.zeros((len(trees), *(part.shape or ())), part.dtype)
    for row, (place, tree) in enumerate(trees.items()):
        if not isinstance(tree, Mapping):
            raise ValueError(f"the {what} in act {place} is {reprlib.repr(tree)}, {_expected(space)}")
        if missing := space.spaces.keys() - tree.keys():
            fault = f"lacks {sorted(missing)}; it has {sorted(tree)}"
            raise ValueError(f"the {what} in act {place} {fault}")
        for name, part in space.spaces.items():
            which = f"{name!r} in the {what} in act {place}"
            arrays[name][row] = _stored_alone(tree[name], part, which, is_exact)
    return arrays


def _stored_alone(value: Any, space: spaces.Space[Any], what: str, is_exact: bool) -> Array:
    """Convert one value to an array of the dtype and shape of its space.

    Args:
        value: The value; its shape may have further dimensions of size 1, or lack some.
        space: The space.
        what: Description of the value, for the message.
        is_exact: See `as_stored`.

    Raises:
        ValueError: It is not a value of this shape, its type cannot hold it, or an exact one is not in the space.
    """
    shape = space.shape or ()
    array = as_stored(value, space, what, is_exact=is_exact)
    if _without_ones(array.shape) != _without_ones(shape):
        raise ValueError(f"{what} has shape {array.shape}, expected {shape}")
    stored = array.reshape(shape)
    if is_exact and no_value(space, stored[np.newaxis], 1):
        name = " ".join(str(space).split())  # bounds are printed on several lines
        raise ValueError(f"{what} is {reprlib.repr(stored.tolist())}, which is not in {name}")
    return stored


def _expected(space: spaces.Dict) -> str:
    """Describe what should have come instead of something that is not a dict."""
    return f"expected a dict with {list(space.spaces)}"


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    """Sizes of a shape above or below 1."""
    return [size for size in shape if size != 1]


def last_turn(
    spec: Spec,
    actor: Any,
    observation: Mapping[str, Any],
    is_exact: bool,
) -> tuple[ActorID, Tree]:
    """Return the actor whose turn would have been next, and its observation as stored.

    Args:
        spec: Specification of observations and actions.
        actor: The actor, or its step key and agent id.
        observation: Name -> value.
        is_exact: See `as_stored`.

    Raises:
        ValueError: The actor is of an unknown sub-step, or the observation does not fit.
    """
    if isinstance(actor, str) or not isinstance(actor, Sequence) or len(actor) != 2:
        raise ValueError(f"last_actor={actor!r} must be an ActorID: a step key and an agent id")
    last = ActorID(*actor)
    if last.step_key not in spec.steps:
        fault = f"last_actor={actor!r} is of sub-step {last.step_key!r}"
        raise ValueError(f"{fault}; the sub-steps are {list(spec.steps)}")
    space = spec.steps[last.step_key].observation_space
    known = space.spaces
    if not isinstance(observation, Mapping):
        raise ValueError(f"last_observation is {reprlib.repr(observation)}, {_expected(space)}")
    if missing := known.keys() - observation.keys():
        fault = f"lacks {sorted(missing)}; it has {sorted(observation)}"
        raise ValueError(f"last_observation, which {last} would have seen, {fault}")
    stored = {}
    for name, part in known.items():
        what = f"{name!r} in last_observation"
        stored[name] = _stored_alone(observation[name], part, what, is_exact)
    return last, stored
