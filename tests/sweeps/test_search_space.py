"""Searched options: what a sweep file may say, what is tried, and what is refused."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.search_space import Choice, Range, grid, parse_search, samples, suggested

CONDITIONAL = {
    "model": ["algorithm/ppo", "algorithm/a2c"],
    "model.clip_range": {"low": 0.1, "high": 0.3, "step": 0.1, "when": {"model": "algorithm/ppo"}},
    "data.n_envs": {"low": 1, "high": 3},
}


def test_numbers_are_integers_if_all_of_a_range_are_and_yaml_texts_are_numbers() -> None:
    assert parse_search({"a": {"low": 1, "high": 5}}) == [Range("a", 1, 5, is_int=True)]
    assert parse_search({"a": {"low": "1e-4", "high": 1, "log": True}}) == [Range("a", 1e-4, 1, False, log=True)]
    assert parse_search({"--a": {"low": 1, "high": 5, "type": "float"}}) == [Range("a", 1, 5, is_int=False)]
    assert parse_search({"a": [None, {"b": 1}]}) == [Choice("a", (None, {"b": 1}))]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"low": 3, "high": 3}, "search.a is empty: low=3 must be less than high=3"),
        ({"low": 3, "high": 1}, "search.a is empty"),
        ({"low": 0, "high": 1.0, "log": True}, "log needs numbers above 0; got low=0"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "log and step exclude each other"),
        ({"low": 0.0, "high": 1.0, "step": 2.0}, "step=2.0 must be above 0 and at most high - low = 1"),
        ({"low": "few", "high": 1}, "search.a.low must be a number; got few"),
        ({"low": True, "high": 2}, "search.a.low must be a number; got true"),
        ({"low": 0.5, "high": 2, "type": "int"}, "has the type int, but"),
        ({"low": 1, "hihg": 2}, "unknown key 'hihg'; it may have low, high, log, step, type, values, when; did you"),
        ({"low": 1}, "search.a has no high"),
        ({"low": 1, "high": 2, "values": [1]}, "search.a has values, and low, high of a range"),
        ([], "values must be a list with at least one value"),
        ([1, 2, 1], "search.a has the value 1 twice"),
        (0.1, "expected a list of values, or a range"),
        ({"low": 1, "high": 2, "when": {"model": 1}}, "'model' is not a condition: it must be searched before"),
    ],
)
def test_what_cannot_be_searched_is_one_message(values: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_search({"a": values})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"low": 0.0, "high": 1.0, "step": 0.3}, [0.0, 0.3, 0.6, 0.9]),
        ({"low": 1, "high": 9, "step": 3}, [1, 4, 7]),
        ({"low": 1.0, "high": 8.0, "step": 2, "type": "int"}, [1, 3, 5, 7]),
        ({"low": 0.8, "high": 0.9, "step": 0.1}, [0.8, 0.9]),
        ({"low": 0.1, "high": 0.4, "step": 0.3}, [0.1, 0.4]),
        ({"low": "1e-5", "high": "1e-4", "step": "2e-5"}, [1e-5, 3e-5, 5e-5, 7e-5, 9e-5]),
        ({"low": 0, "high": 1, "step": 0.25}, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_a_range_ends_with_the_last_step_without_a_warning(values: Any, expected: list[float]) -> None:
    (parameter,) = parse_search({"a": values})
    assert isinstance(parameter, Range)
    assert parameter.high == pytest.approx(expected[-1], rel=1e-12)
    assert parameter.samples() == [parameter.low, parameter.high]
    assert parameter.grid() == pytest.approx(expected, rel=1e-12)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = sorted({parameter.suggest(study.ask()) for _ in range(80)})
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_condition_must_be_possible() -> None:
    with pytest.raises(ConfigurationError, match=r"model is never algorithm/sac; search\.model has algorithm/ppo, alg"):
        parse_search({**CONDITIONAL, "b": {"values": [1], "when": {"model": "algorithm/sac"}}})
    with pytest.raises(ConfigurationError, match="search must map options to their values"):
        parse_search({})


def test_a_grid_has_all_combinations_and_options_only_where_their_condition_holds() -> None:
    found = grid(parse_search(CONDITIONAL))
    of_ppo = [(one["model.clip_range"], one["data.n_envs"]) for one in found if one["model"] == "algorithm/ppo"]
    assert of_ppo == [(clip, n) for clip in (0.1, 0.2, 0.3) for n in (1, 2, 3)]
    of_a2c = [one for one in found if one["model"] == "algorithm/a2c"]
    assert of_a2c == [{"model": "algorithm/a2c", "data.n_envs": n} for n in (1, 2, 3)]
    with pytest.raises(ConfigurationError, match="a grid needs single values: list them"):
        grid(parse_search({"a": {"low": 0.1, "high": 0.2}}))


def test_samples_have_every_end_and_choice_with_its_condition() -> None:
    found = list(samples(parse_search(CONDITIONAL)))
    assert {one["model"] for one in found} == {"algorithm/ppo", "algorithm/a2c"}
    assert {one["data.n_envs"] for one in found} == {1, 3}
    assert {one.get("model.clip_range") for one in found} == {0.1, 0.3, None}
    assert all(("model.clip_range" in one) == (one["model"] == "algorithm/ppo") for one in found)
    assert len(found) <= 4


def test_optuna_suggests_values_within_the_ranges_and_only_those_that_are_searched() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    parameters = parse_search({**CONDITIONAL, "lr": {"low": 1e-4, "high": 1e-2, "log": True}, "b": [None, [1, 2]]})
    n_small = 0
    for _ in range(60):
        trial = study.ask()
        values = suggested(parameters, trial)
        assert ("model.clip_range" in values) == (values["model"] == "algorithm/ppo")
        assert values["data.n_envs"] in (1, 2, 3) and isinstance(values["data.n_envs"], int)
        assert values["b"] in (None, [1, 2]) and 1e-4 <= values["lr"] <= 1e-2
        n_small += values["lr"] < 1e-3
        study.tell(trial, 0.0)
    assert 15 < n_small < 45  # half of a logarithmic scale
