"""Names of the wrappers of a run that change its rewards."""

from __future__ import annotations

from functools import partial
from typing import Any

from maze_pl.config.factories import Factory
from maze_pl.envs.wrappers import (
    ObservationNormalizationWrapper,
    ReturnNormalizationRewardWrapper,
    RewardClippingWrapper,
    RewardScalingWrapper,
    TimeLimitWrapper,
)
from maze_pl.runs.reward_wrappers import reward_wrappers_in


def test_wrappers_that_change_rewards_are_named_in_order() -> None:
    wrappers: list[Any] = [
        TimeLimitWrapper,
        partial(RewardScalingWrapper.wrap, scale=0.5),
        Factory("maze_pl.envs.wrappers.ReturnNormalizationRewardWrapper"),
        ObservationNormalizationWrapper,
        lambda env: RewardClippingWrapper(env, -1.0, 1.0),  # does not tell
    ]
    found = reward_wrappers_in(wrappers)
    assert found == ["RewardScalingWrapper", ReturnNormalizationRewardWrapper.__name__]
    assert reward_wrappers_in(None) == []
