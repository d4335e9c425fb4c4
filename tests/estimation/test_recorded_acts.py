"""Recorded acts that masks allow, forbid, or say nothing about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.estimation.probabilities import log_probs
from maze_pl.estimation.recorded_acts import read_acts
from maze_pl.perception import AutomaticModelComposer
from maze_pl.records.record_files import SpacesTrajectoryRecord

HEADS = spaces.Dict(choice=spaces.Discrete(3), dials=spaces.MultiDiscrete([2, 2]), bits=spaces.MultiBinary(2))
MASKS = {"choice": "of_choice", "dials": "of_dials", "bits": "of_bits"}


def record_of(choice: int, of_choice: list[int], of_dials: list[int], of_bits: list[int]) -> SpacesTrajectoryRecord:
    """An episode of one act."""
    masks = {"of_choice": of_choice, "of_dials": of_dials, "of_bits": of_bits}
    observed = {"place": spaces.Box(-1, 1, (1,), np.float32)}
    observed |= {name: spaces.MultiBinary(len(mask)) for name, mask in masks.items()}
    spec = Spec({0: StepSpec(spaces.Dict(observed), HEADS, 1, 1, MASKS)})
    observation: dict[str, Any] = {"place": np.ones(1, np.float32)}
    observation |= {name: np.array(mask, np.int8) for name, mask in masks.items()}
    action = {"choice": choice, "dials": np.zeros(2, np.int64), "bits": np.zeros(2, np.int8)}
    acts = [(0, 0, 0, 1.0, False, observation, action)]
    rest: dict[str, Any] = {"terminated": True, "truncated": False, "last_env_time": 1}
    return SpacesTrajectoryRecord.of_acts(f"e {choice}", spec, acts, **rest, last_actor=None, last_observation={})


def test_an_episode_with_a_forbidden_action_is_refused_by_its_name() -> None:
    record = record_of(2, [1, 1, 0], [1, 1, 1, 1], [1, 1])
    message = r"^episode e 2: its action 2 of head 'choice' in act 0 of sub-step 0 is forbidden by the mask 'of_choice'"
    with pytest.raises(ValueError, match=message):
        read_acts([record], record.spec)


@pytest.mark.parametrize(
    ("masks", "n_actions"),
    [
        (([1, 1, 0], [1, 1, 1, 0], [1, 0]), 2 * 2 * 2),
        (([0, 0, 0], [1, 1, 0, 0], [0, 0]), 3 * 2 * 2),
    ],
)
def test_a_choice_whose_mask_allows_nothing_allows_all_options(masks: Any, n_actions: int) -> None:
    record = record_of(1, *masks)
    acts = read_acts([record], record.spec)
    policy = RandomPolicy({0: HEADS}, {0: MASKS})
    np.testing.assert_allclose(np.exp(log_probs(policy, acts, "random")), 1.0 / n_actions)
    networks = AutomaticModelComposer().compose(record.spec).policy
    assert np.exp(log_probs(networks, acts, "networks")) > 0.01
