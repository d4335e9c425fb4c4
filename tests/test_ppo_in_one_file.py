"""The example of PPO in one file computes the updates of the library, and learns."""

from __future__ import annotations

import ast
import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from examples import ppo_in_one_file as example
from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.collect.collector import Collector
from maze_pl.core.batches import Rollout
from maze_pl.core.spec import Spec
from maze_pl.envs import StructuredEnv
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.vector import SequentialVectorEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import PPO
from tests.modules.kit import fit

FILE = Path(example.__file__)
T, N = 16, 3
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:You defined a `validation_step`")


class OfHeads(nn.Module):
    """A policy network of the example as the library wants it."""

    def __init__(self, policy: example.Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        leading = next(iter(inputs.values())).shape[0]
        logits = self.policy.network(inputs).split(list(self.policy.sizes.values()), dim=1)
        return {head: part.view(leading, -1) for head, part in zip(self.policy.sizes, logits, strict=True)}


class OfState(nn.Module):
    """The example's network of values."""

    def __init__(self, value: example.MLP) -> None:
        super().__init__()
        self.value = value

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"value": self.value(inputs)}


class Start(pl.Callback):
    """Keeps the state of the generator that shuffles environment steps."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self.state = pl_module.generator.get_state()


def make_env(max_episode_steps: int) -> StructuredEnv:
    demand = [[1, 2], [1, 2], [1, 1], [2, 2], [1, 2], [1, 1]]
    env = masked_struct_env_factory(max_pieces_in_inventory=6, raw_piece_size=[4, 3], static_demand=demand)
    return TimeLimitWrapper.wrap(env, max_episode_steps=max_episode_steps)


def converted(rollout: Rollout, agent: example.Agent) -> example.Rollout:
    """A rollout of the library as one of the example."""
    segments, first = rollout.segments, agent.step_keys[0]
    with torch.no_grad():
        at = example.flat(segments[first].observation)
        value = agent.value(at)[:, 0].double().view(T, N)
        next_value = torch.cat([value[1:], torch.zeros(1, N)])
        final = rollout.finals[first]
        next_value[final.row, final.env] = agent.value(final.observation)[:, 0].double()
    return example.Rollout(
        {key: dict(segment.observation) for key, segment in segments.items()},
        {key: dict(segment.action) for key, segment in segments.items()},
        rollout.rows.reward,
        rollout.rows.terminated,
        rollout.rows.truncated,
        next_value,
    )


def test_the_parameters_stay_those_of_the_library_through_20_updates() -> None:
    torch.manual_seed(0)
    env = make_env(7)
    agent = example.Agent(env)
    twin = copy.deepcopy(agent)
    spec = Spec.of(env)
    policy = TorchPolicy({key: OfHeads(twin.policy(key)) for key in twin.step_keys}, spec)
    networks = TorchActorCritic(policy, TorchSharedStateCritic([OfState(twin.value)], spec))
    # Adam turns the rounding of gradients near 0, which depends on the processor, into shares of the learning rate
    options = example.Options(lr=2e-4, n_optimization_epochs=2, n_minibatches=2, entropy_coef=0.01)
    module = PPO(
        actor_critic=networks,
        lr=options.lr,
        gamma=options.gamma,
        gae_lambda=options.gae_lambda,
        entropy_coef=options.entropy_coef,
        value_loss_coef=options.value_loss_coef,
        clip_range=options.clip_range,
        max_grad_norm=options.max_grad_norm,
        n_optimization_epochs=options.n_optimization_epochs,
        batch_size=T * N // options.n_minibatches,
    )
    vector = SequentialVectorEnv([partial(make_env, steps) for steps in (5, 7, 11)], seed=1)
    collector = Collector(vector, T, torch.Generator().manual_seed(0))
    rollouts = [collector.collect(policy) for _ in range(5)]
    assert any(bool(rollout.rows.truncated.any()) for rollout in rollouts)
    before = copy.deepcopy(list(agent.parameters()))
    served, start = iter(rollouts), Start()
    fit(module, make=lambda seed: next(served), length=5, callbacks=[start])
    optimizer = torch.optim.Adam(agent.parameters(), options.lr)
    generator = torch.Generator()
    generator.set_state(start.state)
    for rollout in rollouts:
        example.learn(agent, optimizer, converted(rollout, agent), options, generator)
    for own, other, old in zip(agent.parameters(), twin.parameters(), before, strict=True):
        assert torch.allclose(own, other, rtol=0, atol=1e-5)
        assert not torch.allclose(own, old, rtol=0, atol=1e-3)


def test_the_file_is_short_and_takes_environments_only() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    modules = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module}
    own = {module for module in modules if module.startswith("maze_pl")}
    assert own and all(module.startswith("maze_pl.envs") for module in own)


@pytest.mark.slow
def test_the_file_learns_to_cut() -> None:
    _, mean = example.train(example.Options(n_env_steps=24_000))
    assert mean >= -34.0  # measured: -32.0; at random -52
