"""Environments and networks that break their contract, each in one way; configurations of the tests name them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from maze_pl.perception import FlattenConcatPolicyNet, FlattenConcatStateValueNet

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


class TupleAction(Sound):
    action_space = spaces.Tuple([spaces.Discrete(2), BOX])


class GraphObservation(Sound):
    observation_space = spaces.Graph(BOX, None)


class AllForbidden(Sound):
    observation_space = spaces.Dict({"position": BOX, "mask": spaces.MultiBinary(2)})

    def observe(self) -> Any:
        allowed = np.array([1, 1] if self.steps < 3 else [0, 0], np.int8)
        return {"position": np.zeros(3, np.float32), "mask": allowed}


class PolicyNetNotANumber(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {name: value + float("nan") for name, value in super().forward(in_dict).items()}


class CriticNotANumber(FlattenConcatStateValueNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {name: value + float("nan") for name, value in super().forward(in_dict).items()}


class WrongNames(FlattenConcatPolicyNet):
    def forward(self, in_dict: Any) -> dict[str, torch.Tensor]:
        return {f"{name}s": value for name, value in super().forward(in_dict).items()}


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
