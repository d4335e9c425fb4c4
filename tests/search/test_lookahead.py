"""Lookahead with a horizon: what follows is worth what the critic of the policy says, against a slow search."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from maze_pl.runs.rollout import rollout
from tests.search.policies import GAMMA, LastAllowed, SumOfHistory
from tests.search.problems import N_ACTIONS, N_STEPS, TableCore, table_env


class Agent(LastAllowed):
    """A policy with a critic and a discount, as a trained module has them."""

    networks = SimpleNamespace(critic=SumOfHistory())
    gamma = GAMMA


def allowed_after(history: list[int]) -> list[int]:
    forbidden = history[-1] if len(history) % 2 else -1
    return [choice for choice in range(N_ACTIONS) if choice != forbidden]


def worth(core: TableCore, history: list[int], choice: int, horizon: int, has_critic: bool) -> float:
    """Discounted rewards of a choice and of the last allowed ones up to the horizon, and the critic's value there."""
    gamma = GAMMA if has_critic else 1.0
    total, discount, played = 0.0, 1.0, [*history, choice]
    while True:
        total += discount * core.reward_of(played)
        if len(played) % 2 == 0:
            discount *= gamma
        if len(played) == 2 * N_STEPS:
            return total
        if len(played) - len(history) >= horizon:
            return total + discount * 10 * sum(played) * has_critic
        played = [*played, allowed_after(played)[-1]]


@pytest.mark.parametrize(
    ("search", "horizon", "has_critic"),
    [
        ("lookahead:policy:horizon=1", 1, True),
        ("lookahead:policy:horizon=2", 2, True),
        ("lookahead:policy:horizon=3", 3, True),
        ("lookahead:policy", 9, False),
        ("lookahead:tests.search.policies.LastAllowed:horizon=2", 2, False),
    ],
)
def test_values_of_the_critic_follow_the_horizon(search: str, horizon: int, has_critic: bool) -> None:
    for seed in range(6):
        core = table_env(seed).core_env
        history: list[int] = []
        total = 0.0
        while len(history) < 2 * N_STEPS:
            choices = allowed_after(history)
            best = max(choices, key=lambda choice: worth(core, history, choice, horizon, has_critic))
            history = [*history, best]
            total += core.reward_of(history)
        (found,) = rollout(partial(table_env, seed), Agent(), search=search, record=(), n_envs=1)
        assert found.summary.reward == total
