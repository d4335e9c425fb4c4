"""How environments of a vector are made; apart from all that is heavy, because each of their processes imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from maze_pl.envs.vector.sequential_vector_env import adapt, with_statistics
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper

Env = gymnasium.Env[Any, Any]


def make_wrapped(env: Callable[[], Env], wrappers: Sequence[Callable[..., Env]]) -> LogStatsWrapper:
    """An environment with its wrappers, the first of them innermost, and statistics around them."""
    built: Env = adapt(env())
    for wrapper in wrappers:
        built = wrapper(built)
    return with_statistics(built)
