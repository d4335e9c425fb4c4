"""PPO and A2C on every kind of observation and action at once, with masks, that a policy can learn to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from gymnasium import spaces

from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.modules import A2C, PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")
N_STEPS = 10


class Panel(CoreEnv):
    """Rewards each part of an action that answers what was shown; masked choices must never arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def seed(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def show(self) -> dict[str, Any]:
        draw = self.generator
        self.state = {
            "vector": draw.uniform(-1, 1, 2).astype(np.float32),
            "number": int(draw.integers(2)),
            "image": draw.integers(0, 2, (1, 2, 2)).astype(np.uint8),
            "choice_mask": np.array(draw.permutation([1, 1, 0]), np.int8),
            "levers_mask": np.array([*draw.permutation([1, 0]), *draw.permutation([1, 1, 0])], np.int8),
        }
        return self.state

    def reset(self) -> dict[str, Any]:
        return self.show()

    def step(self, action: Mapping[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        state = self.state
        assert state["choice_mask"][action["choice"]]
        assert state["levers_mask"][action["levers"][0]]
        assert state["levers_mask"][2 + action["levers"][1]]
        reward = float(action["bits"][0] == state["number"])
        reward += float(action["bits"][1] == state["image"][0, 0, 0])
        reward += 1.0 - min(1.0, float(np.abs(action["force"][0] - state["vector"][0])))
        done = self.context.env_time + 1 >= N_STEPS
        return self.show(), reward, done, False, {}

    def get_maze_state(self) -> dict[str, Any]:
        return self.state

    def close(self) -> None:
        self.state = {}


class See(ObservationConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                "vector": spaces.Box(-1, 1, (2,), np.float32),
                "number": spaces.Discrete(2),
                "image": spaces.Box(0, 255, (1, 2, 2), np.uint8),
                "choice_mask": spaces.MultiBinary(3),
                "levers_mask": spaces.MultiBinary(5),
            }
        )

    def maze_to_space(self, maze_state: dict[str, Any]) -> dict[str, Any]:
        return maze_state


class Operate(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict(
            {
                "choice": spaces.Discrete(3),
                "levers": spaces.MultiDiscrete([2, 3]),
                "bits": spaces.MultiBinary(2),
                "force": spaces.Box(-1, 1, (1,), np.float32),
            }
        )

    def space_to_maze(self, action: Mapping[str, Any], maze_state: Any) -> Mapping[str, Any]:
        assert self.space().contains(dict(action))
        return action

    @property
    def action_masks(self) -> Mapping[str, str]:
        return {"choice": "choice_mask", "levers": "levers_mask"}


def make_panel() -> MazeEnv:
    return MazeEnv(Panel(), {0: Operate()}, {0: See()})


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> torch.nn.Module:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [32])


def value_net(obs_shapes: Any) -> torch.nn.Module:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [32])


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "n_rollouts"), [("ppo", 60), pytest.param("a2c", 200, marks=pytest.mark.long)])
def test_every_kind_of_space_is_learned_at_once(algorithm: str, n_rollouts: int) -> None:
    pl.seed_everything(0, verbose=False)
    evaluators = {"eval": RolloutEvaluator(20), "sampled": RolloutEvaluator(5, deterministic=False)}
    data = RolloutDataModule(
        make_panel, n_envs=8, n_rollout_steps=32, epoch_length=n_rollouts, evaluators=evaluators, seed=0
    )
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), SharedStateCriticComposer([value_net]))
    common: dict[str, Any] = {"spec": data.spec, "networks": networks, "gamma": 0.5, "max_grad_norm": 0.5}
    if algorithm == "ppo":
        module: pl.LightningModule = PPO(**common, lr=3e-3, batch_size=64, n_optimization_epochs=6)
    else:
        module = A2C(**common, lr=5e-3, normalize_advantage=True)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, data)
    # Chance gives about 1 + 0.5 a step; all three parts answered gives 3.
    assert float(trainer.callback_metrics["eval/return"]) > 0.9 * 3 * N_STEPS
    assert float(trainer.callback_metrics["sampled/return"]) > 0.7 * 3 * N_STEPS
