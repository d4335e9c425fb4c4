"""Copies of the state of an array environment, within one process."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_wrapper_statistics import array_wrappers_of
from maze_pl.envs.arrays.nested_arrays import (
    VALUES,
    array_types,
    attributes_of,
    is_container,
    nested_values,
)
from maze_pl.envs.arrays.random_streams import RandomStreams
from maze_pl.envs.arrays.saved_containers import ContainersInPlace, given_names


def copy_state(target: ArrayEnv, source: ArrayEnv) -> None:
    """Give an array environment the state of another one that was made in the same way.

    Besides everything that `state_dict` holds, it gets the attributes that are numbers or texts of
    Python, containers of these, and those that `reset` or `step` of the source has made. It loses
    those that only its own steps have made. Instead of containers that existed before `allocate`, it
    gets its own ones of the same names.

    Args:
        target: The environment with its wrappers, which gets the state.
        source: The environment with its wrappers, whose state is copied.

    Raises:
        ValueError: The environments were not made in the same way.
    """
    for own, other in zip(_layers(target), _layers(source), strict=True):
        _copy_attributes(own, other)
    target.load_state_dict(copy.deepcopy(source.state_dict()))


def _layers(env: ArrayEnv) -> Iterator[ArrayEnv]:
    """Yield the wrappers around an environment, and the environment."""
    yield from array_wrappers_of(env)
    yield env.unwrapped


def _copy_attributes(target: ArrayEnv, source: ArrayEnv) -> None:
    """Give an environment, or a wrapper, the attributes that `load_state_dict` does not restore."""
    own, attributes = vars(target), vars(source)
    own_kinds, kinds = _kinds_of(target), _kinds_of(source)
    for name, kind in own_kinds.items():
        if name not in attributes or kinds.get(name, kind) != kind:
            del own[name]
    own_given = target.given_containers
    names = given_names(source.given_containers)
    given = {one: own_given[name] for one, name in names.items() if name in own_given}
    own_arrays = target.given_arrays
    array_names = given_names(source.given_arrays)
    given_arrays = {one: own_arrays[name] for one, name in array_names.items() if name in own_arrays}
    for name, value in attributes.items():
        if is_container(value) and id(value) in given:
            own[name] = given[id(value)]
    values = {name: attributes[name] for name, kind in kinds.items() if kind == "values"}
    in_place = ContainersInPlace(own_given.values())
    for name, copied in copy.deepcopy(values, given).items():  # together, as one may lie in another
        own[name] = in_place.put(own.get(name), copied)
    for name, kind in kinds.items():
        if kind == "plain":
            own[name] = attributes[name]
        elif kind == "container" and name not in own:
            own[name] = copy.deepcopy(attributes[name], {**given_arrays})


def _kinds_of(env: ArrayEnv) -> dict[str, str]:
    """Kinds of the attributes of the state, by name: `plain`, `array`, `values` or `container`."""
    attributes = attributes_of(env)
    arrays = (*array_types(), RandomStreams)
    kinds = {nested.name.partition(".")[0]: "container" for nested in nested_values(attributes)}
    for name, value in attributes.items():
        if isinstance(value, VALUES):
            kinds[name] = "plain"
        elif isinstance(value, arrays):
            kinds[name] = "array"
    return kinds | dict.fromkeys(env.own_containers(), "values")
