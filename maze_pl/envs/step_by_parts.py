"""Steps of wrappers that only define their steps in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from maze_pl.envs.structured_env import Action, StepResult

if TYPE_CHECKING:
    from maze_pl.envs.wrapper import Wrapper


def step_by_parts(self: Wrapper, action: Action) -> StepResult:
    """Perform an act by `Wrapper.step_in_parts`, as the method `step` of a wrapper."""
    parts = self.step_in_parts(action)
    result: Any = None
    while True:
        try:
            inner = parts.send(result)
        except StopIteration as end:
            return cast(StepResult, end.value)
        result = self.env.step(inner)
