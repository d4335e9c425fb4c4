"""Rules that use the state of the simulation, for deployments."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.core.policy import MazeStatePolicy, PolicyBatch, PolicyStep


class LastRowPolicy(MazeStatePolicy):
    """Chooses the last row with an allowed option, then the first allowed column of the state that it is given.

    In sub-step 1, the state must allow options of the chosen row only.

    Args:
        row: Head of sub-step 0.
        column: Head of sub-step 1.
    """

    def __init__(self, row: str, column: str) -> None:
        self.row = row
        self.column = column

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        allowed = [np.argwhere(state.allowed) for state in self.states_of(batch)]
        if batch.step_key == 0:
            return PolicyStep({self.row: np.array([places[-1][0] for places in allowed])})
        return PolicyStep({self.column: np.array([places[0][1] for places in allowed])})
