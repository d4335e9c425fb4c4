"""Events of a yard and what writes them."""

from __future__ import annotations

from typing import Any

from maze_pl.events import EnvironmentContext, EventLogWriter, Pubsub


class YardEvents:
    def arrived(self, lorry: str, weight: float, axles: int = 2, cargo: Any = None, late: bool = False) -> None: ...

    def left(self) -> None: ...

    def renamed(self, episode_id: int, env_time: str) -> None: ...


def yard(writer: EventLogWriter, seed: int = 0) -> tuple[Any, EnvironmentContext]:
    context = EnvironmentContext()
    context.reset_episode(seed)
    pubsub = Pubsub(context)
    pubsub.register_subscriber(writer)
    return pubsub.create_event_topic(YardEvents), context
