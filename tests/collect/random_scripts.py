"""Hypothesis strategies that draw scripts of structured environments, and collectors of these."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from maze_pl.collect.collector import Collector
from maze_pl.envs.vector import SequentialVectorEnv
from tests.collect.scripted import (
    Act,
    Episode,
    Script,
    make_env,
    spec_of,
)

REWARD = st.floats(-3, 3, width=32)


def value_of(observation: Any) -> Any:
    """An arbitrary smooth value of an observation id."""
    return np.sin(np.asarray(observation) * 0.37) * 2.0


@st.composite
def episodes(draw: st.DrawFn, n_agents: tuple[int, ...], max_agents: tuple[int, ...]) -> Episode:
    fixed = [(key, agent) for key, count in enumerate(n_agents) for agent in range(count)]
    is_flat, come = n_agents == (1,), dict.fromkeys(range(len(n_agents)), 0)
    acts, alive = list[Act](), list(fixed)

    def choices() -> list[tuple[int, int]]:
        """Who is alive, and who may come next."""
        n_alive = {key: sum(other == key for other, _ in alive) for key in come}
        dynamic = [key for key, count in enumerate(n_agents) if count < 0]
        return alive + [(key, come[key]) for key in dynamic if n_alive[key] < max_agents[key]]

    for _ in range(draw(st.integers(1, 10))):
        actor = draw(st.sampled_from(choices()))
        if actor not in alive:
            alive.append(actor)
            come[actor[0]] += 1
        is_dynamic = n_agents[actor[0]] < 0
        done = (is_dynamic or len(alive) > 1) and draw(st.integers(0, 1 if is_dynamic else 5)) == 0
        if done:
            alive.remove(actor)
        if not choices():
            alive.append(actor)
            done = False
        advance = draw(st.sampled_from([1, 1, 2] if is_flat else [0, 0, 1, 1, 1, 2]))
        acts.append(Act(*actor, draw(REWARD), draw(REWARD), advance, done))
    truncated = draw(st.booleans())
    followers = choices()
    if not truncated:  # as with a counter that runs past the last agent; without a final observation it does not matter
        followers = followers + [(key, max(count, 0)) for key, count in enumerate(n_agents)] + [(0, -1)]
    return Episode(tuple(acts), truncated, draw(st.sampled_from(followers)))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    n_agents = tuple(draw(st.lists(st.sampled_from([1, 2, 3, -1, -1]), min_size=1, max_size=3)))
    max_agents = tuple(draw(st.integers(1, 3)) for _ in n_agents)
    n_envs = draw(st.integers(2, 5))
    plays = [draw(st.lists(episodes(n_agents, max_agents), min_size=1, max_size=3)) for _ in range(n_envs)]
    for play in plays:  # as those in which time never advances are refused
        *before, last = play[0].acts
        play[0] = replace(play[0], acts=(*before, replace(last, advance=max(1, last.advance))))
    return Script(n_agents, draw(st.booleans()), tuple(tuple(play) for play in plays), max_agents)


def script_collector(script: Script, n_rollout_steps: int) -> Collector:
    factories = [partial(make_env, script, index) for index in range(len(script.episodes))]
    return Collector(SequentialVectorEnv(factories, spec=spec_of(script)), n_rollout_steps, torch.Generator())
