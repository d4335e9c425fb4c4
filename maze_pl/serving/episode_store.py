"""Episodes on the server: policy states of their actors, bounded in number, memory and age."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from maze_pl.config.search_path import ConfigurationError
from maze_pl.serving.decoding import Array
from maze_pl.serving.request_error import RequestError
from maze_pl.serving.served_policy import StepKey

MOST_ACTORS: Final = 1000
"""Largest number of actors whose policy states an episode keeps."""
BYTES_OF_ACTOR: Final = 1000
"""Memory that each of these policy states takes besides its numbers, roughly."""


@dataclass
class Episode:
    """An episode of a client.

    Attributes:
        state_shapes: Step key -> description of the policy states, of the policy that it began with.
        states: (step key, agent id) -> policy state after the actor's previous act, without batch dimension.
        n_bytes: Memory of these states.
        lock: Held while an act is decided, since it depends on the one before.
        last_used: Time of the last request.
    """

    state_shapes: dict[Any, Any]
    states: dict[tuple[Any, int], dict[str, Array]] = field(default_factory=dict)
    n_bytes: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_used: float = 0.0

    def state_of(self, step_key: StepKey, agent_id: int) -> dict[str, Array]:
        """Return the policy state of an actor; empty before its first act.

        Raises:
            RequestError: It is a further actor, and there are too many.
        """
        state = self.states.get((step_key, agent_id))
        if state is None and len(self.states) >= MOST_ACTORS:
            known = f"the states of {MOST_ACTORS} actors (sub-steps and agents), the most of this server"
            raise RequestError(f"the episode already has {known}; begin another one", "agent_id")
        return state or {}


class EpisodeStore:
    """Episodes by id; one that was not used for a while is forgotten.

    Args:
        max_episodes: Largest number of episodes.
        max_age: Seconds without a request after which an episode is forgotten.
        max_bytes: Largest memory of the policy states of all episodes.
        clock: Returns the time in seconds.

    Attributes:
        n_bytes: Memory of the policy states of all episodes.
    """

    def __init__(
        self, max_episodes: int, max_age: float, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_episodes = max_episodes
        self.max_age = max_age
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._clock = clock
        self._episodes: dict[str, Episode] = {}  # in the order of their last use

    def require_room(self, state_shapes: Mapping[Any, Mapping[str, Any]]) -> None:
        """Refuse a policy of which no policy state can be kept.

        Args:
            state_shapes: Step key -> name -> type and shape of a part of the policy state.

        Raises:
            ConfigurationError: The policy state of a single actor takes more memory than all of them may.
        """
        for key, parts in state_shapes.items():
            sizes = [np.dtype(part["dtype"]).itemsize * math.prod(part["shape"]) for part in parts.values()]
            n_bytes = BYTES_OF_ACTOR + sum(sizes)
            if parts and n_bytes > self.max_bytes:
                fault = f"the policy state of an actor of sub-step {key!r} takes {n_bytes} bytes"
                raise ConfigurationError(f"{fault}, more than --max_state_bytes {self.max_bytes} allows")

    def __len__(self) -> int:
        self._forget_old()
        return len(self._episodes)

    def begin(self, state_shapes: dict[Any, Any]) -> str:
        """Begin an episode, and return its id.

        Raises:
            RequestError: There are too many episodes.
        """
        if len(self) >= self.max_episodes:
            raise RequestError(f"there are already {self.max_episodes} episodes: {self._remedy}", status=503)
        name = secrets.token_urlsafe(16)
        self._episodes[name] = Episode(state_shapes, last_used=self._clock())
        return name

    def find(self, name: str) -> Episode:
        """Return an episode, which counts as used now.

        Raises:
            RequestError: There is no such episode.
        """
        self._forget_old()
        if name not in self._episodes:
            reason = f"it has ended, was not used for {self.max_age:g} s, or never began"
            raise RequestError(f"there is no episode {name[:40]!r}: {reason}", "episode", 404)
        episode = self._episodes[name] = self._episodes.pop(name)
        episode.last_used = self._clock()
        return episode

    def keep(self, name: str, step_key: StepKey, agent_id: int, decision_state: dict[str, Array]) -> None:
        """Keep the policy state of an actor after its act, unless the episode has ended in the meantime.

        Args:
            name: Id of the episode.
            step_key: The sub-step.
            agent_id: The agent.
            decision_state: Name -> [1, ...]; empty if the policy has no state.

        Raises:
            RequestError: It is a further actor, and the states of all episodes take too much memory.
        """
        episode = self._episodes.get(name)
        if episode is None or not decision_state:
            return
        actor = (step_key, agent_id)
        if actor not in episode.states:
            n_bytes = BYTES_OF_ACTOR + sum(array.nbytes for array in decision_state.values())
            if self.n_bytes + n_bytes > self.max_bytes:
                fault = f"the policy states of all episodes take {self.n_bytes} bytes, and at most {self.max_bytes}"
                raise RequestError(f"{fault} are allowed: {self._remedy}", status=503)
            episode.n_bytes += n_bytes
            self.n_bytes += n_bytes
        # Copies, as views would keep the arrays of all requests that were decided together.
        episode.states[actor] = {part: np.array(array[0]) for part, array in decision_state.items()}

    def end(self, name: str) -> None:
        """Forget an episode; raises RequestError if there is no such episode."""
        self.find(name)
        self._forget(name)

    def forget_incompatible(self, state_shapes: dict[Any, Any]) -> int:
        """Forget episodes whose states a new policy cannot continue, and return their number."""
        names = [name for name, episode in self._episodes.items() if episode.state_shapes != state_shapes]
        for name in names:
            self._forget(name)
        return len(names)

    @property
    def _remedy(self) -> str:
        """Remedy against too many episodes."""
        return f"end some by DELETE /episodes/ID; unused ones are forgotten after {self.max_age:g} s"

    def _forget(self, name: str) -> None:
        """Forget an episode."""
        self.n_bytes -= self._episodes.pop(name).n_bytes

    def _forget_old(self) -> None:
        limit = self._clock() - self.max_age
        while self._episodes:
            name = next(iter(self._episodes))
            if self._episodes[name].last_used >= limit:
                return
            self._forget(name)
