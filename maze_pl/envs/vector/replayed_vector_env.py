"""Vector environments whose running episodes are saved as the acts that led to them."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from maze_pl.envs.structured_env import Array
from maze_pl.envs.vector.vector_env import VectorEnv

_ROUNDING: Final = 1e-9
"""Relative difference of two sums of the same absolute rewards, at most."""


class ReplayedVectorEnv(VectorEnv):
    """Environments of single episodes, which continue a saved episode by replaying its acts."""

    @abstractmethod
    def episodes(self) -> list[int]:
        """Return the index of each environment's current episode."""

    @abstractmethod
    def histories(self) -> list[dict[str, Any]]:
        """Return, for each environment, the acts of its running episode, from which to replay it.

        Returns:
            For each environment: `episode`, the index of the episode; `keys` [L], the step key of
            each act as its position among the step keys; and `actions`, step key -> head -> [number
            of acts of this key, ...]. `wrappers` are the states that wrappers had before the
            episode, by name; absent if none has a state that changes. If the state of a long
            episode was taken, `state` is restored after `n_before` acts, instead of replaying the
            acts that led to it; if that was not possible, `why` gives the reason.
        """

    @abstractmethod
    def episode_rewards(self) -> list[float]:
        """Return, for each environment, the sum of the absolute rewards of its running episode.

        Negative ones count double; see `RunningEpisodes`. It is NaN if statistics that may change
        rewards were merged in the episode, which a replay does not repeat. If the last `histories`
        hold a state, it is the sum of the rewards since then.
        """

    @abstractmethod
    def wrapper_states(self) -> list[dict[str, Any]]:
        """Return, for each environment, its wrappers' full state by name; see `wrapper_stack`."""

    @abstractmethod
    def replay(self, histories: Sequence[dict[str, Any]], wrapper_states: Sequence[dict[str, Any]]) -> None:
        """Bring each environment to the end of its history, then restore the state of its wrappers.

        A replay begins with the states that the wrappers had before the episode.

        Args:
            histories: Result of `histories`.
            wrapper_states: Result of `wrapper_states`.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the acts of the running episodes, and the rewards and observations that they lead to."""
        histories = self.histories()  # before the rewards, which count from a state that it takes
        return {
            "episodes": self.episodes(),
            "histories": histories,
            "wrappers": self.wrapper_states(),
            "observation": self._next_observations(),
            "rewards": self.episode_rewards(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Replay the episodes; see `VectorEnv.load_state_dict`.

        Raises:
            ValueError: The state is that of an array environment.
        """
        if "histories" not in state:
            raise ValueError(
                "the checkpoint holds the state of an array environment, not acts of single environments;"
                " start a new run from its weights with --warm-start"
            )
        histories = state["histories"]
        self.replay(histories, state["wrappers"])
        observations, saved = self._next_observations(), state["observation"]
        rewards = self.episode_rewards()
        saved_rewards = state.get("rewards", [math.nan] * self.n_envs)  # earlier versions saved none
        strayed = []
        for n in range(self.n_envs):
            is_same = _is_same(saved[str(n)], observations[str(n)])
            if not (is_same and _is_same_sum(saved_rewards[n], rewards[n])):
                strayed.append(n)
        self.reset(strayed, [histories[n]["episode"] + 1 for n in strayed])
        return strayed

    def _next_observations(self) -> dict[str, dict[str, Array]]:
        """Observation of the actor that acts next, by number of the environment."""
        observations = {}
        for n, key in enumerate(self.staging.next_key):
            arrays = self.staging.observation[self.spec.step_keys[key]]
            observations[str(n)] = {name: array[n] for name, array in arrays.items()}
        return observations


def _is_same(before: dict[str, Array], now: dict[str, Array]) -> bool:
    """Return whether two observations have the same names and values; NaN equals NaN."""
    if before.keys() != now.keys():
        return False
    return all(np.array_equal(before[name], value, equal_nan=True) for name, value in now.items())


def _is_same_sum(before: float, now: float) -> bool:
    """True if two sums of rewards are the same but for the rounding of another machine, or the first is unknown."""
    return math.isnan(before) or math.isclose(before, now, rel_tol=_ROUNDING)
