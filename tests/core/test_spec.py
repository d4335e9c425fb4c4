"""Specifications describe themselves in YAML types and refuse what cannot work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from gymnasium import spaces

from maze_pl.core.spaces import dict_space, space_from_dict, space_to_dict, without_integer_types
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.runs.compatibility import require_same_spaces

SPACES = [
    spaces.Discrete(3),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 3], start=[1, -2]),
    spaces.MultiDiscrete([2, 5]),
    spaces.Discrete(3, start=1, dtype=np.int32),
    spaces.MultiDiscrete([2, 3], dtype=np.int8, start=[1, -2]),
    spaces.MultiDiscrete([2, 200], dtype=np.uint8),
    spaces.MultiBinary(6),
    spaces.MultiBinary([2, 3]),
    spaces.Box(-1.0, 1.0, (2, 3)),
    spaces.Box(0, 255, (4,), np.uint8),
    spaces.Box(0, 1, (2,), np.bool_),
    spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-np.inf, np.inf, (1,))}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_survives_its_description_in_yaml(space: Any) -> None:
    assert space_from_dict(yaml.safe_load(yaml.safe_dump(space_to_dict(space)))) == space


def test_integers_are_described_only_if_they_are_unusual() -> None:
    usual = spaces.Dict(a=spaces.Discrete(3), b=spaces.MultiDiscrete([2, 3]))
    small = spaces.Dict(a=spaces.Discrete(3, dtype=np.int32), b=spaces.MultiDiscrete([2, 3], dtype=np.int8))
    description = space_to_dict(usual)  # as earlier versions described both
    assert "dtype" not in str(description)
    assert space_from_dict(description) == usual
    assert space_to_dict(small) != description
    assert without_integer_types(space_to_dict(small)) == description
    box = space_to_dict(spaces.Dict(type=spaces.Box(0, 1, (2,), np.float32)))
    assert without_integer_types([box]) == [box]


def test_an_agent_of_an_earlier_version_fits_an_environment_with_other_integers() -> None:
    places = spaces.Dict(place=spaces.Discrete(3, dtype=np.int32))
    here = Spec({0: StepSpec(places, spaces.Dict(choice=spaces.MultiDiscrete([2, 3], dtype=np.int8)))}).to_dict()
    require_same_spaces(without_integer_types(here), here, "the agent")


def test_entries_of_a_described_space_keep_their_order() -> None:
    space = spaces.Dict(b=spaces.Discrete(2), a=spaces.Discrete(3))
    assert list(space_from_dict(space_to_dict(space)).spaces) == ["b", "a"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)])], ids=str)
def test_a_space_that_nothing_fits_is_refused(space: Any) -> None:
    with pytest.raises(TypeError):
        space_to_dict(space)


def test_only_dicts_of_leaf_spaces_are_accepted() -> None:
    with pytest.raises(TypeError, match="the thing must be a Dict space, not Discrete"):
        dict_space(spaces.Discrete(2), "the thing")
    nested = spaces.Dict({"outer": spaces.Dict({"inner": spaces.Discrete(2)})})
    with pytest.raises(TypeError, match="entry 'outer' of type Dict"):
        dict_space(nested, "the thing")


def env(**changes: Any) -> Any:
    attributes = {
        "observation_spaces_dict": {0: spaces.Dict({"x": spaces.Box(0, 1, (2,)), "mask": spaces.MultiBinary(3)})},
        "action_spaces_dict": {0: spaces.Dict({"choice": spaces.Discrete(3), "force": spaces.Box(0, 1, (1,))})},
        "agent_counts_dict": {0: 1},
        "action_masks_dict": {},
    }
    return SimpleNamespace(**(attributes | changes))


def test_a_specification_survives_yaml() -> None:
    spec = Spec.of(env(agent_counts_dict={0: 2}), masks={"choice": "mask"})
    assert spec.steps[0].masks == {"choice": "mask"}
    assert spec.steps[0].n_slots == 2 and not spec.is_flat
    assert Spec.from_dict(yaml.safe_load(yaml.safe_dump(spec.to_dict()))) == spec
    assert Spec.of(env()).is_flat


@pytest.mark.parametrize(
    ("masks", "error", "message"),
    [
        ({"choice": "x"}, ValueError, r"shape \(2,\), expected \(3,\)"),
        ({"force": "mask"}, TypeError, "'force' is a Box, which cannot be masked"),
        ({"nothing": "mask"}, ValueError, "fit no sub-step"),
    ],
)
def test_masks_that_cannot_work_are_refused(masks: dict[str, str], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Spec.of(env(), masks=masks)


def test_declared_masks_must_exist() -> None:
    with pytest.raises(ValueError, match="mask 'other' of sub-step 0"):
        Spec.of(env(action_masks_dict={0: {"choice": "other"}}))


def test_sub_step_keys_must_differ_when_written_as_text() -> None:
    space = env().observation_spaces_dict[0]
    with pytest.raises(ValueError, match="not distinct"):
        Spec.of(env(observation_spaces_dict={0: space, "0": space}))


@pytest.mark.parametrize(
    ("max_agents", "message"), [({1: 3}, r"max_agents names \['1'\]"), ({0: 3}, "always has 1 agents: leave it out")]
)
def test_limits_for_agents_that_do_not_change_are_refused(max_agents: dict[int | str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.of(env(), max_agents=max_agents)
