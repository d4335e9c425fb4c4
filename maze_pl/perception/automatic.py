"""Choice of a block for each observation, from its space alone.

Nothing here makes networks: a choice is an entry of a template's `modality_config`, as in YAML, so
that it can be printed and reused.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces

from maze_pl.perception.blocks.image_block import Channels, channels_first, n_image_dims

Kind = Literal["category", "vector", "scaled", "set", "image", "omitted"]
"""Treatment of an observation; see `docs/automatic_networks.md`."""

BLOCKS = "maze_pl.perception"
RELU = "torch.nn.ReLU"
_LARGE_IMAGE = 36  # shortest side, in pixels, from which the kernels of Mnih et al. fit
_SMALL_MAP = 25  # pixels at which small convolutions end
_LARGE_MAP = 144  # pixels at which large convolutions end; 49 for 84 x 84
_LEAST_GREY_IMAGE = 16  # shortest side of a matrix of bytes that is an image
_MOST_CATEGORIES = 10_000


@dataclass(frozen=True)
class Choice:
    """The treatment of an observation.

    Attributes:
        kind: The kind of observation.
        entry: Entry of `modality_config`; empty if there is no block.
    """

    kind: Kind
    entry: dict[str, Any] = field(default_factory=dict)


def kind_of(space: spaces.Space[Any]) -> Kind:
    """Return the kind of observations of a space.

    Example:
        >>> kind_of(spaces.Discrete(3)), kind_of(spaces.Box(0, 255, (84, 84, 3), np.uint8))
        ('category', 'image')
    """
    shape = space.shape or ()
    if math.prod(shape) == 0:
        return "omitted"
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return "category"
    if not isinstance(space, spaces.Box):
        return "vector"
    if len(shape) in (3, 4):
        return "image"
    if len(shape) == 2 and _is_bytes(space) and min(shape) >= _LEAST_GREY_IMAGE:
        return "image"
    # Tables as well: a set of rows would hide which row is which, and an action may name one.
    return "scaled" if _has_scale(space) else "vector"


def choose(
    name: str,
    space: spaces.Space[Any],
    kind: Kind | None = None,
    channels: Channels | Literal["auto"] = "auto",
) -> Choice:
    """Choose the treatment of an observation.

    Args:
        name: Name of the observation, for messages.
        space: Its space.
        kind: The kind of observation; derived from the space if None.
        channels: Layout of images; `auto` takes the shorter of first and last dimension as channels.

    Raises:
        ValueError: The kind does not fit the space, or there are too many categories.
    """
    chosen = kind or kind_of(space)
    known = get_args(Kind)
    if chosen not in known:
        raise ValueError(f"the observation {name!r} cannot be of kind {chosen!r}: use one of {', '.join(known)}")
    shape = space.shape or ()
    fits = {
        "category": isinstance(space, spaces.Discrete | spaces.MultiDiscrete),
        "vector": isinstance(space, spaces.Box | spaces.MultiBinary),
        "scaled": not isinstance(space, spaces.Box) or bool(_are_finite(space)),
        "set": isinstance(space, spaces.Box) and len(shape) == 2,
        "image": isinstance(space, spaces.Box) and len(shape) in (2, 3, 4),
        "omitted": True,
    }
    if not fits[chosen]:
        raise ValueError(f"the observation {name!r} cannot be of kind {chosen!r}, as its space is {space}")
    if chosen == "category":
        _require_few(name, space)
        return Choice(chosen, _block("OneHotBlock", **_categories(space), unit_variance=True))
    if chosen == "vector":
        return Choice(chosen, _block("FlattenBlock", num_flatten_dims=len(shape)) if len(shape) > 1 else {})
    if chosen == "scaled":
        low, high = _bounds(space)
        return Choice(chosen, _block("ScalingBlock", low=_plain(low), high=_plain(high)))
    if chosen == "set":
        params = {"hidden_units": [64, 64], "non_lin": RELU, **_scale_of_columns(space)}
        return Choice(chosen, _block("SetBlock", **params))
    if chosen == "image":
        layout = channels_of(shape) if channels == "auto" else channels
        return Choice(chosen, _block("ImageBlock", channels=layout, **_image_layers(name, space, layout)))
    return Choice(chosen)


def choose_for_all(
    name: str,
    several: Sequence[spaces.Space[Any]],
    kind: Kind | None = None,
    channels: Channels | Literal["auto"] = "auto",
) -> Choice:
    """Choose the treatment of an observation that several sub-steps have.

    Args:
        name: Name of the observation.
        several: Its space in each sub-step.
        kind: See `choose`.
        channels: See `choose`.

    Raises:
        ValueError: No single block fits all these spaces.
    """
    choices = [choose(name, space, kind, channels) for space in several]
    first = choices[0]
    if any(choice != first for choice in choices):
        joined = _joined(several)
        if joined is None or any(choice.kind != first.kind for choice in choices):
            found = " and ".join(str(space) for space in several)
            remedy = "rename one of them, or set its treatment in kinds"
            raise ValueError(f"no block fits the observation {name!r} of all sub-steps, {found}: {remedy}")
        return choose(name, joined, kind, channels)
    return first


def channels_of(shape: Sequence[int]) -> Channels:
    """Return the layout of an image, or of a stack of images.

    The channels are the shorter of the first and the last dimension; the last one if both are
    equal, as in gymnasium's renderings.

    Example:
        >>> channels_of((3, 64, 64)), channels_of((4, 96, 96, 3)), channels_of((84, 84))
        ('first', 'last', 'none')
    """
    if len(shape) == 2:
        return "none"
    return "first" if shape[-3] < shape[-1] else "last"


def convolution_layers(height: int, width: int) -> dict[str, list[int]]:
    """Return the options of convolutions that fit the size of images.

    Large images get the layers of Mnih et al. 2015, doi:10.1038/nature14236, and further ones until
    at most 144 pixels are left. Small ones get kernels of 3 x 3 until at most 25 pixels are left,
    of which the second halves the image if it is larger than that.

    Example:
        >>> convolution_layers(7, 7)["hidden_strides"]
        [1, 2]
    """
    if min(height, width) >= _LARGE_IMAGE:
        channels = [32, 64, 64]
        kernels = [8, 4, 3]
        strides = [4, 2, 1]
        padding = [0, 0, 0]
        units = 256
        most_pixels = _LARGE_MAP
        for kernel, stride in zip(kernels, strides, strict=True):
            height = (height - kernel) // stride + 1
            width = (width - kernel) // stride + 1
    else:
        n_layers = 2 if height * width <= _SMALL_MAP else 1  # which keep the size
        channels = [16, 32][:n_layers]
        kernels = [3] * n_layers
        strides = [1] * n_layers
        padding = [1] * n_layers
        units = 128
        most_pixels = _SMALL_MAP
    while height * width > most_pixels:  # further layers halve the image
        channels.append(min(64, 2 * channels[-1]))
        kernels.append(3)
        strides.append(2)
        padding.append(1)
        height = (height + 1) // 2
        width = (width + 1) // 2
    return {
        "hidden_channels": channels,
        "hidden_kernels": kernels,
        "hidden_strides": strides,
        "hidden_padding": padding,
        "hidden_units": [units],
    }


def modalities(choices: Mapping[str, Choice]) -> tuple[dict[str, dict[str, Any]], dict[str, str | None]]:
    """Return `modality_config` and `observation_modality_mapping` of a template.

    Observations with equal blocks share a modality, which is named by their kind; omitted ones
    have none.

    Args:
        choices: Observation -> its treatment.
    """
    config: dict[str, dict[str, Any]] = {}
    mapping: dict[str, str | None] = {}
    for name, choice in choices.items():
        if choice.kind == "omitted":
            mapping[name] = None
            continue
        names = _names(choice.kind, len(choices))
        modality = next(free for free in names if config.get(free, choice.entry) == choice.entry)
        config[modality] = choice.entry
        mapping[name] = modality
    return config, mapping


def _names(kind: str, n: int) -> Iterable[str]:
    """Return names of modalities of a kind, in the order of their use."""
    return [kind, *(f"{kind}_{number}" for number in range(2, n + 2))]


def _block(name: str, **params: Any) -> dict[str, Any]:
    return {"block_type": f"{BLOCKS}.{name}", "block_params": params}


def _require_few(name: str, space: spaces.Space[Any]) -> None:
    """Refuse more categories than one-hot vectors can hold."""
    n = spaces.flatdim(space)
    if n > _MOST_CATEGORIES:
        remedy = f"set kinds: {{{name}: scaled}} if they are really numbers, or omitted, or write a block"
        raise ValueError(f"the observation {name!r} has {n:,} categories, too many for one-hot vectors: {remedy}")


def _is_bytes(space: spaces.Box) -> bool:
    """True if all bounds are those of bytes."""
    return space.dtype == np.uint8 and bool((space.low == 0).all() and (space.high == 255).all())


def _are_finite(space: spaces.Box) -> bool:
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def _has_scale(space: spaces.Box) -> bool:
    """True for integers whose bounds say something about the size of each of them."""
    if not np.issubdtype(space.dtype, np.integer):
        return False
    limits = np.iinfo(space.dtype)  # type: ignore[type-var]  # checked above
    if limits.bits <= 16:
        return True
    has_low = limits.min == 0 or bool((space.low != limits.min).all())  # 0 is a bound of unsigned integers
    return has_low and bool((space.high != limits.max).all())


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """Return the lowest and the highest values of a space as numbers, flat."""
    if isinstance(space, spaces.Box):
        low, high = space.low.flatten(), space.high.flatten()
        return (low.astype(np.int8), high.astype(np.int8)) if space.dtype == np.bool_ else (low, high)
    if isinstance(space, spaces.Discrete):
        return np.array([space.start]), np.array([space.start + space.n - 1])
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.flatten(), (space.start + space.nvec - 1).flatten()
    return np.array([0]), np.array([1])


def _categories(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return number and start of the categories of a Discrete or MultiDiscrete space."""
    low, high = _bounds(space)
    if isinstance(space, spaces.Discrete):
        return {"n_categories": int(space.n), "start": int(space.start)}
    return {"n_categories": (high - low + 1).tolist(), "start": _plain(low)}


def _plain(values: Any) -> Any:
    """Return one number if all are equal, a list otherwise."""
    return values[0].item() if bool((values == values[0]).all()) else values.tolist()


def _scale_of_columns(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the bounds of the columns of a matrix of integers."""
    if not isinstance(space, spaces.Box) or not _has_scale(space):
        return {}
    return {"low": _plain(space.low.min(0)), "high": _plain(space.high.max(0))}


def _image_layers(name: str, space: spaces.Space[Any], channels: Channels) -> dict[str, Any]:
    """Return the options of the layers for images, and bounds of integers other than bytes."""
    shape = tuple(space.shape or ())
    n_stacked = len(shape) - n_image_dims(channels)
    if n_stacked not in (0, 1):
        raise ValueError(f"channels={channels!r} does not fit the images {name!r} of shape {shape}")
    _, height, width = channels_first(shape, channels, n_stacked == 1)
    options: dict[str, Any] = {**convolution_layers(height, width), "non_lin": RELU}
    if n_stacked:
        options["stacked"] = True
    if isinstance(space, spaces.Box) and _has_scale(space) and not _is_bytes(space):
        options |= {"low": space.low.min().item(), "high": space.high.max().item()}
    return options


def _joined(several: Sequence[spaces.Space[Any]]) -> spaces.Space[Any] | None:
    """Return a space that contains spaces of the same class, shape and type; None for others."""
    first = several[0]
    if len({(type(space), space.shape, str(space.dtype)) for space in several}) > 1:
        return None
    limits = [_bounds(space) for space in several]
    low = np.min([lowest for lowest, _ in limits], axis=0)
    high = np.max([highest for _, highest in limits], axis=0)
    if isinstance(first, spaces.Discrete):
        return spaces.Discrete(int(high[0] - low[0] + 1), start=int(low[0]))
    if isinstance(first, spaces.MultiDiscrete):
        return spaces.MultiDiscrete((high - low + 1).reshape(first.shape), start=low.reshape(first.shape))
    if isinstance(first, spaces.Box):
        return spaces.Box(low.reshape(first.shape), high.reshape(first.shape), dtype=first.dtype.type)
    return None
