"""Saved states of environments in episodes that are too long to replay."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from maze_pl.core.state_rules import StateError
from maze_pl.envs.vector.episode_state import ACTS_BEFORE_STATE, MOST_REPLAYED_ACTS, check_episode, first_acts
from maze_pl.envs.vector.plain_gym_envs import PlainGymEnvs


class _TakenState(NamedTuple):
    """Saved state of an environment in its running episode.

    Attributes:
        state: Result of `take_episode`.
        n_before: Number of acts of the episode to replay before restoring the state.
        n_taken: Number of actions that a plain environment's list held at that time.
    """

    state: Any
    n_before: int
    n_taken: int


class LongEpisodes:
    """States that take the place of most acts in the histories of long episodes.

    Args:
        n_envs: Number of environments of the vector.
        first_env_index: Index of the first one across all ranks and workers.
        plain: The environments if they are stepped directly.
    """

    def __init__(self, n_envs: int, first_env_index: int, plain: PlainGymEnvs | None) -> None:
        self._first_env_index = first_env_index
        self._plain = plain
        self._states: list[_TakenState | None] = [None] * n_envs
        self._is_checked = False
        self._refusal = ""  # the reason if states cannot be taken

    def forget(self, n: int) -> None:
        """Forget the state of environment n, which starts another episode."""
        self._states[n] = None

    def note(self, n: int, state: Any, n_before: int) -> None:
        """Note the present state of environment n.

        Args:
            n: Number of the environment.
            state: Its state.
            n_before: Number of acts to replay before the state is restored.
        """
        self._states[n] = _TakenState(state, n_before, 0 if self._plain is None else self._plain.trim(n))

    def shorten(
        self, n: int, history: dict[str, Any], take: Callable[[int], Any], copy_of: Callable[[int], Any]
    ) -> dict[str, Any] | None:
        """Replace all but the first acts of a long history by the environment's state, if possible.

        Otherwise `why` in the history gives the reason.

        Args:
            n: Number of the environment.
            history: Its history, changed in place.
            take: Function from the number of an environment to the state of its episode.
            copy_of: Function from the number of an environment to a vector with a new one like it.

        Returns:
            The history of the acts that are left, None if all are.
        """
        taken = self._states[n]
        if taken is not None:
            self._complete(n, history, taken)
        if taken is None and len(history["keys"]) <= MOST_REPLAYED_ACTS:
            return None
        try:
            return self._replace(n, history, take, copy_of)
        except Exception as error:  # write the checkpoint in any case, with all actions
            number = self._first_env_index + n
            reason = str(error) if isinstance(error, StateError) else repr(error)
            self._refusal = self._refusal or f"the state of environment {number} cannot be taken: {reason}"
            history["why"] = self._refusal
            return None

    def _complete(self, n: int, history: dict[str, Any], taken: _TakenState) -> None:
        """Add the state that was taken in this episode, and the acts since then."""
        history |= {"state": taken.state, "n_before": taken.n_before}
        if self._plain is not None:
            ((_, heads),) = history["actions"].items()
            before = heads["action"]
            since = np.array(self._plain.taken[n][taken.n_taken :], before.dtype)
            heads["action"] = np.concatenate([before, since.reshape(-1, *before.shape[1:])])
            history["keys"] = np.zeros(len(heads["action"]), np.int64)

    def _replace(
        self, n: int, history: dict[str, Any], take: Callable[[int], Any], copy_of: Callable[[int], Any]
    ) -> dict[str, Any]:
        """Replace all but the first acts of a history by the environment's state.

        Raises:
            StateError: The state cannot be taken; the history is unchanged.
        """
        if self._refusal:
            raise StateError(self._refusal)
        state = take(n)
        if not self._is_checked:
            with ExitStack() as opened:
                copies = []
                for _ in range(2):
                    copies.append(copy_of(n))
                    opened.callback(copies[-1].close)
                check_episode(state, copies, history)
            self._is_checked = True
        first = first_acts(history, ACTS_BEFORE_STATE)
        history |= first | {"state": state, "n_before": len(first["keys"])}
        self.note(n, state, len(first["keys"]))
        return first
