"""Environments for the contract test, with actions that are vectors, or with spaces that have no names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs import ActionConversionInterface, GymMazeEnv, MazeEnv, ObservationConversionInterface
from maze_pl.envs.gym_core_env import GymCoreEnv
from maze_pl.events.event_logs import EventLogWriter
from maze_pl.events.pubsub import EventRecord
from tests.envs.structured_example import HeapCoreEnv, NamedAction, PlanObservation, WorkObservation


class VectorAction(NamedAction):
    """The amount as the mean of two numbers."""

    def space(self) -> spaces.Dict:
        return spaces.Dict({"amount": spaces.Box(0, 3, (2,), np.float32)})

    def space_to_maze(self, action: Any, maze_state: Any) -> tuple[str, int]:
        return self.kind, round(float(np.mean(action["amount"])))

    def maze_to_space(self, maze_action: tuple[str, int]) -> Any:
        return {"amount": np.full(2, maze_action[1], np.float32)}


def make_vector_heap_env() -> MazeEnv:
    return MazeEnv(
        HeapCoreEnv(),
        action_conversion_dict={"plan": VectorAction("plan"), "work": VectorAction("work")},
        observation_conversion_dict={"plan": PlanObservation(), "work": WorkObservation()},
    )


class RestingHeapCoreEnv(HeapCoreEnv):
    """Worker 1 rests from the third environment step on, but is not done."""

    def is_actor_done(self) -> bool:
        return False


def make_resting_heap_env() -> MazeEnv:
    return MazeEnv(
        RestingHeapCoreEnv(),
        action_conversion_dict={"plan": NamedAction("plan"), "work": NamedAction("work", "amount_mask")},
        observation_conversion_dict={"plan": PlanObservation(), "work": WorkObservation()},
    )


class Bare(ObservationConversionInterface, ActionConversionInterface):
    """States as observations and actions as actions, without names."""

    def __init__(self, bare_space: spaces.Space[Any], kind: str | None = None) -> None:
        self.bare_space, self.kind = bare_space, kind

    def space(self) -> Any:
        return self.bare_space

    def maze_to_space(self, maze_state: Any) -> Any:
        if self.kind is not None:
            return maze_state[1]
        return maze_state.copy() if isinstance(maze_state, np.ndarray) else maze_state

    def space_to_maze(self, action: Any, maze_state: Any = None) -> Any:
        return action if self.kind is None else (self.kind, int(action))


class BareHeap(Bare):
    def maze_to_space(self, maze_state: Any) -> Any:
        return np.array([maze_state["heap"]], np.float32)


def make_bare_env() -> MazeEnv:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    return MazeEnv(GymCoreEnv(env), {0: Bare(env.action_space)}, {0: Bare(env.observation_space)})


def make_bare_heap_env() -> MazeEnv:
    heap = BareHeap(spaces.Box(0, 100, (1,), np.float32))
    actions = {kind: Bare(spaces.Discrete(4), kind=kind) for kind in ("plan", "work")}
    return MazeEnv(HeapCoreEnv(), actions, {"plan": heap, "work": heap})


class CountingWriter(EventLogWriter):
    """Writes nothing down."""

    def __init__(self) -> None:
        super().__init__()
        self.n_records = 0

    def write(self, episode_id: str, record: EventRecord) -> None:
        self.n_records += 1


class AnyAction(gymnasium.Env[Any, Any]):
    """Takes any action and shows nothing of it."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 1, (1,)), action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {}


def make_action_env(action_space: spaces.Space[Any] | None = None) -> GymMazeEnv:
    return GymMazeEnv(AnyAction(action_space or spaces.Box(-1, 1, (3,))))


class Leaning:
    """A rule: every entry of a Box leans towards the mean of all observations."""

    def __init__(self, action_spaces_dict: Mapping[Any, spaces.Dict], gain: float = 0.3) -> None:
        self.action_spaces_dict = action_spaces_dict
        self.gain = gain

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        (n,) = batch.agent_id.shape
        means = np.mean([values.reshape(n, -1).mean(axis=1) for values in batch.observation.values()], axis=0)
        action = {}
        for head, space in self.action_spaces_dict[batch.step_key].items():
            lean = self.gain * np.tanh(means).reshape(n, *[1] * len(space.shape or ()))
            action[head] = np.broadcast_to(lean, (n, *(space.shape or ()))).astype(np.float32)
        return PolicyStep(action)
