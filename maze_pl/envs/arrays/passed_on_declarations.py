"""Declarations that wrappers in arrays and in tensors pass on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from maze_pl.envs.arrays.array_env import ArrayEnv


class PassedOnDeclarations(ArrayEnv):
    """An environment that declares what the one inside of it declares.

    Attributes:
        env: The one inside; a subclass sets it.
    """

    env: ArrayEnv

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Observation space of each sub-step, for one environment."""
        return self.env.observation_spaces_dict

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        """Action space of each sub-step, for one environment."""
        return self.env.action_spaces_dict

    @property
    def agent_counts_dict(self) -> Mapping[Any, int]:
        """Number of agents of each sub-step."""
        return self.env.agent_counts_dict

    @property
    def action_masks_dict(self) -> Mapping[Any, Mapping[str, str]]:
        """Step key -> action head -> name of its mask, an observation."""
        return self.env.action_masks_dict

    @property
    def kpi_names(self) -> tuple[str, ...]:
        """Names of the KPIs of an episode."""
        return self.env.kpi_names
