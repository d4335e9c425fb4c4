"""Functions of tensors after their translation: ONNX Runtime computes what torch and NumPy compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import mpmath
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from maze_pl import distributions
from maze_pl.bundle.head_outputs import head_outputs, magnitude_of
from maze_pl.bundle.observation_stages import observation_stage
from maze_pl.bundle.onnx_graphs import to_onnx
from maze_pl.bundle.quantiles import normal_quantile
from maze_pl.envs import GymMazeEnv
from maze_pl.envs import wrappers as ours

pytestmark = pytest.mark.slow
Tensors = dict[str, Tensor]
LOGITS = torch.tensor([-1e4, -200, -60, -30, -18, -12, -8, -5, -0.5, 0, 0.5, 5, 8, 12, 18, 30, 60, 200, 1e4])
PAIRS = torch.cartesian_prod(LOGITS, LOGITS)  # [B, 2]


class Graph(nn.Module):
    """A function of named tensors as a module."""

    def __init__(self, function: Callable[[Tensors], Tensors]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensors) -> Tensors:
        return self.function(inputs)


def in_onnx_runtime(function: Callable[[Tensors], Tensors], inputs: Tensors) -> Callable[[Tensors], dict[str, Any]]:
    """Translate a function for inputs like these."""
    graph = Graph(function)
    names = list(function(inputs))
    session = onnxruntime.InferenceSession(to_onnx(graph, inputs, names, "the graph"))

    def run(given: Tensors) -> dict[str, Any]:
        return dict(zip(names, session.run(names, {name: x.numpy() for name, x in given.items()}), strict=True))

    return run


def test_log_probabilities_of_confident_bits_are_exact() -> None:
    kind, space = distributions.BernoulliProbabilityDistribution, spaces.MultiBinary(2)
    outputs = head_outputs("head", kind, space)

    def decided(inputs: Tensors) -> Tensors:
        part = kind(inputs["logits"], space, 1.0, inputs["mask"])
        network = functional.logsigmoid(inputs["logits"])  # as in a network of a user
        parameters = outputs.parameters(part)
        return {"parameters": parameters, "sampled": outputs.sample(part, inputs["uniforms"]), "network": network}

    inputs = {
        "logits": PAIRS,
        "mask": torch.ones_like(PAIRS),
        "uniforms": torch.rand((len(PAIRS), 2), dtype=torch.float64),
    }
    inputs["mask"][3, 1] = 0.0
    found = in_onnx_runtime(decided, inputs)(inputs)
    with mpmath.workdps(30):
        for row, (logits, mask) in enumerate(zip(PAIRS.tolist(), inputs["mask"].tolist(), strict=True)):
            for bit, (logit, is_allowed) in enumerate(zip(logits, mask, strict=True)):
                expected = [float(-mpmath.log1p(mpmath.exp(sign * mpmath.mpf(logit)))) for sign in (1, -1)]
                assert found["network"][row, bit] == pytest.approx(expected[1], rel=1e-6, abs=1e-6)
                if not is_allowed:
                    expected = [0.0, float(np.finfo(np.float32).min)]
                log_probs = found["parameters"][row, 2 * bit : 2 * bit + 2].tolist()
                assert log_probs == pytest.approx(expected, rel=1e-6, abs=1e-6)
                is_one = float(inputs["uniforms"][row, bit]) >= np.exp(expected[0])
                assert found["sampled"][row, bit] == is_one


BOX = spaces.Box(0.0, 1000.0, (1,), np.float32)
HEADS: list[tuple[Any, Any, Tensor]] = [
    (distributions.CategoricalProbabilityDistribution, spaces.Discrete(2), PAIRS),
    (
        distributions.MultiCategoricalProbabilityDistribution,
        spaces.MultiDiscrete([2, 2]),
        torch.cat((PAIRS, -PAIRS), 1),
    ),
    (distributions.EpsilonGreedyProbabilityDistribution, spaces.Discrete(2), PAIRS),
    (distributions.BetaProbabilityDistribution, BOX, PAIRS),
    (distributions.DeterministicProbabilityDistribution, BOX, PAIRS[:, :1]),
    (distributions.DiagonalGaussianProbabilityDistribution, BOX, PAIRS.clamp(max=20.0)),
    (distributions.SquashedGaussianProbabilityDistribution, BOX, PAIRS.clamp(max=20.0)),
]


@pytest.mark.long
def test_distributions_with_extreme_parameters_are_those_of_torch() -> None:
    parts = [head_outputs("head", kind, space) for kind, space, _ in HEADS]

    def decided(inputs: Tensors) -> Tensors:
        found: Tensors = {}
        for number, (outputs, (kind, space, _)) in enumerate(zip(parts, HEADS, strict=True)):
            part = kind(inputs[f"logits/{number}"], space)
            part.exploration = 0.2
            found[f"parameters/{number}"] = outputs.parameters(part)
            found[f"action/{number}"] = part.deterministic_sample()
            if kind is not distributions.BetaProbabilityDistribution:  # translating its quantiles takes long
                found[f"sample/{number}"] = outputs.sample(part, inputs[f"uniforms/{number}"])
        return found

    inputs: Tensors = {}
    generator = torch.Generator().manual_seed(0)
    for number, (outputs, (_, _, logits)) in enumerate(zip(parts, HEADS, strict=True)):
        inputs[f"logits/{number}"] = logits.contiguous()
        shape = (len(logits), outputs.n_uniforms)
        inputs[f"uniforms/{number}"] = torch.rand(shape, dtype=torch.float64, generator=generator)
    expected = decided(inputs)
    for name, array in in_onnx_runtime(decided, inputs)(inputs).items():
        what, _, number = name.partition("/")
        space = HEADS[int(number)][1]
        wanted = expected[name].double().numpy()
        size: Any = parts[int(number)].magnitude
        if what != "parameters" and isinstance(space, spaces.Box):
            size = magnitude_of(space.low, space.high)
        assert np.isfinite(array).all(), (name, HEADS[int(number)][:2])
        difference = np.abs(array - wanted) / np.maximum(size, np.abs(wanted))
        assert difference.max() < 1e-6, (name, HEADS[int(number)][:2])


def test_normal_quantiles_keep_the_accuracy_of_float64() -> None:
    several = [1e-15, 1e-8, 0.01, 0.074, 0.076, 0.3, 0.5, 0.924, 0.99, 1 - 1e-9, 1 - 2**-53]
    probability = torch.tensor([*several, *np.random.default_rng(0).random(50)], dtype=torch.float64)
    inputs = {"probability": probability}
    run = in_onnx_runtime(lambda given: {"quantile": normal_quantile(given["probability"])}, inputs)
    expected = torch.special.ndtri(probability).numpy()
    np.testing.assert_allclose(run(inputs)["quantile"], expected, rtol=1e-13, atol=1e-13)


def test_resized_bytes_are_those_of_the_wrapper() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (60, 96, 96), np.uint8)
    sizes = [[32, 32], [72, 60], [37, 41], [1, 1]]  # the sums for 37 x 41 need float64

    class Pictures(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict({"picture": spaces.Box(0, 255, (96, 96), np.uint8)})
        action_space = spaces.Discrete(2)

    wrappers = []
    for size in sizes:
        entry = {
            "observation": "picture",
            "class_path": "maze_pl.envs.wrappers.ResizeImgPreProcessor",
            "config": {"target_size": size},
        }
        wrappers.append(ours.PreProcessingWrapper(GymMazeEnv(Pictures()), [entry]))
    stages = [observation_stage(wrapper, 0, 0) for wrapper in wrappers]

    def resized(inputs: Tensors) -> Tensors:
        found = {}
        for number, stage in enumerate(stages):
            assert stage is not None
            observation, _ = stage.apply(inputs, {})
            found[str(number)] = observation["picture-resize_img"]
        return found

    inputs = {"picture": torch.from_numpy(pictures)}
    run = in_onnx_runtime(resized, inputs)
    of_batch = run(inputs)
    for row, picture in enumerate(pictures):
        alone = run({"picture": inputs["picture"][row : row + 1]})
        for number, wrapper in enumerate(wrappers):
            expected = wrapper.observation({"picture": picture})["picture-resize_img"]
            np.testing.assert_array_equal(of_batch[str(number)][row], expected)
            np.testing.assert_array_equal(alone[str(number)][0], expected)


_TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
TYPES = _TYPES.split()


def box_of(name: str) -> spaces.Box:
    """Return a box of all finite numbers of a type, small ones for floats."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return spaces.Box(0, 1, (2,), dtype.type)
    bounds = (-100.0, 100.0) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return spaces.Box(np.full(2, bounds[0], dtype), np.full(2, bounds[1], dtype), dtype=dtype.type)


class Simulation(gymnasium.Env[Any, Any]):
    """Shows observations of all types."""

    observation_space = spaces.Dict({name: box_of(name) for name in TYPES})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}


def numbers(name: str, generator: np.random.Generator) -> Any:
    """Return an observation with numbers over the whole range of a type."""
    dtype = np.dtype(name)
    if dtype.kind == "f":
        return generator.uniform(-100, 100, 2).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, 2).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, 2, dtype, endpoint=True)


def test_stacks_of_all_types_are_those_of_the_wrapper() -> None:
    stacks = [{"observation": name, "stack_steps": 3, "keep_original": True, "tag": "all"} for name in TYPES]
    wrapper: Any = ours.ObservationStackWrapper(GymMazeEnv(Simulation()), stacks)
    stage = observation_stage(wrapper, 0, 0)
    assert stage is not None

    def stacked(inputs: Mapping[str, Tensor]) -> Tensors:
        observation = {name: inputs[f"observation/{name}"] for name in TYPES}
        state = {name: inputs[f"state/{name}"] for name in stage.state}
        found, changed = stage.apply(observation, state)
        results = {f"stacked/{name}": found[f"{name}-all"] for name in TYPES}
        return results | {f"next_state/{name}": value for name, value in changed.items()}

    generator = np.random.default_rng(0)
    inputs: Tensors = {}
    for name, (dtype, shape) in stage.state.items():
        inputs[f"state/{name}"] = torch.from_numpy(np.zeros((2, *shape), dtype))
    run: Any = None
    wrapper.reset(seed=0)
    wrapper._live.clear()
    for _ in range(4):
        raw = {name: numbers(name, generator) for name in TYPES}
        for name, value in raw.items():
            inputs[f"observation/{name}"] = torch.from_numpy(np.stack([value, value]))
        run = run or in_onnx_runtime(stacked, inputs)
        found = run(inputs)
        expected = wrapper.observation(raw)
        for name in TYPES:
            assert found[f"stacked/{name}"].dtype == np.dtype(name)
            np.testing.assert_array_equal(found[f"stacked/{name}"][1], expected[f"{name}-all"])
        for name, (dtype, _) in stage.state.items():
            inputs[f"state/{name}"] = torch.from_numpy(found[f"next_state/{name}"].astype(dtype))
