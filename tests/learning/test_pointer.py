"""A pointer network learns to choose items, the second of which depends on the first, and acts with more of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl

from maze_pl.agents import TorchActorCritic
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec
from maze_pl.envs import MazeEnv
from maze_pl.modules import PPO
from maze_pl.perception import (
    ConcatModelBuilder,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    TemplateModelComposer,
)
from tests.learning.training import train
from tests.structured import pairs

# Lightning warns about itself with torch 2.13, and about a hook that the module overrides on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


def composer() -> TemplateModelComposer:
    """Pointer networks for both choices, and a critic of the pooled set."""
    pointer = {"block_type": "maze_pl.perception.PointerBlock"}
    options = {"mask_key": "exists", "levels": 5, "hidden_units": [32, 32]}
    items = {
        "block_type": "maze_pl.perception.DeepSetBlock",
        "block_params": {"mask_key": "exists", "hidden_units": [16]},
        "heads": {
            "take": {**pointer, "block_params": options},
            "match": {**pointer, "block_params": {**options, "chosen_keys": ["first_item"]}},
        },
    }
    builder = ConcatModelBuilder({"items": items}, {"items": "items"})
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), SharedStateCriticComposer())


def mean_return(networks: TorchActorCritic, env: MazeEnv) -> float:
    """Mean return of 20 deterministic episodes."""
    total = 0.0
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            rows = {name: np.asarray(value)[None] for name, value in observation.items()}
            batch = PolicyBatch(env.actor_id().step_key, rows, np.zeros(1, np.int64))
            action: dict[str, Any] = networks.policy.act(batch, deterministic=True).action
            observation, reward, ended, *_ = env.step({head: value[0] for head, value in action.items()})
            total += reward
    return total / 20


@pytest.mark.slow
def test_a_pointer_network_learns_choices_that_depend_on_each_other_and_acts_with_more_items() -> None:
    """A random policy gets 4.4 of 10 at most. What was learned relies on the item chosen before."""
    pl.seed_everything(0, verbose=False)
    options: dict[str, Any] = {"lr": 3e-3, "gamma": 0.5, "gae_lambda": 0.9, "batch_size": 100, "entropy_coef": 3e-3}
    learner = PPO(networks=composer(), max_grad_norm=0.5, n_optimization_epochs=4, **options)
    assert train(learner, pairs.make_env, seed=0, n_rollouts=30, n_envs=16, n_rollout_steps=25) >= 9.0
    large = composer().compose(Spec.of(pairs.make_env(24)))
    large.policy.load_state_dict(learner.policy.state_dict())
    assert mean_return(large, pairs.make_env(24)) >= 9.0
    assert mean_return(large, pairs.make_env(24, hides_first=True)) <= 8.0
