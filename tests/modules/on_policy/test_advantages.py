"""Advantages are normalised step key by step key."""

from __future__ import annotations

import torch

from maze_pl.modules.on_policy.advantages import normalize_advantages
from maze_pl.modules.on_policy.minibatches import PolicySamples


def some_acts(advantage: list[float]) -> PolicySamples:
    x = torch.tensor(advantage)
    ones = torch.ones_like(x)
    return PolicySamples({"o": x.unsqueeze(1)}, {"a": x.long()}, x.long(), x, x, x, ones, ones, x)


def test_advantages_are_normalised_for_each_step_key() -> None:
    acts = {"a": some_acts([1.0, 2.0, 3.0]), "b": some_acts([10.0, 30.0]), "c": some_acts([])}
    normalize_advantages(acts)
    torch.testing.assert_close(acts["a"].advantage, torch.tensor([-1.5, 0.0, 1.5]) / 1.5**0.5)
    torch.testing.assert_close(acts["b"].advantage, torch.tensor([-1.0, 1.0]))
    assert acts["c"].advantage.numel() == 0


def test_single_act_is_normalised_to_zero() -> None:
    acts = {"a": some_acts([5.0])}
    normalize_advantages(acts)
    assert acts["a"].advantage.tolist() == [0.0]
