"""A wrapper that tells of the ends of actors with the end of the environment step instead of with their acts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maze_pl.core.actor_id import ActorID
from maze_pl.envs.structured_env import Action, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class LateEnds(Wrapper):
    """Tells by `get_done_actors` of what the wrapped environment tells by `is_actor_done`."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self._ended: list[ActorID] = []
        self._told: list[ActorID] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        self._ended, self._told = [], []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Action) -> StepResult:
        actor, time = self.env.actor_id(), self.env.get_env_time()
        result = self.env.step(action)
        if self.env.is_actor_done():
            self._ended.append(actor)
        if self.env.get_env_time() != time or result[2] or result[3]:
            self._told, self._ended = self._ended, []
        return result

    def is_actor_done(self) -> bool:
        return False

    def get_done_actors(self) -> Sequence[ActorID]:
        return self._told
