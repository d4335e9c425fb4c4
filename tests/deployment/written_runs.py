"""Runs and bundles for CartPole, written without training or tracing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

from maze_pl.bundle.bundle_files import bundle_bytes
from maze_pl.collect.state_tensors import to_tensors
from maze_pl.core.checkpoint_content import WRAPPER_STATISTICS, add_to_checkpoint
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv, ObservationWrapper, Wrapper
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.wrappers import ObservationNormalizationWrapper
from maze_pl.modules import PPO
from maze_pl.runs.part_factories import to_factories, to_factory
from tests.deployment.replaying import estimated

CART_POLE = {"class_path": "maze_pl.envs.GymMazeEnv", "init_args": {"env": "CartPole-v1"}}


class Passing(ObservationWrapper):
    """A custom wrapper, which no bundle contains, with everything inside of it."""

    def observation(self, observation: Any) -> Any:
        return observation


def normalizing(env: Any) -> ObservationWrapper:
    """A function, which does not tell what it makes."""
    return ObservationNormalizationWrapper(env, default_statistics={"mean": 0.0, "std": 3.0})


def normalized_pole() -> ObservationWrapper:
    """An environment that has a normalisation itself."""
    return normalizing(GymMazeEnv("CartPole-v1"))


class Holding(Wrapper):
    """A custom wrapper that holds something which exists once, such as a port."""

    made: ClassVar[list[Any]] = []

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.made.append(self)


class Simulation(GymMazeEnv):
    """An environment that holds something which exists once."""

    is_open: ClassVar[list[bool]] = []
    """Whether each environment is open, in the order in which they were made."""

    def __init__(self) -> None:
        super().__init__("CartPole-v1")
        self.place = len(self.is_open)
        self.is_open.append(True)

    def close(self) -> None:
        """Close the environment."""
        self.is_open[self.place] = False
        super().close()


PASSING = {"class_path": f"{__name__}.Passing"}
NORMALIZING = f"{__name__}.normalizing"
NORMALIZED_POLE = f"{__name__}.normalized_pole"
HOLDING = {"class_path": f"{__name__}.Holding"}
SIMULATION = {"class_path": f"{__name__}.Simulation"}


def configured(name: str, **arguments: Any) -> dict[str, Any]:
    """Configuration of a wrapper of maze_pl."""
    return {"class_path": f"maze_pl.envs.wrappers.{name}", "init_args": arguments}


def write_run(folder: Path, wrappers: list[dict[str, Any] | str], env: dict[str, Any] | str = CART_POLE) -> Path:
    """Write the checkpoint of a run with these wrappers, and return its file."""
    make_env, factories = to_factory(env, "env"), to_factories(wrappers)
    spec = Spec.of(make_wrapped(make_env, factories))
    torch.manual_seed(0)
    module = PPO(spec=spec)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    statistics = to_tensors(estimated(make_env, factories))
    data = {"env": env, "wrappers": wrappers, "evaluators": {}}
    content = {"state_dict": module.state_dict(), "RolloutDataModule": {WRAPPER_STATISTICS: statistics}}
    config: Any = {
        "model": {"class_path": "maze_pl.modules.PPO"},
        "data": {"class_path": "maze_pl.datamodules.RolloutDataModule", "init_args": data},
    }
    add_to_checkpoint(content, spec=spec.to_dict(), env_steps=0, config=config)
    path = folder / "checkpoints" / "best.ckpt"
    path.parent.mkdir(parents=True)
    torch.save(content, path)
    return path


def write_bundle(path: Path, wrappers: dict[str, bool]) -> Path:
    """Write a bundle that pushes to the side of the pole.

    Args:
        path: Its file.
        wrappers: Names of the wrappers of its environment -> whether it contains them.
    """
    box = {"type": "box", "shape": [4], "dtype": "float32", "low": -float("inf"), "high": float("inf")}
    head = {"distribution": "x", "parameters": "log-probabilities", "size": 2, "n_uniforms": 1, "choices": [2]}
    step = {
        "key": 0,
        "graph": "graphs/0.onnx",
        "observations": {"observation": box},
        "actions": {"action": {"type": "discrete", "n": 2, "start": 0}},
        "masks": {},
        "heads": {"action": head},
        "n_uniforms": 1,
        "state": {},
        "separate_networks": None,
    }
    roles = [{"name": name, "is_included": is_in, "note": ""} for name, is_in in wrappers.items()]
    path.write_bytes(bundle_bytes({"steps": [step], "wrappers": roles}, {"graphs/0.onnx": _graph()}))
    return path


def _graph() -> bytes:
    """The logits are the angle of the pole and its negative; a sampled action is 1 for uniform numbers above 1/2."""
    node, value = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Slice", ["observation/observation", "two", "three", "one"], ["angle"]),
        node("Neg", ["angle"], ["other"]),
        node("Concat", ["other", "angle"], ["parameters/action"], axis=1),
        node("ArgMax", ["parameters/action"], ["action/action"], axis=1, keepdims=0),
        node("Greater", ["uniforms", "half"], ["above"]),
        node("Cast", ["above"], ["numbers"], to=TensorProto.INT64),
        node("ReduceSum", ["numbers", "one"], ["sample/action"], keepdims=0),
    ]
    inputs = [
        value("observation/observation", TensorProto.FLOAT, ["B", 4]),
        value("uniforms", TensorProto.DOUBLE, ["B", 1]),
    ]
    outputs = [
        value("action/action", TensorProto.INT64, ["B"]),
        value("sample/action", TensorProto.INT64, ["B"]),
        value("parameters/action", TensorProto.FLOAT, ["B", 2]),
    ]
    constants = [numpy_helper.from_array(np.array([0.5]), "half")]
    for number, name in enumerate(("one", "two", "three"), 1):
        constants.append(numpy_helper.from_array(np.array([number], np.int64), name))
    made = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content
