"""Array environments that keep a position, which is not observed, in different places."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.envs.arrays import ArrayEnv, ArrayStep


class Guessing(ArrayEnv):
    """Pays an act that equals the position modulo 2; the position, which is not observed, then moves irregularly."""

    @property
    def observation_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"time": spaces.Box(0, 10, (1,), np.float32)})}

    @property
    def action_spaces_dict(self) -> Mapping[Any, spaces.Dict]:
        return {0: spaces.Dict({"guess": spaces.Discrete(2)})}

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.time = np.zeros(n_envs, np.int64)

    def reset(self, which: Any, seeds: Any) -> ArrayStep:
        self.time[which] = 0
        self.put(seeds % 5, which)
        return ArrayStep(self._observations())

    def step(self, actions: Any, which: Any) -> ArrayStep:
        place = np.array(self.place())
        self.time[which] += 1
        self.put((place + 1 + (place % 3 == 0))[which], which)
        return ArrayStep(self._observations(), (actions[0]["guess"] == place % 2) * 1.0, truncated=self.time == 10)

    def _observations(self) -> dict[int, dict[str, Any]]:
        return {0: {"time": self.time[:, np.newaxis].astype(np.float32)}}

    def place(self) -> Any:
        """Return the positions [N]."""
        raise NotImplementedError

    def put(self, place: Any, which: Any) -> None:
        """Set the positions of some environments."""
        raise NotImplementedError


class InArray(Guessing):
    """Keeps the position as it should."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.held = np.zeros(n_envs, np.int64)

    def place(self) -> Any:
        return self.held

    def put(self, place: Any, which: Any) -> None:
        self.held[which] = place


class InNumber(Guessing):
    """Keeps the position of its only environment in a number of Python."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.held = 0

    def place(self) -> Any:
        return [self.held]

    def put(self, place: Any, which: Any) -> None:
        self.held = int(place[0])


class InText(InNumber):
    """Keeps it as a text."""

    held: Any

    def place(self) -> Any:
        return [int(self.held)]

    def put(self, place: Any, which: Any) -> None:
        self.held = str(place[0])


class MadeLater(Guessing):
    """Makes an array when it is needed, in place of None."""

    held: Any = None

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.held = None

    def place(self) -> Any:
        return np.full(self.n_envs, 4) if self.held is None else self.held

    def put(self, place: Any, which: Any) -> None:
        if self.time.any():  # not in `reset`
            self.held = np.array(place)


class NewArray(MadeLater):
    """Makes an array as a new attribute, and removes it with the start of an episode."""

    def allocate(self, n_envs: int) -> None:
        Guessing.allocate(self, n_envs)

    def put(self, place: Any, which: Any) -> None:
        vars(self).pop("held", None)
        super().put(place, which)


class NewDict(NewArray):
    """Makes a dict with an array as a new attribute."""

    def place(self) -> Any:
        return np.full(self.n_envs, 4) if self.held is None else self.held["place"]

    def put(self, place: Any, which: Any) -> None:
        vars(self).pop("held", None)
        if self.time.any():
            self.held = {"place": np.array(place)}


class InObject(Guessing):
    """Keeps the position in an object, which `state_dict` does not look into."""

    def allocate(self, n_envs: int) -> None:
        super().allocate(n_envs)
        self.simulation = SimpleNamespace(held=np.zeros(n_envs, np.int64))

    def place(self) -> Any:
        return self.simulation.held

    def put(self, place: Any, which: Any) -> None:
        self.simulation.held[which] = place
