"""Lookahead with a horizon: what follows is worth what the critic of the policy says, against a slow search."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.runs.rollout import rollout
from maze_pl.search.lookahead import best_place
from tests.search.policies import GAMMA, LastAllowed, SumOfHistory
from tests.search.problems import N_ACTIONS, N_STEPS, TableCore, coin_env, table_env


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
            choices = allowed_after(history)[::-1]  # the policy's choice first, which counts if several are equal
            best = max(choices, key=lambda choice: worth(core, history, choice, horizon, has_critic))
            history = [*history, best]
            total += core.reward_of(history)
        (found,) = rollout(partial(table_env, seed), Agent(), search=search, record=(), n_envs=1)
        assert found.summary.reward == total


class Favourite:
    """A policy of the coin that prefers a guess of 0; its most likely act is played on."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        return PolicyStep({"guess": np.zeros(len(batch.agent_id), np.int64)})

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        return {"guess": np.tile([self.probability, 1 - self.probability], (len(batch.agent_id), 1))}


def guesses(probability: float, search: str) -> np.ndarray:
    """All guesses of eight episodes with ten coins."""
    played = rollout(coin_env, Favourite(probability), episodes=8, search=search, n_envs=1)
    return np.concatenate([one.spaces.action[0]["guess"] for one in played if one.spaces is not None])


def test_a_favourite_is_not_left_for_the_luck_of_simulations() -> None:
    assert guesses(0.6, "lookahead:policy:16").mean() < 0.15  # two standard errors
    assert 0.2 < guesses(0.5, "lookahead:policy:16").mean() < 0.6, "without a favourite the larger mean decides"


@pytest.mark.parametrize("search", ["lookahead:policy:16", "puct:8", "beam:4"])
def test_unlikely_actions_are_not_tried_if_a_ratio_says_so(search: str) -> None:
    assert guesses(0.9, search).sum() > 0 or search == "beam:4"
    assert guesses(0.9, f"{search}:min_ratio=0.12").sum() == 0
    assert np.array_equal(guesses(0.9, search), guesses(0.9, f"{search}:min_ratio=0.1"))


def test_an_action_that_is_better_for_certain_is_taken() -> None:
    chance = np.random.default_rng(0).normal(size=(16, 1))
    certain = np.concatenate([chance, chance + 0.01], axis=1)  # the same futures for both
    assert best_place(certain, has_favourite=True) == 1
    lucky = np.array([[0.0, 0.0]] * 15 + [[0.0, 9.0]])
    assert best_place(lucky, has_favourite=False) == 1
    assert best_place(lucky, has_favourite=True) == 0
    assert best_place(np.array([[1.0, 2.0, 2.0]]), has_favourite=True) == 1, "one future is all that is known"


@pytest.mark.parametrize("n_together", [1, 6, 7])
def test_decisions_do_not_depend_on_how_many_simulations_are_played_at_once(
    monkeypatch: pytest.MonkeyPatch, n_together: int
) -> None:
    expected = guesses(0.5, "lookahead:policy:17:horizon=6")
    monkeypatch.setattr("maze_pl.search.lookahead.N_TOGETHER", n_together)
    assert np.array_equal(guesses(0.5, "lookahead:policy:17:horizon=6"), expected)
    assert 0.2 < expected.mean() < 0.8, "there was something to decide"
