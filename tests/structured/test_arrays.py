"""The structured environments over arrays, number for number against those of single episodes."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.structured.arrays import TabularArrayEnv
from tests.structured.catalogue import every_environment


@every_environment
def test_episodes_equal_those_of_single_environments(module: ModuleType) -> None:
    pair = PairOfForms(TabularArrayEnv(module), module.make_env, 4, seed=2, cut_short=0.01)
    pair.play(160)
    assert pair.n_ended


@pytest.mark.slow
@pytest.mark.long
@every_environment
def test_many_episodes_equal_those_of_single_environments(module: ModuleType) -> None:
    for seed in range(30):
        PairOfForms(TabularArrayEnv(module), module.make_env, 8, seed).play(300)


@every_environment
def test_saved_episodes_continue_as_they_were(module: ModuleType) -> None:
    pair = PairOfForms(TabularArrayEnv(module), module.make_env, 3, seed=2)
    pair.play(20)
    copied = TabularArrayEnv(module)
    copied.allocate(3)
    copied.load_state_dict(pair.arrays.state_dict())
    pair.arrays = copied
    pair.play(30)
