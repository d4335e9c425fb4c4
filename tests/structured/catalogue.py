"""The three structured environments, for tests that go through all of them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from maze_pl.collect.collector import Collector
from maze_pl.core.batches import Rollout
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs.vector import SequentialVectorEnv
from tests.structured import agreement, hierarchy, team
from tests.structured.planning import Credit, to_own, to_team
from tests.structured.tabular import TabularCoreEnv

SIMULATIONS: dict[ModuleType, type[TabularCoreEnv]] = {
    agreement: agreement.AgreementCoreEnv,
    team: team.TeamCoreEnv,
    hierarchy: hierarchy.HierarchyCoreEnv,
}
"""Module, which has `make_env` and the constants `N_STEPS`, `GAMMA` and `OPTIMUM`, and its simulation."""

every_environment = pytest.mark.parametrize("module", SIMULATIONS, ids=lambda module: module.__name__.split(".")[-1])


def right_credits(module: ModuleType) -> list[Credit]:
    """The right ways to give credit: to the team (shared critics) and, with step critics, to each agent."""
    return [to_team, to_own] if SIMULATIONS[module].attributed else [to_team]


def random_rollout(module: ModuleType, n_envs: int, n_steps: int) -> Rollout:
    """What a random policy collects."""
    spec = Spec.of(module.make_env())
    vector = SequentialVectorEnv([module.make_env] * n_envs, seed=1)
    policy = RandomPolicy({key: step.action_space for key, step in spec.steps.items()})
    rollout = Collector(vector, n_steps, torch.Generator().manual_seed(0)).collect(policy)
    vector.close()
    return rollout
