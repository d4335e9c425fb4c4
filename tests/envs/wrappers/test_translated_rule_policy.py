"""Rules under wrappers that replace action heads."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs.wrappers import DiscretizeActionsWrapper, SplitActionsWrapper, TimeLimitWrapper
from maze_pl.envs.wrappers.translated_rule_policy import TranslatedRulePolicy
from tests.envs.wrappers.environments import make_action_env

BOX = spaces.Box(np.array([-1, -2, 0], np.float32), np.array([1, 2, 4], np.float32))
BINS = partial(DiscretizeActionsWrapper, discretization_config={"action": {"num_bins": 5}})
PARTS = partial(SplitActionsWrapper, split_config={"action": {"x": {"indices": [2, 0]}, "y": {"indices": [1]}}})


class Listed:
    """Actions from a list, one for each row; counts the calls."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def act(self, batch: PolicyBatch, **options: Any) -> PolicyStep:
        return PolicyStep({head: np.array(values) for head, values in self.action.items()})


ROWS = np.array([[-1, -2, 0], [0.1, 1.4, 2.9], [5, 0.4, 1.1]], np.float32)
RULE = Listed({"action": ROWS})
BATCH = PolicyBatch(0, {}, np.zeros(3, np.int64))
NEAREST = [[0, 0, 0], [2, 3, 3], [4, 2, 1]]  # bins of width 0.5, 1 and 1


def test_actions_become_the_nearest_bins_in_parts() -> None:
    env = BINS(make_action_env(BOX))
    assert TranslatedRulePolicy(env, RULE).act(BATCH).action["action"].tolist() == NEAREST
    both = TranslatedRulePolicy(TimeLimitWrapper(PARTS(TimeLimitWrapper(env, 5)), 5), RULE).act(BATCH).action
    expected = np.array(NEAREST)
    assert {head: values.tolist() for head, values in both.items()} == {
        "x": expected[:, [2, 0]].tolist(),
        "y": expected[:, [1]].tolist(),
    }


def test_the_heuristic_is_translated_by_all_wrappers(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = make_action_env(BOX)
    env = PARTS(BINS(inner))
    assert env.heuristic_policy is None
    monkeypatch.setattr(inner, "heuristic_policy", f"{__name__}.make_rule")
    path = "maze_pl.envs.wrappers.translated_rule_policy.TranslatedRulePolicy"
    assert env.heuristic_policy == path
    found = TranslatedRulePolicy(env).act(BATCH).action
    expected = TranslatedRulePolicy(env, RULE).act(BATCH).action
    np.testing.assert_equal(found, expected)


def make_rule() -> Listed:
    return RULE


def test_it_holds_no_environment() -> None:
    env = BINS(make_action_env(BOX))
    policy = TranslatedRulePolicy(env, RULE)
    assert not any("env" in vars(translation) for translation in policy._translations)
    assert env.env is not None
    for copied in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert copied.act(BATCH).action["action"].tolist() == NEAREST


@pytest.mark.parametrize("action", [{"other": ROWS}, {"action": ROWS[:, :2]}, {"action": ROWS * np.nan}])
def test_a_rule_with_other_actions_is_refused(action: Any) -> None:
    policy = TranslatedRulePolicy(BINS(make_action_env(BOX)), Listed(action))
    with pytest.raises(ValueError, match=r"(?s)Listed gave .*, which are not 3 actions of"):
        policy.act(BATCH)


def test_without_such_a_wrapper_it_says_so() -> None:
    with pytest.raises(ValueError, match=r"no wrapper of .* replaces action heads; play the rule itself"):
        TranslatedRulePolicy(make_action_env(BOX), RULE)


def test_without_a_rule_it_says_so() -> None:
    with pytest.raises(ValueError, match="has no heuristic_policy"):
        TranslatedRulePolicy(BINS(make_action_env(BOX)))
