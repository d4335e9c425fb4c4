"""Environments and networks that break their contract, each in one way; configurations of the tests name them."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from maze_pl.core.actor_id import ActorID
from maze_pl.envs import CoreEnv, GymActionConversion, MazeEnv, ObservationConversionInterface
from maze_pl.perception import (
    ConcatenationBlock,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    InferenceBlock,
    LinearOutputBlock,
    PerceptionBlock,
)

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Sound(gymnasium.Env[Any, Any]):
    """Episodes of five steps in which nothing is wrong."""

    observation_space: spaces.Space[Any] = BOX
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def observe(self) -> Any:
        return np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observe(), 1.0, self.steps == 5, False, {}


class Exits(Sound):
    def step(self, action: Any) -> Any:
        sys.exit()


class ExitsWithStatus(Sound):
    def step(self, action: Any) -> Any:
        sys.exit(7)


class CallsItself(Sound):
    def step(self, action: Any) -> Any:
        return self.step(action)


class KeysOfNumbers(Sound):
    observation_space = spaces.Dict({1: BOX, 2: BOX})

    def observe(self) -> Any:
        return {1: np.zeros(3, np.float32), 2: np.zeros(3, np.float32)}


class OldReset(Sound):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class NoObservation(Sound):
    def observe(self) -> Any:
        return None


class WrongShape(Sound):
    def observe(self) -> Any:
        return np.zeros(4, np.float32)


class LaterWrongShape(Sound):
    def observe(self) -> Any:
        return np.zeros(3 if self.steps < 3 else 4, np.float32)


class MissingPart(Sound):
    observation_space = spaces.Dict({"position": BOX, "speed": BOX})

    def observe(self) -> Any:
        return {"position": np.zeros(3, np.float32)}


class NotANumber(Sound):
    def observe(self) -> Any:
        return np.array([0.0, 0.0 if self.steps < 3 else np.nan, 0.0], np.float32)


class InfiniteReward(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation, np.inf if self.steps == 4 else 0.0, *rest)


class RewardNotANumber(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation, float("nan"), *rest)


class NoReward(Sound):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation, None, *rest)


class TerminatedText(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, *rest = super().step(action)
        return (observation, reward, "no", *rest)


class NoSpace(Sound):
    observation_space = None  # type: ignore[assignment]


class TextAction(Sound):
    action_space = spaces.Text(5)


class UnboundedAction(Sound):
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class SequenceAction(Sound):
    action_space = spaces.Sequence(BOX)


class GraphObservation(Sound):
    observation_space = spaces.Graph(BOX, None)


class AllForbidden(Sound):
    observation_space = spaces.Dict({"position": BOX, "mask": spaces.MultiBinary(2)})

    def observe(self) -> Any:
        allowed = np.array([1, 1] if self.steps < 3 else [0, 0], np.int8)
        return {"position": np.zeros(3, np.float32), "mask": allowed}


class SameNames(Sound):
    observation_space = spaces.Dict({"a": spaces.Dict({"b": BOX}), "a/b": BOX})


class Converted(ObservationConversionInterface):
    """A conversion whose observations are what it is given, whatever its space says."""

    def __init__(self, position: Any) -> None:
        self.position = position

    def space(self) -> spaces.Dict:
        return spaces.Dict({"position": BOX, "goal": spaces.Discrete(3)})

    def maze_to_space(self, maze_state: Any) -> Any:
        return {"position": np.zeros(3, np.float32), "goal": np.array(0), **self.position}


class Simulation(CoreEnv):
    """A simulation in which nothing happens."""

    def step(self, maze_action: Any) -> Any:
        return None, 1.0, False, False, {}

    def reset(self) -> Any:
        return None

    def seed(self, seed: int) -> None:
        self.last_seed = seed

    def close(self) -> None:
        self.last_seed = 0

    def get_maze_state(self) -> Any:
        return None


def _converted(position: Any) -> MazeEnv:
    return MazeEnv(Simulation(), {0: GymActionConversion(spaces.Discrete(2))}, {0: Converted(position)})


def converted_out_of_bounds() -> MazeEnv:
    """A conversion that leaves its space."""
    return _converted({"position": np.array([0, 7, 0], np.float32)})


def converted_fraction() -> MazeEnv:
    """A conversion that gives a fraction where it promised an integer."""
    return _converted({"goal": np.array(0.5)})


def converted_shape() -> MazeEnv:
    """A conversion whose observation could be broadcast to what it should be."""
    return _converted({"position": np.zeros(1, np.float32)})


def converted_more() -> MazeEnv:
    """A conversion with an observation that it does not declare."""
    return _converted({"speed": np.zeros(1, np.float32)})


class OtherSubStep(Simulation):
    def actor_id(self) -> ActorID:
        return ActorID("cut", 0)


def actor_of_another_sub_step() -> MazeEnv:
    """A simulation whose actor belongs to a sub-step that it does not declare."""
    return MazeEnv(OtherSubStep(), {0: GymActionConversion(spaces.Discrete(2))}, {0: Converted({})})


class PolicyNetNotANumber(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {name: value + float("nan") for name, value in super().forward(in_dict).items()}


class CriticNotANumber(FlattenConcatStateValueNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {name: value + float("nan") for name, value in super().forward(in_dict).items()}


class WrongNames(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {f"{name}s": value for name, value in super().forward(in_dict).items()}


class WrongLogits(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {name: torch.zeros(len(value), 3) for name, value in super().forward(in_dict).items()}


class FailsWhenMade(FlattenConcatPolicyNet):
    def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
        super().__init__({"picture": obs_shapes["picture"]}, action_logits_shapes)


class FailsWhenRun(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> Any:
        return super().forward({"observation": in_dict["picture"]})


class BlocksInACycle(torch.nn.Module):
    """Networks of blocks that do not fit together."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
        super().__init__()
        self.net = InferenceBlock("observation", "action", obs_shapes["observation"], self.blocks())

    def blocks(self) -> dict[str, PerceptionBlock]:
        return {
            "first": DenseBlock("second", "first", [4], hidden_units=[4]),
            "second": DenseBlock("first", "second", [4], hidden_units=[4]),
            "head": LinearOutputBlock("observation", "action", [4], output_units=2),
        }

    def forward(self, in_dict: Any) -> Any:
        return self.net(in_dict)


class BlocksWriteOneKey(BlocksInACycle):
    def blocks(self) -> dict[str, PerceptionBlock]:
        head = LinearOutputBlock("observation", "action", [4], output_units=2)
        return {"first": head, "second": head}


class BlocksCannotBeJoined(BlocksInACycle):
    def blocks(self) -> dict[str, PerceptionBlock]:
        return {"joined": ConcatenationBlock(["observation", "square"], "action", [[4], [2, 2]])}


class BlocksDoNotFit(BlocksInACycle):
    def blocks(self) -> dict[str, PerceptionBlock]:
        return {"head": LinearOutputBlock("observation", "action", [5], output_units=2)}


def make_nothing() -> Sound:
    """A factory that forgets to return what it makes."""
    return None  # type: ignore[return-value]


def make_text() -> str:
    """A factory of something else."""
    return "environment"


class Bug(Sound):
    """Not a broken contract but a mistake, whose trace helps to find it."""

    def step(self, action: Any) -> Any:
        return {}["position"]


class CartPoleNotANumber(CartPoleEnv):
    """Has the spaces of CartPole-v1."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation * np.float32("nan"), *rest)
