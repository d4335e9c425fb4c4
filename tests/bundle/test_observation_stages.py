"""Wrappers as functions of tensors: a batch gets what the wrapper computes for each of its observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.bundle.action_stages import applied, within_bounds
from maze_pl.bundle.observation_stages import STARTED, observation_stage
from maze_pl.envs import GymMazeEnv
from maze_pl.envs import wrappers as ours
from maze_pl.envs.wrapper import Wrapper

OBSERVATIONS = spaces.Dict(
    {
        "wide": spaces.Box(-5.0, 5.0, (2, 3), np.float64),
        "picture": spaces.Box(0, 255, (6, 4, 3), np.uint8),
        "counts": spaces.Box(0, 9, (3,), np.int64),
        "place": spaces.Discrete(4, start=2),
    }
)
ACTIONS = spaces.Dict({"force": spaces.Box(-2.0, 2.0, (3,), np.float32), "gear": spaces.Discrete(2)})


class Simulation(gymnasium.Env[Any, Any]):
    """Shows random observations."""

    observation_space = OBSERVATIONS
    action_space = ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {}


def pre_processed(env: Any) -> Wrapper:
    package = "maze_pl.envs.wrappers"
    entries = [
        ("picture", "Rgb2GrayPreProcessor", {"rgb_dim": -1}, True),
        ("picture", "ResizeImgPreProcessor", {"target_size": [3, 2]}, True),
        ("picture-rgb2gray", "UnSqueezePreProcessor", {"dim": -3}, False),
        ("picture", "TransposePreProcessor", {"axes": [2, 0, 1]}, False),
        ("wide", "FlattenPreProcessor", {"num_flatten_dims": 2}, True),
        ("wide", "ResizeImgPreProcessor", {"target_size": [4, 2]}, False),
        ("place", "OneHotPreProcessor", {}, False),
    ]
    mapping = [
        {"observation": name, "class_path": f"{package}.{kind}", "config": config, "keep_original": keep}
        for name, kind, config, keep in entries
    ]
    return ours.PreProcessingWrapper(env, mapping)


def normalized(env: Any) -> Wrapper:
    strategy = "maze_pl.envs.wrappers.RangeZeroOneObservationNormalizationStrategy"
    manual = {"picture": {"strategy": strategy, "strategy_config": {"axis": [0, 1]}}}
    options: Any = {"axis": 0, "clip_range": [-1.0, None]}
    wrapper = ours.ObservationNormalizationWrapper(env, default_strategy_config=options, manual_config=manual)
    wrapper.estimate(20, 0)
    return wrapper


def of_shared_rows(env: Any) -> Wrapper:
    wrapper = ours.RunningObservationNormalizationWrapper(env, shared_rows=["wide"])
    wrapper.estimate(20, 0)
    return wrapper


def stacked(env: Any) -> Wrapper:
    stacks = [
        {"observation": "wide", "stack_steps": 3, "delta": True},
        {"observation": "counts", "stack_steps": 2, "tag": "both", "keep_original": True, "delta": True},
        {"observation": "picture", "stack_steps": 2},
    ]
    return ours.ObservationStackWrapper(env, stacks)


@pytest.mark.parametrize("make", [pre_processed, normalized, of_shared_rows, stacked])
def test_a_stage_computes_what_its_wrapper_computes(make: Any) -> None:
    env = GymMazeEnv(Simulation())
    wrapper = make(env)
    stage = observation_stage(wrapper, 0, 1)
    assert stage is not None
    wrapper.reset(seed=1)
    wrapper.env.reset(seed=1)
    state: dict[str, torch.Tensor] = {}
    for name, (dtype, shape) in stage.state.items():
        state[name] = torch.from_numpy(np.zeros((2, *shape), dtype))
    getattr(wrapper, "_live", {}).clear()
    for _ in range(4):
        raw = {name: np.asarray(value) for name, value in OBSERVATIONS.sample().items()}
        expected = wrapper.observation(raw)
        tensors = {name: torch.from_numpy(np.stack([value, value])) for name, value in raw.items()}
        found, changed = stage.apply(tensors, state)
        state |= changed
        assert set(found) == set(wrapper.observation_spaces_dict[0].spaces)
        for name, value in expected.items():
            assert found[name].numpy().dtype == value.dtype, name
            np.testing.assert_allclose(found[name].numpy(), np.stack([value, value]), rtol=1e-6, atol=1e-6)
    if make is stacked:
        assert state[STARTED].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("shape", "size"), [((24, 20), (12, 10)), ((8, 8), (6, 6)), ((30, 20, 3), (7, 11))])
def test_a_stage_rounds_bytes_as_its_wrapper_does(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    simulation = Simulation()
    simulation.observation_space = spaces.Dict({"picture": spaces.Box(0, 255, shape, np.uint8)})
    resize = {"observation": "picture", "class_path": ours.ResizeImgPreProcessor, "config": {"target_size": [*size]}}
    wrapper = ours.PreProcessingWrapper(GymMazeEnv(simulation), [resize])
    stage = observation_stage(wrapper, 0, 0)
    assert stage is not None
    pictures = np.random.default_rng(0).integers(0, 256, (500, *shape), np.uint8)
    of_batch, _ = stage.apply({"picture": torch.from_numpy(pictures)}, {})
    for row, picture in enumerate(pictures):
        expected = wrapper.observation({"picture": picture})["picture-resize_img"]
        alone, _ = stage.apply({"picture": torch.from_numpy(picture)[None]}, {})
        np.testing.assert_array_equal(of_batch["picture-resize_img"][row].numpy(), expected)
        np.testing.assert_array_equal(alone["picture-resize_img"][0].numpy(), expected)


def test_a_new_episode_starts_with_new_stacks_whatever_the_history_holds() -> None:
    stage = observation_stage(stacked(GymMazeEnv(Simulation())), 0, 0)
    assert stage is not None
    state = {
        n: torch.full((1, *shape), 7, dtype=torch.from_numpy(np.zeros(0, d)).dtype)
        for n, (d, shape) in stage.state.items()
    }
    state[STARTED] = torch.zeros(1)
    raw = {name: torch.from_numpy(np.asarray(value))[None] for name, value in OBSERVATIONS.sample().items()}
    found, _ = stage.apply(raw, state)
    assert (found["picture"][:, 0] == found["picture"][:, 1]).all()
    assert (found["wide"][:, :2] == 0).all()


def test_actions_pass_through_wrappers_as_in_numpy() -> None:
    split: Any = {"force": {"side": {"indices": [2, 0]}, "main": {"indices": [1]}}}
    inner = ours.SplitActionsWrapper(GymMazeEnv(Simulation()), split)
    outer = ours.DiscretizeActionsWrapper(inner, {"side": {"num_bins": 5}, "main": {"num_bins": 3}})
    space = outer.action_space
    space.seed(3)
    actions = [space.sample() for _ in range(20)]
    tensors = {head: torch.from_numpy(np.stack([action[head] for action in actions])) for head in space}
    found = applied(inner, applied(outer, within_bounds(tensors, space)))
    for row, action in enumerate(actions):
        expected = inner.action(outer.action(action))
        assert found.keys() == expected.keys()
        for head, value in expected.items():
            np.testing.assert_array_equal(found[head][row].numpy(), value)


def test_boxes_are_clipped_to_their_bounds_in_their_type() -> None:
    space = spaces.Dict({"force": spaces.Box(np.array([-1.0, -np.inf]), np.array([0.3, np.inf]), dtype=np.float64)})
    found = within_bounds({"force": torch.tensor([[2.0, 9.0], [-3.0, -9.0]])}, space)["force"]
    assert found.dtype == torch.float64
    assert found.tolist() == [[0.3, 9.0], [-1.0, -9.0]]


CLIPPED: dict[str, Any] = {"default_strategy_config": {"clip_range": [-5.0, 5.0]}}


@pytest.mark.parametrize(
    ("wrapper", "options", "takes_infinity"),
    [
        (ours.ObservationNormalizationWrapper, CLIPPED, True),
        (ours.ObservationNormalizationWrapper, {}, False),
        (ours.RunningObservationNormalizationWrapper, {}, False),
    ],
)
def test_infinite_observations_are_read_only_where_the_wrapper_clips_them(
    wrapper: Any, options: dict[str, Any], takes_infinity: bool
) -> None:
    env = wrapper(GymMazeEnv(Simulation()), exclude=["picture", "counts", "place"], **options)
    env.strategies["wide"].set_normalization_stats({"mean": [[0.0] * 3] * 2, "std": [[1.0] * 3] * 2})
    stage = observation_stage(env, 0, 0)
    assert stage is not None and stage.clips("wide") is takes_infinity
    seen = env.normalized({"wide": np.full((2, 3), np.inf)}, is_many=False)["wide"]
    assert bool(np.isfinite(seen).all()) is takes_infinity
