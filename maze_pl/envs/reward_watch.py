"""Search for wrappers that change rewards, but not the rewards that are attributed to single actors."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from maze_pl.core.class_path import definer_of
from maze_pl.envs.attribution import attributes_rewards
from maze_pl.envs.structured_env import Action, StepResult, StructuredEnv
from maze_pl.envs.wrapper import RewardWrapper, Wrapper, wrappers_of

N_WATCHED: Final = 1000
"""Acts that are watched in training."""
NO_LEARNING: Final = (
    "changes the reward, but not the rewards that the environment attributes to single actors: actors that learn from"
    " these do not learn from the change"
)
"""The fault, after the name of a wrapper."""


class UnattributedRewardWarning(UserWarning):
    """A wrapper changes the reward, but not the rewards of single actors."""


class RewardWatch:
    """Compares the rewards inside and outside of each wrapper of users.

    Probes lie between the wrappers, only while the environment is stepped.

    Args:
        env: The environment with its wrappers.
        n_acts: Number of acts to watch; no limit if None.
    """

    def __init__(self, env: StructuredEnv, n_acts: int | None = None) -> None:
        self._env = env
        self._n_left = n_acts
        self._layers = list(wrappers_of(env))
        self._probes = [_Probe(layer.env) for layer in self._layers]
        self._forgetful = {id(layer) for layer in _forgetful(self._layers)}
        self._changing: str | None = None

    @property
    def is_done(self) -> bool:
        """True if nothing is left to find."""
        return self._n_left == 0 or not self._forgetful

    def step(self, action: Action) -> StepResult:
        """Step the environment, and note the innermost wrapper that changes the reward."""
        for layer, probe in zip(self._layers, self._probes, strict=True):
            probe.reward = None
            layer.env = probe
        try:
            result = self._env.step(action)
        finally:
            for layer, probe in zip(self._layers, self._probes, strict=True):
                layer.env = probe.env
        if self._n_left is not None:
            self._n_left -= 1
        outside = result[1] if _is_complete(result) else None
        changing: str | None = None
        for layer, probe in zip(self._layers, self._probes, strict=True):
            inside = probe.reward
            if id(layer) in self._forgetful and _is_changed(layer, inside, outside):
                changing = type(layer).__name__
            outside = outside if inside is None else inside
        self._changing = self._changing or changing
        return result

    def end_step(self) -> str | None:
        """Return the fault of a wrapper in an environment step whose rewards are attributed; None if there is none."""
        name, self._changing = self._changing, None
        if name is None:
            return None
        self._forgetful = set()
        return f"{name} {NO_LEARNING}; derive it from RewardWrapper, or override get_actor_rewards"


class _Probe(Wrapper):
    """Notes the reward of the last step of what is inside; None if it was not stepped."""

    accepts_plain_spaces = True

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__(env)
        self.reward: Any = None

    def step(self, action: Action) -> StepResult:
        """Step, and note the reward."""
        result = self.env.step(action)
        if _is_complete(result):
            self.reward = result[1]
        return result


def reward_watch(env: StructuredEnv, n_acts: int | None = None) -> RewardWatch | None:
    """Return a watch if a wrapper may change rewards, and rewards are attributed to actors; otherwise None.

    Args:
        env: The environment with its wrappers.
        n_acts: Number of acts to watch; no limit if None.
    """
    if not attributes_rewards(env) or not _forgetful(list(wrappers_of(env))):
        return None
    return RewardWatch(env, n_acts)


def _forgetful(layers: list[Wrapper]) -> list[Wrapper]:
    """Return the wrappers of users that define steps, but leave the rewards of actors to `Wrapper` or `RewardWrapper`.

    Wrappers inside of one that attributes rewards in its way are not meant.
    """
    found: list[Wrapper] = []
    for layer in layers:
        definer = definer_of(type(layer), "get_actor_rewards")
        if definer in (Wrapper, RewardWrapper):
            if not _is_ours(definer_of(type(layer), "step")):
                found.append(layer)
        elif not _is_ours(definer):
            break
    return found


def _is_ours(kind: type) -> bool:
    """True for classes of maze_pl, whose wrappers are tested."""
    return kind.__module__.startswith("maze_pl.")


def _is_complete(result: Any) -> bool:
    """True for a result of five values; others are reported by the caller."""
    return isinstance(result, tuple) and len(result) == 5


def _is_changed(layer: Wrapper, inside: Any, outside: Any) -> bool:
    """True if a wrapper that passes the rewards of actors on has changed the reward of the act."""
    if inside is None or outside is None or not _differ(inside, outside):
        return False
    if definer_of(type(layer), "get_actor_rewards") is RewardWrapper:
        return not _differ(cast(RewardWrapper, layer).reward(inside), inside)  # otherwise it changes those of actors
    return True


def _differ(one: Any, other: Any) -> bool:
    """True if two rewards are not equal."""
    return bool(np.any(np.asarray(one) != np.asarray(other)))
