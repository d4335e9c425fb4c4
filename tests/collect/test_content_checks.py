from __future__ import annotations

import numpy as np
import pytest

from maze_pl.collect.content_checks import check_acts
from maze_pl.collect.storage import SegmentArrays
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError
from tests.envs.structured_example import make_heap_env


@pytest.mark.parametrize(("name", "what"), [("reward", "the reward"), ("actor_reward", "the actor's reward")])
def test_rewards_that_are_not_finite_are_refused_with_their_environment_and_step(name: str, what: str) -> None:
    spec = Spec.of(make_heap_env())
    segment = SegmentArrays(spec.steps["plan"], 4, 3)
    segment.active[:] = True
    segment.actor_reward = np.zeros_like(segment.reward)
    getattr(segment, name)[2, 1] = np.nan
    check_acts(spec, {"plan": segment}, 2, first_env_index=10)
    message = rf"^{what} of environment 11, sub-step 'plan', is not finite \(step 2 of the rollout\)"
    with pytest.raises(EnvContractError, match=message):
        check_acts(spec, {"plan": segment}, 4, first_env_index=10)
