"""Rules that choose what masks forbid are told of once; policies that follow masks are not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.runs.rollout import rollout
from tests.envs.cutting_2d.instances import DOCUMENTED


class FirstOptions:
    """Chooses the first option of each head, whether it is allowed or not."""

    def __init__(self, action_spaces_dict: Any) -> None:
        self._spaces = action_spaces_dict

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        n = len(batch.agent_id)
        heads = self._spaces[batch.step_key].spaces
        return PolicyStep({head: np.zeros((n, *(space.shape or ())), np.int64) for head, space in heads.items()})


make_cutting = partial(masked_struct_env_factory, **DOCUMENTED)


def test_the_first_forbidden_action_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    rollout(make_cutting, FirstOptions, 3, max_steps=30, n_envs=2)
    message = capsys.readouterr().err
    assert message.count("FirstOptions has chosen 0 of ") == 1
    assert " in sub-step " in message and ", which the mask " in message and " forbids; the simulation gets" in message


@pytest.mark.parametrize("policy", ["random", "heuristic"])
def test_policies_that_follow_masks_are_not_named(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    rollout(make_cutting, policy, 2, max_steps=50)
    assert capsys.readouterr().err == ""


class Halves(FirstOptions):
    """Chooses 0.5 in place of an option."""

    def act(self, batch: PolicyBatch, **_: Any) -> PolicyStep:
        step = super().act(batch)
        return PolicyStep({head: values + 0.5 for head, values in step.action.items()})


def test_fractions_are_no_options() -> None:
    with pytest.raises(ValueError, match=r"array\(\[0\.5.*are not 4 actions of"):
        rollout(make_cutting, Halves, 4)
