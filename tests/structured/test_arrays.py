"""The structured environments over arrays, number for number against those of single episodes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs.arrays.pairs_of_forms import PairOfForms
from tests.structured.arrays import TabularArrayEnv
from tests.structured.catalogue import every_environment


@every_environment
def test_episodes_equal_those_of_single_environments(module: ModuleType) -> None:
    pair = PairOfForms(TabularArrayEnv(module), module.make_env, 4, seed=2, cut_short=0.01)
    pair.play(160)
    assert pair.n_ended


CASES = st.fixed_dictionaries(
    {
        "n_envs": st.integers(1, 6),
        "seed": st.integers(0, 2**32),
        "cut_short": st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    }
)


@every_environment
@settings(max_examples=8, deadline=None)
@given(case=CASES, n_acts=st.integers(1, 60))
def test_generated_cases_equal_single_environments(module: ModuleType, case: dict[str, Any], n_acts: int) -> None:
    PairOfForms(TabularArrayEnv(module), module.make_env, **case).play(n_acts)


@pytest.mark.slow
@pytest.mark.long
@every_environment
@settings(max_examples=500, deadline=None)
@given(case=CASES, n_acts=st.integers(1, 60))
def test_500_generated_cases_equal_single_environments(module: ModuleType, case: dict[str, Any], n_acts: int) -> None:
    PairOfForms(TabularArrayEnv(module), module.make_env, **case).play(n_acts)


@every_environment
def test_saved_episodes_continue_as_they_were(module: ModuleType) -> None:
    pair = PairOfForms(TabularArrayEnv(module), module.make_env, 3, seed=2)
    pair.play(20)
    copied = TabularArrayEnv(module)
    copied.allocate(3)
    copied.load_state_dict(pair.arrays.state_dict())
    pair.arrays = copied
    pair.play(30)
