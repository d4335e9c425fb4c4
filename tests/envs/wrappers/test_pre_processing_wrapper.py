from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.__main__ import main
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, Wrapper
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.wrappers import (
    FlattenPreProcessor,
    ObservationNormalizationWrapper,
    OneHotPreProcessor,
    PreProcessingWrapper,
    PreProcessor,
    Rgb2GrayPreProcessor,
    TimeLimitWrapper,
    UnSqueezePreProcessor,
)
from tests.envs.structured_example import make_heap_env
from tests.envs.wrappers.cases import play

WRAPPERS = "maze_pl.envs.wrappers."
CASCADE: list[dict[str, Any]] = [
    {
        "observation": "rgb_image",
        "class_path": WRAPPERS + "Rgb2GrayPreProcessor",
        "keep_original": False,
        "config": {"rgb_dim": -1},
    },
    {
        "observation": "rgb_image-rgb2gray",
        "class_path": WRAPPERS + "ResizeImgPreProcessor",
        "keep_original": False,
        "config": {"target_size": [96, 96], "transpose": False},
    },
    {
        "observation": "rgb_image-rgb2gray-resize_img",
        "class_path": WRAPPERS + "UnSqueezePreProcessor",
        "keep_original": False,
        "config": {"dim": -3},
    },
]


class Pictures(gymnasium.Env[Any, Any]):
    """Shows a picture and the month."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"rgb_image": spaces.Box(0, 255, (12, 10, 3), np.uint8), "month": spaces.Discrete(12, start=1)}
        )
        self.action_space = spaces.Discrete(2)
        self.observation_space.seed(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


class HalvesPreProcessor(PreProcessor):
    """A user's own, with a space of its own."""

    def __init__(self, observation_space: spaces.Space[Any], which: int) -> None:
        super().__init__(observation_space)
        self.which = which

    def process(self, observation: np.ndarray) -> np.ndarray:
        return np.split(observation, 2)[self.which]


def entry(observation: str, kind: Any, keep: bool = False, **config: Any) -> dict[str, Any]:
    return {"observation": observation, "class_path": kind, "keep_original": keep, "config": config}


def names(env: Any) -> dict[Any, list[str]]:
    return {key: list(space.spaces) for key, space in env.observation_spaces_dict.items()}


def test_each_observation_has_its_own_and_keeps_its_original_if_asked_to() -> None:
    env = PreProcessingWrapper.wrap(
        GymMazeEnv(Pictures()),
        pre_processor_mapping=[
            entry("rgb_image", WRAPPERS + "Rgb2GrayPreProcessor", keep=True, rgb_dim=-1),
            entry("month", WRAPPERS + "OneHotPreProcessor"),
        ],
    )
    assert names(env) == {0: ["month-one_hot", "rgb_image", "rgb_image-rgb2gray"]}
    observation, _ = env.reset(seed=3)
    raw, _ = Pictures().reset(seed=3)
    assert env.observation_space.contains(observation)
    np.testing.assert_array_equal(observation["rgb_image"], raw["rgb_image"])
    gray = raw["rgb_image"] @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(observation["rgb_image-rgb2gray"], gray, rtol=0, atol=0.503)  # bytes are rounded
    np.testing.assert_array_equal(observation["month-one_hot"], np.arange(1, 13) == raw["month"])


def test_a_cascade_leaves_only_its_end() -> None:
    env = PreProcessingWrapper(GymMazeEnv(Pictures()), CASCADE)
    assert names(env) == {0: ["month", "rgb_image-rgb2gray-resize_img-unsqueeze"]}
    end = env.observation_space["rgb_image-rgb2gray-resize_img-unsqueeze"]
    assert end == spaces.Box(0, 255, (1, 96, 96), np.uint8)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    assert env.observation_space.contains(env.step({"action": 0})[0])


def test_a_users_own_by_class_path_is_tagged_with_its_file() -> None:
    path = f"{HalvesPreProcessor.__module__}.HalvesPreProcessor"
    tag = HalvesPreProcessor.__module__.rpartition(".")[2]
    for kind in (path, HalvesPreProcessor):
        env = PreProcessingWrapper(GymMazeEnv("CartPole-v1"), [entry("observation", kind, which=1)])
        assert names(env) == {0: [f"observation-{tag}"]}
        raw, _ = GymMazeEnv("CartPole-v1").reset(seed=1)
        np.testing.assert_array_equal(env.reset(seed=1)[0][f"observation-{tag}"], raw["observation"][2:])
        high = GymMazeEnv("CartPole-v1").observation_space["observation"].high
        np.testing.assert_array_equal(env.observation_space[f"observation-{tag}"].high, high[2:])


def test_only_sub_steps_that_have_an_observation_are_processed() -> None:
    env = PreProcessingWrapper(
        make_heap_env(),
        [entry("target", OneHotPreProcessor), entry("heap", UnSqueezePreProcessor, keep=True, dim=0)],
    )
    assert names(env) == {
        "plan": ["heap", "heap-unsqueeze"],
        "work": ["amount_mask", "heap", "heap-unsqueeze", "target-one_hot"],
    }
    env.reset(seed=0)
    observation, *_ = env.step({"amount": 2})
    np.testing.assert_array_equal(observation["target-one_hot"], [0, 0, 1, 0])
    assert env.action_masks_dict["work"] == {"amount": "amount_mask"}


@pytest.mark.parametrize(
    ("make", "mapping"),
    [
        (lambda: GymMazeEnv("CartPole-v1"), [entry("observation", UnSqueezePreProcessor, dim=0)]),
        (
            make_heap_env,
            [
                entry("target", OneHotPreProcessor, keep=True),
                entry("amount_mask", UnSqueezePreProcessor, keep=True, dim=1),
            ],
        ),
    ],
)
def test_what_holds_for_every_wrapper_holds_for_processed_observations(make: Any, mapping: Any) -> None:
    def wrapped() -> Any:
        return TimeLimitWrapper.wrap(PreProcessingWrapper(make(), mapping), max_episode_steps=9)

    env = wrapped()
    log = play(env, 200)
    assert log == play(wrapped(), 200) == play(pickle.loads(pickle.dumps(wrapped())), 200)
    assert Spec.from_dict(Spec.of(env).to_dict()) == Spec.of(wrapped())
    assert isinstance(env, PreProcessingWrapper)


def test_recorded_states_are_processed_as_live_ones() -> None:
    class Telling(Wrapper):
        def get_observation_and_action_dicts(self, maze_state: Any, *_: Any) -> Any:
            return {key: one.maze_to_space(maze_state) for key, one in self.observation_conversion_dict.items()}, None

    env = PreProcessingWrapper(Telling(make_heap_env()), [entry("target", OneHotPreProcessor)])
    live, _ = env.reset(seed=0)
    live, *_ = env.step({"amount": 3})
    observations, _ = env.get_observation_and_action_dicts(env.get_maze_state(), None, False)
    assert observations is not None
    np.testing.assert_equal(observations["work"], live)
    assert "target-one_hot" not in observations["plan"]


def test_the_wrapper_may_occur_twice_and_be_normalised_afterwards() -> None:
    env = PreProcessingWrapper(GymMazeEnv("CartPole-v1"), [entry("observation", UnSqueezePreProcessor, dim=0)])
    env = PreProcessingWrapper(env, [entry("observation-unsqueeze", FlattenPreProcessor, num_flatten_dims=2)])
    env = ObservationNormalizationWrapper(env, default_strategy_config={"axis": 0})
    env.estimate(50, seed=0)
    plain = ObservationNormalizationWrapper(GymMazeEnv("CartPole-v1"), default_strategy_config={"axis": 0})
    plain.estimate(50, seed=0)
    expected, _ = plain.reset(seed=4)
    np.testing.assert_equal(env.reset(seed=4)[0], {"observation-unsqueeze-flatten": expected["observation"]})


def test_what_the_environment_returned_is_not_changed() -> None:
    env = PreProcessingWrapper(GymMazeEnv(Pictures()), CASCADE)
    raw, _ = env.env.reset(seed=0)
    before = {name: np.array(value) for name, value in raw.items()}
    env.observation(raw)
    np.testing.assert_equal(raw, before)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ([entry("image", FlattenPreProcessor, num_flatten_dims=2)], r"'image': not among \['month', 'rgb_image'\]"),
        (CASCADE[::-1], "'rgb_image-rgb2gray-resize_img': not among .*; is the order wrong"),
        ([CASCADE[0], CASCADE[0]], r"'rgb_image': not among \['month', 'rgb_image-rgb2gray'\]"),
        ([entry("month", OneHotPreProcessor, keep=True)] * 2, "'month': 'month-one_hot' exists already"),
        ([entry("rgb_image", OneHotPreProcessor)], "'rgb_image': OneHotPreProcessor needs a Discrete, not Box"),
        ([entry("month", Rgb2GrayPreProcessor)], r"'month': Rgb2GrayPreProcessor needs a Box.*Discrete\(12"),
        ([entry("rgb_image", Rgb2GrayPreProcessor, rgb_dim=0)], r"must be 3, but the shape is \(12, 10, 3\)"),
        ([entry("rgb_image", FlattenPreProcessor)], "missing 1 required positional argument: 'num_flatten_dims'"),
        ([entry("rgb_image", FlattenPreProcessor, n=2)], "unexpected keyword argument 'n'"),
        ([{"observation": "month", "_target_": "x"}], "_target_.* needs observation and class_path"),
        (
            [entry("month", "collections.OrderedDict")],
            "'month': 'collections.OrderedDict' is not a subclass of PreProcessor",
        ),
        ([entry("month", "collections.Nothing")], "collections has nothing named Nothing"),
    ],
)
def test_mappings_that_do_not_fit_are_refused(mapping: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        PreProcessingWrapper(GymMazeEnv(Pictures()), mapping)
    assert str(caught.value).startswith("PreProcessingWrapper: ")


def test_masks_cannot_be_removed() -> None:
    mapping = [entry("amount_mask", UnSqueezePreProcessor, dim=0)]
    with pytest.raises(ValueError, match="'amount_mask': it serves as an action mask"):
        PreProcessingWrapper(make_heap_env(), mapping)


def test_observations_of_one_name_must_have_one_space() -> None:
    class Uneven(PreProcessingWrapper):
        @property
        def observation_spaces_dict(self) -> Any:
            inner = self.env.observation_spaces_dict
            return {**inner, "plan": spaces.Dict({"heap": spaces.Box(0, 50, (1,), np.float32)})}

    with pytest.raises(ValueError, match="'heap': it has different spaces in different sub-steps"):
        PreProcessingWrapper(Uneven(make_heap_env(), []), [entry("heap", UnSqueezePreProcessor, dim=0)])


def test_an_observation_that_leaves_its_space_is_named() -> None:
    class Leaving(Pictures):
        def step(self, action: Any) -> Any:
            name, value = [("rgb_image", np.zeros((12, 9, 3), np.uint8)), ("month", 13)][int(action)]
            return {**self.observation_space.sample(), name: value}, 0.0, False, False, {}

    mapping = [entry("rgb_image", FlattenPreProcessor, num_flatten_dims=3), entry("month", OneHotPreProcessor)]
    env = PreProcessingWrapper(GymMazeEnv(Leaving()), mapping)
    env.reset(seed=0)
    with pytest.raises(EnvContractError, match=r"'rgb_image' is an array of shape \(12, 9, 3\).*not in Box"):
        env.step({"action": 0})
    with pytest.raises(EnvContractError, match=r"'month' is an array.*not in Discrete\(12, start=1\)") as caught:
        env.step({"action": 1})
    assert "13 is not one of the categories" in str(caught.value.__cause__)


def test_faults_of_a_users_own_stay_what_they_are() -> None:
    class Broken(PreProcessor):
        def process(self, observation: np.ndarray) -> np.ndarray:
            return observation if np.isinf(observation).any() or observation[0] == 4.8 else observation[9:10] / [][0]

        def processed_space(self) -> spaces.Space[Any]:
            return self.observation_space

    env = PreProcessingWrapper(GymMazeEnv("CartPole-v1"), [entry("observation", Broken)])
    with pytest.raises(IndexError, match="list index"):
        env.reset(seed=0)


def test_processes_of_environments_do_not_import_torch() -> None:
    code = (
        "import sys; from maze_pl.envs.wrappers import PreProcessingWrapper, ResizeImgPreProcessor;"
        "from maze_pl.envs import GymMazeEnv; from gymnasium import spaces; import numpy as np;"
        "ResizeImgPreProcessor(spaces.Box(0, 1, (4, 4)), [2, 2]).process(np.ones((4, 4), np.float32));"
        "assert not {'torch', 'tqdm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mapping_that_does_not_fit_ends_the_command_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--config", "ppo_cartpole", "--data.wrappers", "wrappers/pixel_obs"]
    assert main(["fit", *arguments]) == 2
    message = "PreProcessingWrapper: observation 'observation': the colours, dimension rgb_dim=-1, must be 3"
    assert message in capsys.readouterr().err
