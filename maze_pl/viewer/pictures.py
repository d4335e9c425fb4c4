"""Pictures of an episode: PNG files as data URIs, small and each of them once."""

import base64
import hashlib
import importlib.util
import io
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from maze_pl.viewer.arrays import Array, decoded, encoded

WIDEST: Final = 640
"""Pixels to which wider pictures are reduced."""
MOST_PICTURES: Final = 1000
"""Maximum number of pictures of an episode; those of a longer one are evenly spaced."""
_N_IN_STRIP: Final = 8
_WIDTH_IN_STRIP: Final = 240
_GAP: Final = 4
_N_COLOURS: Final = 64
_MOST_PALETTE_COLOURS: Final = 256
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


class Pictures:
    """Pictures that are kept once each.

    Attributes:
        images: Their data URIs.
        index: Position in `images` of each picture that was added.
    """

    def __init__(self) -> None:
        self.images: list[str] = []
        self.index: list[int] = []
        self._places: dict[bytes, int] = {}

    def add(self, picture: Array) -> None:
        """Add a picture, [height, width], [height, width, 3] or [height, width, 4] bytes."""
        key = hashlib.sha256(repr(picture.shape).encode() + picture.tobytes()).digest()
        place = self._places.setdefault(key, len(self.images))
        if place == len(self.images):
            content = base64.b64encode(png(reduced(picture))).decode()
            self.images.append(f"data:image/png;base64,{content}")
        self.index.append(place)

    def add_all(self, pictures: Iterable[Array]) -> None:
        """Add several pictures."""
        for picture in pictures:
            self.add(picture)


def chosen_places(n: int) -> tuple[Array, Array]:
    """Choose which of n pictures an episode document has.

    Args:
        n: Number of pictures.

    Returns:
        Increasing indices of the chosen pictures, and for each of the n pictures the place among
        them of the latest one that is not after it.

    Example:
        >>> chosen, place = chosen_places(3)
        >>> chosen.tolist(), place.tolist()
        ([0, 1, 2], [0, 1, 2])
    """
    chosen = np.unique(np.linspace(0, max(n - 1, 0), min(n, MOST_PICTURES)).astype(np.int64))
    place = np.searchsorted(chosen, np.arange(n), side="right") - 1
    return chosen, place


def picture_table(pictures: Pictures, place: Array) -> dict[str, Any]:
    """Return the entries `images` and `index` of an episode document.

    Args:
        pictures: The chosen pictures.
        place: [n] for each act or step, the number of its picture among the chosen ones.
    """
    index = np.array(pictures.index, np.int64)[place]
    return {"index": encoded(index), "images": pictures.images}


def picture_strip(document: Mapping[str, Any]) -> Array | None:
    """Return pictures of the first episode side by side, [height, width, 3] bytes.

    Args:
        document: An episode document.

    Returns:
        None if the episode has no pictures.
    """
    entry = document["episodes"][0]["pictures"]
    if entry is None:
        return None
    from PIL import Image

    index = decoded(entry["index"])
    chosen = np.unique(np.linspace(0, len(index) - 1, _N_IN_STRIP).astype(np.int64))
    parts: list[Array] = []
    for place in index[chosen]:
        content = base64.b64decode(entry["images"][place].partition(",")[2])
        image = Image.open(io.BytesIO(content)).convert("RGB")
        image.thumbnail((_WIDTH_IN_STRIP, _WIDTH_IN_STRIP))
        parts.append(np.asarray(image))
    height = max(len(part) for part in parts)
    strip = np.full((height, sum(part.shape[1] + _GAP for part in parts) - _GAP, 3), 255, np.uint8)
    left = 0
    for part in parts:
        strip[: len(part), left : left + part.shape[1]] = part
        left += part.shape[1] + _GAP
    return strip


def reduced(picture: Array) -> Array:
    """Reduce a wide picture by averaging squares of pixels."""
    factor = -(-picture.shape[1] // WIDEST)
    if factor <= 1:
        return picture
    height = picture.shape[0] // factor
    width = picture.shape[1] // factor
    cut = picture[: height * factor, : width * factor].astype(np.float32)
    squares = cut.reshape(height, factor, width, factor, *picture.shape[2:])
    means: Array = squares.mean(axis=(1, 3))
    return np.rint(means).astype(np.uint8)


def png(picture: Array) -> bytes:
    """Encode a picture as PNG, with a palette where it has few colours or many that are similar.

    Args:
        picture: [height, width] shades of grey, [height, width, 3] colours, or
            [height, width, 4] colours with opacity, as bytes.

    Raises:
        ValueError: It has another shape.
    """
    shape = picture.shape
    if picture.dtype != np.uint8 or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise ValueError(f"a picture is [height, width, 3] bytes, not {shape} of {picture.dtype}")
    if len(shape) == 3 and shape[2] == 1:
        picture = picture[..., 0]
    if picture.ndim == 2:
        return _file(picture, 0)
    if picture.shape[2] == 4:
        return _file(picture, 6)
    if importlib.util.find_spec("PIL") is not None and _has_many_colours(picture):
        return _with_similar_colours_merged(picture)
    codes = picture.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, places = np.unique(codes, return_inverse=True)
    if len(colours) > _MOST_PALETTE_COLOURS:
        return _file(picture, 2)
    palette = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)
    return _file(places.reshape(picture.shape[:2]).astype(np.uint8), 3, palette)


def _has_many_colours(picture: Array) -> bool:
    """True if a picture has too many colours for a palette."""
    from PIL import Image

    return Image.fromarray(np.ascontiguousarray(picture)).getcolors(_MOST_PALETTE_COLOURS) is None


def _with_similar_colours_merged(picture: Array) -> bytes:
    """Encode a picture of many colours with a small palette."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    merged = image.quantize(_N_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    values = merged.getpalette() or []
    places = np.asarray(merged)
    palette = np.array(values, np.uint8).reshape(-1, 3)[: int(places.max()) + 1]
    return _file(places, 3, palette)


def _file(rows: Array, colour_type: int, palette: Array | None = None) -> bytes:
    """Return a PNG file of 8 bits per channel.

    Args:
        rows: [height, width] or [height, width, channels] bytes.
        colour_type: As in the format: 0 for grey, 2 for RGB, 3 for a palette, 6 for RGBA.
        palette: [n, 3] colours.
    """
    height, width = rows.shape[:2]
    lines = np.zeros((height, 1 + rows[0].size), np.uint8)  # each begins with filter 0: none
    lines[:, 1:] = rows.reshape(height, -1)
    parts = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0))]
    if palette is not None:
        parts.append(_chunk(b"PLTE", palette.tobytes()))
    parts.append(_chunk(b"IDAT", zlib.compress(lines.tobytes())))
    return b"".join([_SIGNATURE, *parts, _chunk(b"IEND", b"")])


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
