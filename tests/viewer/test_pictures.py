"""Pictures: PNG files that other programs read, small, and each of them once."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from maze_pl.viewer import pictures
from maze_pl.viewer.pictures import Pictures, chosen_places, png, reduced


def decoded(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_png_of_few_colours_is_exact(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    mode = {2: "L", 3: "RGB", 4: "RGBA"}[len(shape) if shape[-1] not in (1, 3, 4) else max(2, shape[-1])]
    found = np.asarray(decoded(png(picture)).convert(mode))
    np.testing.assert_array_equal(found, picture.squeeze(-1) if shape[-1] == 1 else picture)


def test_many_colours_are_merged_into_a_palette() -> None:
    gradient = np.zeros((64, 64, 3), np.uint8)
    gradient[..., 0] = np.arange(64)[:, None] * 4
    gradient[..., 1] = np.arange(64) * 4
    content = png(gradient)
    assert decoded(content).mode == "P"
    difference = np.asarray(decoded(content).convert("RGB")).astype(int) - gradient
    assert np.abs(difference).mean() < 12


def test_equal_pictures_are_kept_once() -> None:
    kept = Pictures()
    black = np.zeros((4, 4, 3), np.uint8)
    kept.add_all([black, black + 255, black])
    assert kept.index == [0, 1, 0]
    assert len(kept.images) == 2
    assert base64.b64decode(kept.images[0].split(",")[1]) == png(black)


def test_wide_picture_is_averaged() -> None:
    picture = np.zeros((4, 2 * pictures.WIDEST, 3), np.uint8)
    picture[:, ::2] = 100
    assert reduced(picture).shape == (2, pictures.WIDEST, 3)
    assert (reduced(picture) == 50).all()


def test_long_episodes_have_evenly_spaced_pictures() -> None:
    chosen, place = chosen_places(10 * pictures.MOST_PICTURES)
    assert len(chosen) == pictures.MOST_PICTURES
    assert (chosen[0], chosen[-1]) == (0, 10 * pictures.MOST_PICTURES - 1)
    n = np.arange(len(place))
    assert (chosen[place] <= n).all()
    assert (n - chosen[place]).max() <= 11


def test_other_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not \(4, 4, 2\) of uint8"):
        png(np.zeros((4, 4, 2), np.uint8))
