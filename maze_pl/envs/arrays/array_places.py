"""Places of arrays: attributes of an object, and entries of its lists, tuples, dicts and deques."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from maze_pl.envs.arrays.array_checks import as_numpy
from maze_pl.envs.arrays.array_step import AnyArray
from maze_pl.envs.arrays.nested_arrays import NestedValue, array_types, attributes_of, nested_values


def nested_arrays(owner: object) -> Iterator[NestedValue]:
    """Yield the arrays in lists, tuples, dicts and deques that are attributes."""
    kinds = array_types()
    for nested in nested_values(attributes_of(owner)):
        if isinstance(nested.value, kinds):
            yield nested


def present_arrays(owner: object) -> dict[str, AnyArray]:
    """Return the arrays that are attributes, or lie in containers, state or not, by name."""
    kinds = array_types()
    arrays = {name: value for name, value in vars(owner).items() if isinstance(value, kinds)}
    return arrays | {nested.name: nested.value for nested in nested_arrays(owner)}


def names_in_tuples(owner: object) -> set[str]:
    """Return the names of the arrays in tuples, whose places cannot get another array."""
    return {nested.name for nested in nested_arrays(owner) if isinstance(nested.container, tuple)}


def alike(saved: AnyArray, array: AnyArray) -> AnyArray:
    """Return a saved array as a tensor on the device of another one, or as an array, as that one is."""
    if isinstance(array, np.ndarray):
        return as_numpy(saved)
    return sys.modules["torch"].as_tensor(saved, device=array.device)


def saved_options(owner: object, saved: Mapping[str, Any], options: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the options that a saved state names, by the names of the places that had them.

    Args:
        owner: The object that gets the state.
        saved: Parts of the state, by name.
        options: Arrays that its constructor has made, by name.

    Raises:
        ValueError: There is no such option now.
    """
    chosen = {}
    for place, part in saved.items():
        match part:
            case [str("given"), str(name)] if name in options:
                chosen[place] = options[name]
            case [str("given"), str(name)]:
                came = f"the saved state of {type(owner).__name__} has the array {name!r} of the constructor"
                raise ValueError(f"{came} as {place!r}, but there is no such array now; make it as before")
    return chosen


def put_options(owner: object, options: Mapping[str, AnyArray]) -> None:
    """Put options in their places, and make attributes that are missing.

    Args:
        owner: The object that has the places.
        options: Name of the place -> array.

    Raises:
        ValueError: The place is in a tuple that has another array.
    """
    present = present_arrays(owner)
    for name, option in options.items():
        if "." not in name:
            setattr(owner, name, option)
        elif present.get(name) is not option:
            replace_array(owner, name, option)


def restore_array(owner: object, name: str, array: AnyArray, saved: AnyArray) -> None:
    """Copy a saved array into the present one, or replace that one if the dtypes differ.

    Args:
        owner: The object that has the array.
        name: Name of the place of the array.
        array: The present array.
        saved: The saved one, of the same kind.

    Raises:
        ValueError: The shapes differ, or the dtypes do and the array cannot be replaced.
    """
    came = f"the saved array {name!r} of {type(owner).__name__} has"
    if tuple(array.shape) != tuple(saved.shape):
        raise ValueError(f"{came} shape {tuple(saved.shape)}, expected {tuple(array.shape)}")
    if array.dtype == saved.dtype:
        array[...] = saved
    elif present_arrays(owner).get(name) is array:
        replace_array(owner, name, copy.deepcopy(saved))
    else:
        remedy = "give it the same type in `allocate` as in later steps, or resume with the code that saved it"
        raise ValueError(f"{came} type {saved.dtype}, expected {array.dtype}; {remedy}")


def replace_array(owner: object, name: str, array: AnyArray) -> None:
    """Put another array in the place of an attribute, or an entry of a list, a dict or a deque.

    Args:
        owner: The object that has the place.
        name: Name of the place.
        array: The array.

    Raises:
        ValueError: The place is in a tuple.
    """
    if name in vars(owner):
        setattr(owner, name, array)
        return
    for nested in nested_values(attributes_of(owner)):
        if nested.name == name:
            if isinstance(nested.container, tuple):
                came = f"the saved array {name!r} of {type(owner).__name__} replaces another one in a tuple"
                remedy = "keep it in a list, or make it in `allocate` with its type in later steps"
                raise ValueError(f"{came}; {remedy}")
            nested.replace(array)
