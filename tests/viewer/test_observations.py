"""Observations of all kinds of spaces in documents."""

from __future__ import annotations

import base64
import io
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

import maze_pl
from maze_pl.envs import GymMazeEnv
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.viewer.arrays import decoded
from maze_pl.viewer.document import episode_document
from maze_pl.viewer.normalizers import Normalizer
from maze_pl.viewer.playing import episode_of

KINDS: dict[str, tuple[spaces.Space[Any], str, list[int], tuple[float | None, float | None]]] = {
    "colours": (spaces.Box(0, 255, (20, 30, 3), np.uint8), "image", [20, 30, 3], (0.0, 255.0)),
    "channels first": (spaces.Box(0, 255, (3, 20, 30), np.uint8), "image", [3, 20, 30], (0.0, 255.0)),
    "stacked": (spaces.Box(0, 255, (4, 20, 30), np.uint8), "image", [4, 20, 30], (0.0, 255.0)),
    "grey": (spaces.Box(0, 255, (20, 30), np.uint8), "image", [20, 30], (0.0, 255.0)),
    "numbers of colours": (spaces.Box(-1.0, 1.0, (3, 20, 30)), "image", [3, 20, 30], (-1.0, 1.0)),
    "stacked colours": (spaces.Box(0, 255, (2, 20, 30, 3), np.uint8), "image", [2, 20, 30, 3], (0.0, 255.0)),
    "stacked grey": (spaces.Box(0.0, 1.0, (2, 1, 20, 30)), "image", [2, 1, 20, 30], (0.0, 1.0)),
    "unbounded colours": (spaces.Box(-np.inf, np.inf, (3, 20, 30)), "matrix", [3, 20, 30], (None, None)),
    "many matrices": (spaces.Box(-1.0, 1.0, (20, 3, 4)), "matrix", [60, 4], (-1.0, 1.0)),
    "table of bytes": (spaces.Box(0, 255, (5, 30), np.uint8), "matrix", [5, 30], (0.0, 255.0)),
    "number": (spaces.Box(-1.0, 1.0, ()), "scalar", [], (-1.0, 1.0)),
    "unbounded": (spaces.Box(-np.inf, np.inf, (3,)), "vector", [3], (None, None)),
    "cube": (spaces.Box(-1.0, 1.0, (2, 3, 4)), "matrix", [2, 3, 4], (-1.0, 1.0)),
    "choice": (spaces.Discrete(4, start=2), "discrete", [], (2.0, 5.0)),
    "bits": (spaces.MultiBinary(3), "vector", [3], (0.0, 1.0)),
    "choices": (spaces.MultiDiscrete([3, 7]), "vector", [2], (0.0, 6.0)),
    "choices below 0": (spaces.MultiDiscrete([3, 2], start=[-5, 1]), "vector", [2], (-5.0, 2.0)),
}


class Everything(gymnasium.Env[Any, Any]):
    """Observes a sample of each space; the third observation is that of the second step again."""

    observation_space = spaces.Dict({name: space for name, (space, *_) in KINDS.items()})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        self.n_steps = 0
        self.seen = self.observation_space.sample()
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        if self.n_steps != 2:
            self.seen = self.observation_space.sample()
        return self.seen, 1.0, self.n_steps == 4, False, {}


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    return rollout(lambda: GymMazeEnv(Everything()), "random")[0]


@pytest.fixture(scope="module")
def observations(trajectory: Trajectory) -> Any:
    return maze_pl.view(trajectory).document["episodes"][0]["observations"]["0"]


def test_normalised_observations_have_a_unit_and_are_drawn_by_their_values(trajectory: Trajectory) -> None:
    normalizers = [Normalizer("ObservationNormalizationWrapper", frozenset({"cube"}))]
    episode = episode_of(trajectory, "", "", parts={"normalizers": normalizers})
    observations = episode_document([episode])["episodes"][0]["observations"]["0"]
    number, cube, choice = observations["number"], observations["cube"], observations["choice"]
    assert (number["unit"], number["low"], number["high"]) == ("after ObservationNormalizationWrapper", None, None)
    assert (cube["unit"], cube["low"], cube["high"]) == (None, -1.0, 1.0)
    assert (choice["unit"], choice["low"], choice["high"]) == (None, 2.0, 5.0)


@pytest.mark.parametrize("name", KINDS)
def test_kind_shape_and_range_follow_from_the_space(name: str, observations: Any, trajectory: Trajectory) -> None:
    _, kind, shape, bounds = KINDS[name]
    content = observations[name]
    assert (content["kind"], content["shape"], (content["low"], content["high"])) == (kind, shape, bounds)
    if kind != "image":
        recorded = trajectory.spaces.observation[0][name]
        np.testing.assert_array_equal(decoded(content["values"]), recorded.reshape(4, *shape))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("colours", (30, 20)),
        ("channels first", (30, 20)),
        ("stacked", (126, 20)),  # with a line of 2 pixels between two images
        ("numbers of colours", (30, 20)),
        ("stacked colours", (62, 20)),
        ("stacked grey", (62, 20)),
    ],
)
def test_images_are_pictures_and_kept_once(name: str, size: tuple[int, int], observations: Any) -> None:
    content = observations[name]
    assert decoded(content["index"]).tolist() == [0, 1, 1, 2]
    assert len(content["pictures"]) == 3
    picture = Image.open(io.BytesIO(base64.b64decode(content["pictures"][0].partition(",")[2])))
    assert picture.size == size


def test_numbers_of_an_image_are_scaled_by_the_bounds_of_its_space(observations: Any, trajectory: Trajectory) -> None:
    picture = Image.open(io.BytesIO(base64.b64decode(observations["stacked grey"]["pictures"][0].partition(",")[2])))
    recorded = trajectory.spaces.observation[0]["stacked grey"][0]
    np.testing.assert_allclose(np.asarray(picture)[:, :30] / 255, recorded[0, 0], atol=0.003)


def test_grey_image_is_exact(observations: Any, trajectory: Trajectory) -> None:
    picture = Image.open(io.BytesIO(base64.b64decode(observations["grey"]["pictures"][0].partition(",")[2])))
    np.testing.assert_array_equal(np.asarray(picture), trajectory.spaces.observation[0]["grey"][0])
