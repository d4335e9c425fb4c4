"""Recorded episodes in place of an environment, for tests of policies that were trained without one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.batches import TrajectoryBatch
from maze_pl.core.spec import Spec
from maze_pl.envs.structured_env import Action, Observation, ResetResult, StepResult, StructuredEnv


class Episodes(Protocol):
    """A data set of recorded episodes, such as `InMemoryDataset`."""

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[n_episodes, sub-steps] number of acts."""

    def batch(self, acts: Tensor) -> TrajectoryBatch:
        """Return a batch of acts, which are counted through all sub-steps in order."""


class RecordedEpisodes(StructuredEnv):
    """Shows the observations of recorded episodes one after the other, whatever the actions are.

    The acts of each sub-step keep their order; the sub-steps take turns.

    Args:
        episodes: The episodes.
        spec: Their specification.

    Attributes:
        n_episodes: Number of episodes with acts, after which the first one follows.
    """

    def __init__(self, episodes: Episodes, spec: Spec) -> None:
        self._episodes = episodes
        self._spec = spec
        numbers = np.flatnonzero(episodes.lengths.sum(1))
        self.n_episodes = len(numbers)
        self._numbers = cycle(numbers.tolist())
        self._acts: list[tuple[ActorID, Observation]] = []
        self._position = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Begin the next episode."""
        self._acts = self._acts_of(next(self._numbers))
        self._position = 0
        return dict(self._acts[0][1]), {}

    def step(self, action: Action) -> StepResult:
        """Show the next observation; after the last one, the episode ends."""
        self._position = min(self._position + 1, len(self._acts))
        is_over = self._position == len(self._acts)
        _, observation = self._acts[self._position - is_over]
        return dict(observation), 0.0, is_over, False, {}

    def actor_id(self) -> ActorID:
        """Return the actor of the act that comes next, or else of the last one."""
        return self._acts[min(self._position, len(self._acts) - 1)][0]

    def _acts_of(self, episode: int) -> list[tuple[ActorID, Observation]]:
        """Return the acts of an episode, each with its actor."""
        lengths = self._episodes.lengths
        found: list[tuple[int, ActorID, Observation]] = []
        for number, key in enumerate(self._spec.step_keys):
            first = lengths[:, :number].sum() + lengths[:episode, number].sum()
            rows = torch.arange(first, first + lengths[episode, number])
            batch = self._episodes.batch(rows).acts[key]
            observations = {name: values.numpy() for name, values in batch.observation.items()}
            for place, agent in enumerate(batch.agent_id.tolist()):
                observation = {name: values[place] for name, values in observations.items()}
                found.append((place, ActorID(key, agent), observation))
        found.sort(key=lambda act: act[0])
        return [(actor, observation) for _, actor, observation in found]

    def close(self) -> None:
        """Do nothing."""

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step, -1 where it changes during an episode."""
        return {key: step.n_agents for key, step in self._spec.steps.items()}

    @property
    def observation_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Observation space of each sub-step."""
        return {key: step.observation_space for key, step in self._spec.steps.items()}

    @property
    def action_spaces_dict(self) -> Mapping[StepKey, spaces.Dict]:
        """Action space of each sub-step."""
        return {key: step.action_space for key, step in self._spec.steps.items()}

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return {key: step.masks for key, step in self._spec.steps.items()}

    def get_maze_action(self) -> None:
        """Return None: there is no simulation."""

    def clone_from(self, env: Any) -> NoReturn:
        """Raise TypeError: there is no simulation."""
        raise TypeError("recorded episodes cannot be copied as an environment")

    def get_observation_and_action_dicts(
        self, maze_state: Any, maze_action: Any, first_step_in_episode: bool
    ) -> NoReturn:
        """Raise TypeError: there is no simulation."""
        raise TypeError("recorded episodes have no states of a simulation")
