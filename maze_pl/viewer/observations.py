"""Observations of an episode document."""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.records.record_files import SpacesTrajectoryRecord
from maze_pl.viewer.arrays import Array, encoded, finite
from maze_pl.viewer.normalizers import Normalizer, unit_of
from maze_pl.viewer.pictures import Pictures, chosen_places, picture_table

_SMALLEST_IMAGE: Final = 16
"""Smallest height and width in pixels of an array of bytes that counts as an image."""
_LARGEST_BOUND: Final = 1e6
"""Larger bounds of a space say nothing about the range of values."""
_COLOUR_CHANNELS: Final = (1, 3)
_MOST_CHANNELS: Final = 4
"""Channels, or images of a stack, up to which an array of numbers is taken for an image."""
_MOST_MATRICES: Final = 16
"""Matrices up to which an array of several dimensions is drawn as that many matrices."""
_GAP: Final = 2
"""Pixels between two images that are drawn side by side."""


def observations_of(
    record: SpacesTrajectoryRecord, key: StepKey, normalizers: Sequence[Normalizer] = ()
) -> dict[str, dict[str, Any]]:
    """Return the observations of a sub-step by name.

    Args:
        record: The episode.
        key: The step key.
        normalizers: Wrappers that normalised the observations.
    """
    step = record.spec.steps[key]
    masks = set(step.masks.values())
    all_spaces = [other.observation_space.spaces for other in record.spec.steps.values()]
    found = {}
    for name, space in step.observation_space.spaces.items():
        values = record.observation[key][name]
        is_mask = name in masks
        parts = [other[name] for other in all_spaces if name in other]
        unit = None if is_mask else unit_of(name, parts, normalizers)
        found[name] = _observation(space, values, is_mask, unit)
    return found


def _observation(space: spaces.Space[Any], values: Array, is_mask: bool, unit: str | None) -> dict[str, Any]:
    """Return the entry of an observation of an episode document.

    Args:
        space: Its space.
        values: [rows, *shape] observations.
        is_mask: Whether it is the mask of an action head.
        unit: Its unit; None for that of its space. The bounds of a normalised observation are those
            that it is clipped to, and are left out.
    """
    shape = tuple(space.shape or ())
    low, high = _range(space) if unit is None else (None, None)
    content: dict[str, Any] = {"kind": "", "shape": list(shape), "low": low, "high": high, "labels": None}
    content["unit"] = unit
    if _is_image(space, shape):
        chosen, place = chosen_places(len(values))
        pictures = Pictures()
        pictures.add_all(_picture(_as_bytes(space, values[row])) for row in chosen)
        table = picture_table(pictures, place)
        return content | {"kind": "image", "index": table["index"], "pictures": table["images"]}
    if len(shape) > 2:
        n_matrices = math.prod(shape[:-2])
        shape = (n_matrices, *shape[-2:]) if n_matrices <= _MOST_MATRICES else (math.prod(shape[:-1]), shape[-1])
        content["shape"] = list(shape)
        values = values.reshape(len(values), *shape)
    kind = {0: "scalar", 1: "vector"}.get(len(shape), "matrix")
    if isinstance(space, spaces.Discrete):
        kind = "discrete"
    if is_mask:
        kind = "mask"
    return content | {"kind": kind, "values": encoded(values)}


def _is_image(space: spaces.Space[Any], shape: tuple[int, ...]) -> bool:
    """True if an observation is an image or a stack of images.

    These are bytes in two dimensions and maybe channels; numbers of bounded size in two dimensions
    and channels; and stacks of either.
    """
    if not isinstance(space, spaces.Box) or not 2 <= len(shape) <= 4:
        return False
    image = shape[1:] if len(shape) == 4 else shape
    if sorted(image)[-2] < _SMALLEST_IMAGE:
        return False
    is_bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    return space.dtype == np.uint8 or (len(shape) > 2 and is_bounded and min(image) <= _MOST_CHANNELS)


def _as_bytes(space: spaces.Space[Any], image: Array) -> Array:
    """Return an image of numbers as bytes, from the smallest to the largest number of its space."""
    if image.dtype == np.uint8:
        return image
    assert isinstance(space, spaces.Box)
    low, high = float(space.low.min()), float(space.high.max())
    scaled: Array = np.rint(255.0 * (image - low) / ((high - low) or 1.0)).clip(0, 255).astype(np.uint8)
    return scaled


def _picture(image: Array) -> Array:
    """Return an image as [height, width] or [height, width, 3]; stacks and other channels are side by side."""
    if image.ndim == 4:
        return _side_by_side([_picture(part) for part in image])
    if image.ndim == 2 or image.shape[-1] in _COLOUR_CHANNELS:
        return image
    if image.shape[0] < image.shape[-1]:  # channels first
        if image.shape[0] in _COLOUR_CHANNELS:
            return np.moveaxis(image, 0, -1)
        return _side_by_side(list(image))
    return _side_by_side(list(np.moveaxis(image, -1, 0)))


def _side_by_side(images: list[Array]) -> Array:
    """Join images of the same shape, with a white line between two."""
    line = np.full((images[0].shape[0], _GAP, *images[0].shape[2:]), 255, np.uint8)
    parts = [images[0]]
    for image in images[1:]:
        parts += [line, image]
    return np.concatenate(parts, axis=1)


def _range(space: spaces.Space[Any]) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value of a space, None where they are unbounded or huge."""
    if isinstance(space, spaces.Discrete):
        return float(space.start), float(space.start + space.n - 1)
    if isinstance(space, spaces.MultiBinary):
        return 0.0, 1.0
    if isinstance(space, spaces.MultiDiscrete):
        return float(space.start.min()), float((space.start + space.nvec).max() - 1)
    if not isinstance(space, spaces.Box) or not space.low.size:
        return None, None
    return _told_bound(float(space.low.min())), _told_bound(float(space.high.max()))


def _told_bound(bound: float) -> float | None:
    """Return a bound that tells something about the range of values; None for others."""
    return finite(bound) if abs(bound) < _LARGEST_BOUND else None
