"""Wrappers that count steps over all copies; in a module that workers import quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maze_pl.envs import Wrapper
from maze_pl.envs.arrays import ArrayEnv, ArrayWrapper


class UnfitCount(Wrapper):
    """Counts steps, and sums up the second number of observations; cannot be collected ahead of time."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.common = [0, 0.0]  # of all copies at the last merge
        self.since = [0, 0.0]  # of this copy since then
        self.is_frozen = False

    def step_in_parts(self, action: Any) -> Any:
        result = yield action
        if not self.is_frozen:
            self.since = [self.since[0] + 1, self.since[1] + float(result[0]["observation"][1])]
        return result

    def state_dict(self) -> dict[str, Any]:
        return self.shared_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_shared_state(state)

    def shared_state(self) -> dict[str, Any]:
        return {"common": list(self.common), "since": list(self.since)}

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        assert all(state["common"] == states[0]["common"] for state in states)
        parts = np.array([states[0]["common"], *(state["since"] for state in states)])
        return {"common": [int(parts[:, 0].sum()), float(parts[:, 1].sum())], "since": [0, 0.0]}

    def load_shared_state(self, state: dict[str, Any]) -> None:
        self.common, self.since = list(state["common"]), list(state["since"])

    def freeze(self) -> None:
        self.is_frozen = True


class StepCount(UnfitCount):
    """Counts steps that may be collected ahead of time."""

    @classmethod
    def rebase_shared_state(cls, state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
        return {"common": list(current["common"]), "since": list(state["since"])}

    def array_form(self, env: ArrayEnv) -> ArrayEnv:
        return StepCountArrays(env)


class MergedElsewhere(StepCount):
    """Has another merging than the class that it inherits the rebasing from."""

    @classmethod
    def merge_shared_states(cls, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return super().merge_shared_states(states)


class StepCountArrays(ArrayWrapper):
    """The form of `StepCount` in arrays."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.common = np.zeros(2)
        self.since = np.zeros((n_envs, 2))

    def step(self, actions: Any, which: Any) -> Any:
        result: Any = super().step(actions, which)
        numbers = self.numbers_of(which)
        self.since[numbers, 0] += 1
        self.since[numbers, 1] += np.asarray(result.observation[0]["observation"])[numbers, 1]
        return result

    def shared_states(self) -> list[dict[str, Any]]:
        common = self.common.tolist()
        return [{"common": list(common), "since": one} for one in self.since.tolist()]

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        self.common[...] = state["common"]
        self.since[...] = state["since"]
