"""Small networks and rollouts made by hand, so that learning is tested without environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytorch_lightning as pl
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Evaluation, Rollout
from maze_pl.core.episode import EpisodeSummary
from maze_pl.core.rows import FinalObservations, Rows, Segment
from maze_pl.core.spec import Spec, StepSpec


class Network(nn.Module):
    """All observations side by side through one hidden layer to one output."""

    def __init__(self, n_inputs: int, output: str, n_outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output = output
        self.body = nn.Sequential(nn.Linear(n_inputs, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, n_outputs))

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        joined = torch.cat([observation[name] for name in sorted(observation)], dim=-1)
        return {self.output: self.body(joined)}


def step_spec(n_agents: int = 1, name: str = "observation") -> StepSpec:
    observation = spaces.Dict({name: spaces.Box(-1, 1, (3,))})
    return StepSpec(observation, spaces.Dict({"action": spaces.Discrete(2)}), n_agents, n_agents)


FLAT_SPEC = Spec({0: step_spec()})
TEAM_SPEC = Spec({"lead": step_spec(name="lead_view"), "crew": step_spec(n_agents=2, name="crew_view")})


def make_actor_critic(spec: Spec = FLAT_SPEC, kind: str = "shared", dropout: float = 0.0) -> TorchActorCritic:
    torch.manual_seed(0)
    policy = TorchPolicy([Network(3, "action", 2, dropout) for _ in spec.steps], spec)
    if kind == "step":
        critic = TorchStepStateCritic([Network(3, "value", 1, dropout) for _ in spec.steps], spec)
        return TorchActorCritic(policy, critic)
    n_inputs = 3 if len(spec.steps) == 1 else 3 * len(spec.steps) + len(spec.steps)
    return TorchActorCritic(policy, TorchSharedStateCritic([Network(n_inputs, "value", 1, dropout)], spec))


def summary(reward: float, env_index: int = 0, episode_index: int = 0) -> EpisodeSummary:
    return EpisodeSummary({}, 10, reward, {"waste": reward / 10}, env_index, episode_index)


def make_flat_rollout(n_steps: int = 10, n_envs: int = 4, seed: int = 0, ends: float = 0.1) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    shape = (n_steps, n_envs)
    zeros = torch.zeros(shape, dtype=torch.int64)
    filled = torch.ones(shape, dtype=torch.bool)
    terminated = torch.rand(shape, generator=generator) < ends
    truncated = (torch.rand(shape, generator=generator) < ends) & ~terminated
    reward = torch.randn(shape, generator=generator, dtype=torch.float64)
    end = -(terminated | truncated).long()
    rows = Rows(filled, reward, terminated, truncated, zeros + 1, zeros, zeros, end, end)
    observation = {"observation": torch.randn(*shape, 3, generator=generator)}
    action = {"action": torch.randint(0, 2, shape, generator=generator)}
    segment = Segment(observation, action, filled, zeros, zeros, reward, zeros.bool(), zeros.bool())
    needed = truncated.clone()
    needed[-1] = ~terminated[-1]
    row, env = needed.nonzero(as_tuple=True)
    none = torch.zeros_like(row)
    final = FinalObservations(row, env, none, none, {"observation": torch.randn(len(row), 3, generator=generator)})
    return Rollout(
        rows, {0: segment}, {0: final}, n_steps, True, summaries=[summary(float(seed), 0, seed)], seconds=0.25
    )


def make_team_rollout(n_steps: int = 8, n_envs: int = 3, seed: int = 0, crew_acts: bool = True) -> Rollout:
    """In each row the lead acts, then each of two crew members or not; one environment step is one row."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_steps, n_envs)
    rows_like = torch.zeros(shape, dtype=torch.int64)
    filled = torch.ones(shape, dtype=torch.bool)
    terminated = torch.rand(shape, generator=generator) < 0.1
    never = torch.zeros(shape, dtype=torch.bool)
    reward = torch.randn(shape, generator=generator, dtype=torch.float64)
    end = -terminated.long()
    rows = Rows(filled, reward, terminated, never, rows_like + 1, rows_like, rows_like, end, end)
    segments: dict[StepKey, Segment] = {}
    for key, n_slots in (("lead", 1), ("crew", 2)):
        size = (n_steps, n_envs * n_slots)
        active = torch.ones(size, dtype=torch.bool)
        position = torch.zeros(size, dtype=torch.int64)
        if key == "crew":
            active = (torch.rand(size, generator=generator) < 0.6) & crew_acts
            pairs = active.view(n_steps, n_envs, 2)
            position = pairs.long().cumsum(-1).view(size)
        segments[key] = Segment(
            observation={f"{key}_view": torch.randn(*size, 3, generator=generator)},
            action={"action": torch.randint(0, 2, size, generator=generator)},
            active=active,
            position=position,
            agent_id=torch.arange(n_slots).repeat(n_envs).expand(size).contiguous(),
            reward=(reward if n_slots == 1 else torch.zeros(size, dtype=torch.float64)),
            actor_done=torch.zeros(size, dtype=torch.bool),
            is_first=torch.zeros(size, dtype=torch.bool),
        )
    (env,) = (~terminated[-1]).nonzero(as_tuple=True)
    row, none = torch.full_like(env, n_steps - 1), torch.zeros_like(env)
    lead = FinalObservations(row, env, none, none, {"lead_view": torch.randn(len(env), 3, generator=generator)})
    crew = FinalObservations(env[:0], env[:0], env[:0], env[:0], {"crew_view": torch.zeros(0, 3)})
    return Rollout(rows, segments, {"lead": lead, "crew": crew}, n_steps, False)


class Source:
    """Rollouts that depend on nothing but how many environment steps were learned from."""

    def __init__(self, module: Any, make: Callable[..., Any], length: int) -> None:
        self.module, self.make, self.length = module, make, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            yield self.make(seed=self.module.env_steps)


def make_evaluations(seed: int) -> Evaluation:
    return Evaluation("eval", [summary(float(seed)), summary(float(seed) + 2, 1)])


def make_trainer(max_epochs: int = 1, **options: Any) -> pl.Trainer:
    quiet = dict(
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
    )
    return pl.Trainer(max_epochs=max_epochs, **{**quiet, **options})


def fit(
    module: Any, make: Callable[..., Any] = make_flat_rollout, epochs: int = 1, length: int = 2, **options: Any
) -> Any:
    ckpt_path = options.pop("ckpt_path", None)
    trainer = make_trainer(epochs, **options)
    evaluations = Source(module, make_evaluations, 1)
    trainer.fit(module, Source(module, make, length), evaluations, ckpt_path=ckpt_path, weights_only=True)
    return trainer


def train_table(module: Any) -> dict[str, float]:
    """What a module recorded while it learned, by name."""
    table: dict[str, float] = module.epoch_statistics["train"]
    return table


KIT = SimpleNamespace(
    Source=Source,
    flat_spec=FLAT_SPEC,
    team_spec=TEAM_SPEC,
    fit=fit,
    make_actor_critic=make_actor_critic,
    make_flat_rollout=make_flat_rollout,
    make_team_rollout=make_team_rollout,
    make_trainer=make_trainer,
    make_evaluations=make_evaluations,
    summary=summary,
)
