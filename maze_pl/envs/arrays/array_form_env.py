"""Environments in arrays that have a form for single episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.structured_env import StructuredEnv


class ArrayFormEnv(ArrayEnv):
    """An environment in arrays that declares what its form for single episodes declares.

    Args:
        single: An environment of single episodes, of which the spaces, the masks, the numbers of
            agents and the `heuristic_policy` are taken.
    """

    def __init__(self, single: StructuredEnv) -> None:
        super().__init__()
        self._single = single
        self.heuristic_policy = single.heuristic_policy

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step."""
        return self._single.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step."""
        return self._single.action_spaces_dict

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Masks of each sub-step that has any."""
        return self._single.action_masks_dict

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents in each sub-step."""
        return self._single.agent_counts_dict
