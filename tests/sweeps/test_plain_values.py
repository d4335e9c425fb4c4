"""Values of NumPy in a sweep from Python become values of YAML."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from maze_pl.config.search_path import ConfigurationError
from maze_pl.sweeps.plain_values import plain
from maze_pl.sweeps.sweep_file import SweepPlan, parse_sweep


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.True_, True),
        (np.str_("x"), "x"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(2), 2),
        ({"a": [np.int8(1), (np.float16(2.0), None)]}, {"a": [1, [2.0, None]]}),
        ({np.int64(1): "x"}, {1: "x"}),
    ],
)
def test_numbers_and_arrays_are_those_of_python(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert yaml.safe_load(yaml.safe_dump(found)) == expected


def plan_of(first: Any, second: Any, n: Any) -> SweepPlan:
    content = {
        "config": "ppo_cartpole",
        "options": {"data.n_envs": n},
        "search": {"model.lr": first, "model.gamma": {"low": second[0], "high": second[1]}},
        "n_trials": n,
    }
    return parse_sweep(content)


def test_a_sweep_with_numpy_is_the_same_as_one_without() -> None:
    ours = plan_of(np.array([0.25, 0.5]), np.array([0.5, 0.75]), np.int64(2))
    theirs = plan_of([0.25, 0.5], [0.5, 0.75], 2)
    assert ours == theirs
    assert (ours.text, ours.identity) == (theirs.text, theirs.identity)
    assert parse_sweep(yaml.safe_load(ours.text)).identity == ours.identity
    assignment = {"model.lr": ours.parameters[0].samples()[0], "model.gamma": 0.5}
    assert ours.fit(assignment)[-6:] == ["--data.n_envs", "2", "--model.lr", "0.25", "--model.gamma", "0.5"]


@pytest.mark.parametrize("section", ["search", "options"])
def test_other_objects_are_refused_by_the_name_of_their_option(section: str) -> None:
    content = {"config": "ppo_cartpole", "search": {"model.lr": [0.1]}, "n_trials": 1}
    with pytest.raises(ConfigurationError, match=rf"^{section}\.model\.gamma may consist of numbers, .*; got <object"):
        parse_sweep({**content, section: {"model.gamma": [1, object()]}})
