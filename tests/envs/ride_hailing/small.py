"""Small cities, and ways to play a day in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from maze_pl.envs.ride_hailing import City, RideHailingSimulation, central_dispatch_factory, ride_hailing_factory

FORMS = {"vehicles": ride_hailing_factory, "central": central_dispatch_factory}
SHORT: dict[str, Any] = {"n_shifts": 5, "shift_hours": (0.5, 1.0), "city": {"n_hours": 2.0, "rate": 24.0}}
EMPTY = City(size=8.0, n_zones=2, rate=0.0, origins=(), destinations=(), n_hours=2.0)
"""4 zones of 4 km, without requests; 2 km in a period of 5 minutes."""


def begun(requests: list[list[float]], positions: list[list[float]], **options: Any) -> RideHailingSimulation:
    """A simulation at time 0 in which all vehicles have to decide.

    Args:
        requests: Deadline, origin and destination of each waiting request.
        positions: Place of each vehicle.
    """
    n = len(positions)
    simulation = RideHailingSimulation(EMPTY, n_shifts=n, **options)
    simulation.shift_start = np.zeros(n)
    simulation.shift_end = np.full(n, 60.0)
    simulation.free_at = np.zeros(n)
    simulation.positions = np.array(positions, np.float64)
    simulation.undecided = list(range(n))
    rows = []
    for deadline, *places in requests:
        distance = abs(places[2] - places[0]) + abs(places[3] - places[1])
        rows.append([-5.0, deadline, *places, distance])
    simulation.waiting = np.array(rows, np.float64).reshape(-1, 7)
    return simulation


def random_acts(env: Any, n_episodes: int = 2, seed: int = 0) -> list[tuple[Any, ...]]:
    """Actor, observation, action, reward and whether the actor is done, of each act."""
    generator = np.random.default_rng(seed)
    log: list[tuple[Any, ...]] = []
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=seed + episode)
        terminated = False
        while not terminated:
            actor = env.actor_id()
            ((head, mask),) = env.action_masks_dict[actor.step_key].items()
            action = {head: int(generator.choice(np.flatnonzero(observation[mask])))}
            following, reward, terminated, *_ = env.step(action)
            log.append((actor, observation, action, reward, env.is_actor_done()))
            observation = following
    return log
