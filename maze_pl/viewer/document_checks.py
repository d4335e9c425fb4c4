"""Validation of documents of the episode viewer: the first mistake is named with its place."""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from maze_pl.viewer.arrays import decoded

FORMAT: Final = "maze_pl episodes"
"""Name of the format."""
VERSION: Final = 1
"""Version of the format that the page reads."""
DTYPES: Final = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "uint8": "u1"}
"""Types of numbers in arrays, with their names in NumPy; bytes are little-endian."""
ENDS: Final = ("terminated", "truncated", "unfinished")
"""Ends of an episode."""
OBSERVATION_KINDS: Final = ("image", "vector", "matrix", "scalar", "discrete", "mask", "other")
"""Kinds of observations, which decide about their drawing."""
HEAD_KINDS: Final = ("categorical", "multi_categorical", "bernoulli", "continuous", "other")
"""Kinds of action heads, which decide about their drawing."""


def check_document(document: Mapping[str, Any]) -> None:
    """Check that a document can be shown.

    Args:
        document: Episodes in the format "maze_pl episodes".

    Raises:
        ValueError: If something is missing, or does not have the type or the shape that it must have.
    """
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        given = f"format {document.get('format')!r}, version {document.get('version')!r}"
        raise ValueError(f"the document has {given}, but the viewer shows {FORMAT!r}, version {VERSION}")
    for name in ("title", "created_by"):
        _get(document, name, str, "document")
    episodes = _get(document, "episodes", Sequence, "document")
    if not episodes:
        raise ValueError("episodes is empty; a document holds at least one episode")
    for i, episode in enumerate(episodes):
        _check_episode(episode, f"episodes[{i}]")
    for i, pair in enumerate(_get(document, "pairs", Sequence, "document")):
        if len(pair) != 2 or any(type(index) is not int or not 0 <= index < len(episodes) for index in pair):
            raise ValueError(f"pairs[{i}] is {pair!r}, but must hold two indices of the {len(episodes)} episodes")


def _check_episode(episode: Mapping[str, Any], place: str) -> None:
    """Check one episode."""
    for name in ("name", "policy", "episode_id"):
        _get(episode, name, str, place)
    _get(episode, "return", float | int | None, place)
    _check_optional(episode, "return_unit", str | None, place)
    _get(episode, "seed", int | None, place)
    _one_of(episode, "end", ENDS, place)
    n_steps = _get(episode, "n_env_steps", int, place)
    _check_optional(episode, "n_complete_env_steps", int, place)
    step_keys = _get(episode, "step_keys", Sequence, place)
    step_key_of = _check_acts(_get(episode, "acts", Mapping, place), n_steps, len(step_keys), f"{place}.acts")
    rows = {key: int(np.sum(step_key_of == i)) for i, key in enumerate(step_keys)}
    env_steps = _get(episode, "env_steps", Mapping, place)
    _check_array(env_steps, "reward", (n_steps,), f"{place}.env_steps")
    _check_optional(env_steps, "unit", str | None, f"{place}.env_steps")
    for part in _get(env_steps, "parts", Mapping, f"{place}.env_steps"):
        _check_array(env_steps["parts"], part, (n_steps,), f"{place}.env_steps.parts")
    for kpi in _get(episode, "running_kpis", Mapping, place):
        _check_array(episode["running_kpis"], kpi, (n_steps,), f"{place}.running_kpis")
    _get(episode, "kpis", Mapping, place)
    for section, check in (("observations", _check_observation), ("heads", _check_head)):
        for key, described in _get(episode, section, Mapping, place).items():
            if key not in rows:
                raise ValueError(f"{place}.{section} has {key!r}, which is not one of the step keys {list(step_keys)}")
            for name in described:
                check(
                    _get(described, name, Mapping, f"{place}.{section}.{key}"),
                    rows[key],
                    f"{place}.{section}.{key}.{name}",
                )
    _check_events(_get(episode, "events", Mapping, place), n_steps, f"{place}.events")
    _check_pictures(_get(episode, "pictures", Mapping | None, place), len(step_key_of), n_steps, f"{place}.pictures")


def _check_acts(acts: Mapping[str, Any], n_steps: int, n_step_keys: int, place: str) -> NDArray[Any]:
    """Check the acts of an episode; returns the indices of their step keys."""
    n = _get(acts, "n", int, place)
    if n < 1 or n_steps < 1:
        raise ValueError(f"{place}.n is {n}, and n_env_steps {n_steps}; an episode has at least one of each")
    for name in ("env_step", "step_key", "agent"):
        _check_array(acts, name, (n,), place)
    for name in ("reward", "value"):
        _check_array(acts, name, (n,), place, optional=True)
    _check_optional(acts, "unit", str | None, place)
    env_step = _array(acts["env_step"], f"{place}.env_step")
    if np.any(np.diff(env_step) < 0) or env_step[0] < 0 or env_step[-1] >= n_steps:
        raise ValueError(f"{place}.env_step must not decrease, and lie between 0 and {n_steps - 1}")
    return _check_indices(acts["step_key"], n_step_keys, f"{place}.step_key")


def _check_observation(observation: Mapping[str, Any], rows: int, place: str) -> None:
    """Check one observation of one step key."""
    kind = _one_of(observation, "kind", OBSERVATION_KINDS, place)
    shape = _get(observation, "shape", Sequence, place)
    _get(observation, "labels", Sequence | None, place)
    _check_optional(observation, "unit", str | None, place)
    for bound in ("low", "high"):
        _get(observation, bound, float | int | None, place)
    if kind != "image" or "pictures" not in observation:
        _check_array(observation, "values", (rows, *shape), place)
        return
    pictures = _get(observation, "pictures", Sequence, place)
    if observation.get("index") is not None:
        _check_array(observation, "index", (rows,), place)
        _check_indices(observation["index"], len(pictures), f"{place}.index")
    elif len(pictures) != rows:
        raise ValueError(f"{place}.pictures has {len(pictures)} pictures for {rows} acts, and no index")


def _check_head(head: Mapping[str, Any], rows: int, place: str) -> None:
    """Check one action head of one step key."""
    _one_of(head, "kind", HEAD_KINDS, place)
    _get(head, "labels", Sequence | None, place)
    options = sum(_get(head, "sizes", Sequence, place))
    for name in ("probabilities", "allowed"):
        _check_array(head, name, (rows, options), place, optional=True)
    width = math.prod(_check_array(head, "action", (rows, None), place)[1:])
    _check_array(head, "most_likely", (rows, width), place, optional=True)
    points = _check_array(head, "density_x", (rows, width, None), place, optional=True)
    _check_array(head, "density", points or (rows, width, None), place, optional=True)
    for name in ("low", "high"):
        bound = _get(head, name, Sequence | None, place)
        if bound is not None and len(bound) != width:
            raise ValueError(f"{place}.{name} has {len(bound)} numbers for {width} coordinates of the action")


def _check_events(events: Mapping[str, Any], n_steps: int, place: str) -> None:
    """Check the raw events of an episode."""
    names = _get(events, "names", Sequence, place)
    attributes = _get(events, "attributes", Sequence, place)
    _check_optional(events, "is_recorded", bool, place)
    for name, end in (("env_step", n_steps), ("name", len(names))):
        _check_array(events, name, (len(attributes),), place)
        _check_indices(events[name], end, f"{place}.{name}")


def _check_pictures(pictures: Mapping[str, Any] | None, n_acts: int, n_steps: int, place: str) -> None:
    """Check the pictures of an episode."""
    if pictures is None:
        return
    per = _one_of(pictures, "per", ("act", "env_step"), place)
    images = _get(pictures, "images", Sequence, place)
    _check_array(pictures, "index", (n_acts if per == "act" else n_steps + 1,), place)
    _check_indices(pictures["index"], len(images), f"{place}.index")
    alternatives = _get(pictures, "alt", Sequence | None, place)
    if alternatives is not None and len(alternatives) != len(images):
        raise ValueError(f"{place}.alt has {len(alternatives)} texts for {len(images)} images")


def _array(array: Mapping[str, Any], place: str) -> NDArray[Any]:
    """Decode an array whose description has been checked."""
    try:
        return decoded(array)
    except (ValueError, zlib.error) as error:  # ValueError: no base64, or too few bytes for the shape
        raise ValueError(f"{place}.data cannot be decoded to the shape {array['shape']}: {error}") from error


def _check_array(
    owner: Mapping[str, Any], name: str, shape: tuple[int | None, ...], place: str, optional: bool = False
) -> tuple[int, ...]:
    """Check an array's description against a shape, in which None is any size; returns its shape, () for null."""
    array = _get(owner, name, Mapping | None if optional else Mapping, place)
    if array is None:
        return ()
    where = f"{place}.{name}"
    dtype = _one_of(array, "dtype", tuple(DTYPES), where)
    encoding = _one_of(array, "encoding", ("raw", "deflate"), where)
    data = _get(array, "data", str, where)
    given = tuple(_get(array, "shape", Sequence, where))
    fits = len(given) == len(shape) and all(
        expected in (None, size) for size, expected in zip(given, shape, strict=True)
    )
    if not fits:
        expected_shape = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{where} has the shape {list(given)}, but must have [{expected_shape}]")
    n_bytes = math.prod(given) * np.dtype(DTYPES[dtype]).itemsize
    if encoding == "raw" and len(data) != 4 * ((n_bytes + 2) // 3):
        raise ValueError(f"{where} has {len(data)} characters of base64, but its shape needs {n_bytes} bytes")
    return given


def _check_indices(array: Mapping[str, Any], end: int, place: str) -> NDArray[Any]:
    """Check that all numbers are indices of something that has `end` entries; returns them."""
    indices = _array(array, place)
    if indices.size and (indices.min() < 0 or indices.max() >= end):
        raise ValueError(f"{place} has indices from {indices.min()} to {indices.max()}, but they end at {end - 1}")
    return indices


def _get(owner: Mapping[str, Any], name: str, expected: Any, place: str) -> Any:
    """Value of a key, of a certain type."""
    if name not in owner:
        raise ValueError(f"{place} lacks {name!r}; it has {', '.join(map(repr, owner)) or 'nothing'}")
    value = owner[name]
    is_text = isinstance(value, str) and expected not in (str, str | None)  # a string is a sequence, too
    if not isinstance(value, expected) or is_text or (isinstance(value, bool) and expected is not bool):
        wanted = getattr(expected, "__name__", str(expected).replace("collections.abc.", ""))
        raise ValueError(f"{place}.{name} is {value!r:.80}, but must be of type {wanted}")
    return value


def _check_optional(owner: Mapping[str, Any], name: str, expected: Any, place: str) -> None:
    """Check the type of a value that documents of earlier versions do not have."""
    if name in owner:
        _get(owner, name, expected, place)


def _one_of(owner: Mapping[str, Any], name: str, options: tuple[str, ...], place: str) -> str:
    """Value of a key, one of some words."""
    value: str = _get(owner, name, str, place)
    if value not in options:
        raise ValueError(f"{place}.{name} is {value!r}, but must be one of {', '.join(options)}")
    return value
