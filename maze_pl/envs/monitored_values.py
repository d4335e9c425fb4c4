"""Values that `MazeEnvMonitoringWrapper` logs, in single episodes and in arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.core.episode import StatKey
from maze_pl.envs.contract import bounds
from maze_pl.envs.structured_env import Array
from maze_pl.events import topics
from maze_pl.events.event_names import group_label

N_ACTS: Final = 50
"""Acts of each sub-step, and environment steps, that are sampled in an episode."""

N_NUMBERS: Final = 64
"""Numbers of a larger observation that are logged."""

REWARD_EVENTS: Final = ("reward_original", "reward_processed")
OBSERVATION_EVENTS: Final = ("observation_original", "observation_processed")

_OTHER_SEED: Final = 0x2545F491
"""Combined with seeds of episodes, so that samples and simulations have different random numbers."""


class LoggedChoice(NamedTuple):
    """A part of an action that is logged.

    Attributes:
        key: Key of the statistic.
        head: The action head.
        position: Position in the flattened action; None for the whole action.
    """

    key: StatKey
    head: str
    position: int | None

    def of(self, values: Array) -> Array:
        """Return the part of actions [n, ...] of the head."""
        return values if self.position is None else values.reshape(len(values), -1)[:, self.position]


def logged_choices(step_key: StepKey, space: spaces.Dict) -> Iterator[LoggedChoice]:
    """Yield what is logged of the actions of a sub-step.

    Args:
        step_key: Key of the sub-step.
        space: Its action space.
    """
    group = group_label("step_key", step_key)
    for head, part in space.spaces.items():
        if isinstance(part, spaces.Box | spaces.MultiBinary):
            event = "continuous_action" if isinstance(part, spaces.Box) else "binary_action"
            yield LoggedChoice((topics.ActionEvents.__name__, event, None, (group, head)), head, None)
            continue
        for index, (low, high) in enumerate(zip(*map(np.ravel, bounds(part)), strict=True)):
            name = head if isinstance(part, spaces.Discrete) else f"{head}_{index}"
            groups = (group, name, f"{low}_to_{high}")
            yield LoggedChoice((topics.ActionEvents.__name__, "discrete_action", None, groups), head, index)


def observation_key(event: str, step_key: StepKey, name: str) -> StatKey:
    """Key of the statistic of an observation."""
    return topics.ObservationEvents.__name__, event, None, (group_label("step_key", step_key), name)


def reward_key(event: str, statistic: str | None) -> StatKey:
    """Key of the statistic of rewards: those of steps, or their sum if None."""
    return topics.RewardEvents.__name__, event, statistic, ()


def sampling_seeds(seeds: Any) -> Any:
    """Seeds of the samples of episodes, a number or an array."""
    return seeds ^ _OTHER_SEED
