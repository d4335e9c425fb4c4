"""Time of PPO's updates with and without traces, where the number of acts of a step key differs between minibatches.

usage: python benchmarks/uneven_acts.py [--env inspection|cutting_2d] [--rounds 5]

`inspection` ends most episodes in the first of two sub-steps; `cutting_2d` is the structured cutting problem, whose
minibatches are even. Runs with `capture: auto` and `off` take turns. Each learns from the same rollouts; the result is
the median processor time of one update after the trace was made, in ms, and the ratio of each round. The last line
has the medians as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from functools import partial
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytorch_lightning as pl
import torch
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import ActionConversionInterface, CoreEnv, MazeEnv, ObservationConversionInterface
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

N_UPDATES = 32
"""Updates on each rollout: 4 passes of 8 minibatches."""
DEMAND = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]


class InspectionCoreEnv(CoreEnv):
    """Pick one of three parts; a broken one ends the episode before it is repaired in the second sub-step."""

    def seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.parts = self.random.uniform(-1.0, 1.0, 3)
        self.picked: int | None = None
        return self.get_maze_state()

    def get_maze_state(self) -> Any:
        return self.parts.copy()

    @property
    def agent_counts_dict(self) -> Any:
        return {"pick": 1, "repair": 1}

    def actor_id(self) -> ActorID:
        return ActorID("pick" if self.picked is None else "repair", 0)

    def step(self, maze_action: Any) -> Any:
        if self.picked is None:
            self.picked = maze_action
            is_broken = bool(self.parts[maze_action] < 0.0)
            if is_broken:
                self.context.increment_env_step()
            return self.get_maze_state(), -1.0 * is_broken, is_broken, False, {}
        reward = float(self.parts[self.picked]) if maze_action == self.picked else 0.0
        self.parts, self.picked = self.random.uniform(-1.0, 1.0, 3), None
        self.context.increment_env_step()
        return self.get_maze_state(), reward, False, False, {}

    def close(self) -> None:
        """There is nothing to close."""


class Observe(ObservationConversionInterface):
    def __init__(self, name: str) -> None:
        self.name = name

    def space(self) -> spaces.Dict:
        return spaces.Dict({self.name: spaces.Box(-1, 1, (3,), np.float32)})

    def maze_to_space(self, maze_state: Any) -> Any:
        return {self.name: maze_state.astype(np.float32)}


class Choose(ActionConversionInterface):
    def space(self) -> spaces.Dict:
        return spaces.Dict({"choice": spaces.Discrete(3)})

    def space_to_maze(self, action: Any, maze_state: Any) -> int:
        return int(action["choice"])


def inspection() -> MazeEnv:
    keys = ("pick", "repair")
    return MazeEnv(InspectionCoreEnv(), {key: Choose() for key in keys}, {key: Observe(key) for key in keys})


def cutting_2d() -> Any:
    return masked_struct_env_factory(50, (4, 3), DEMAND)


class Updates(pl.Callback):
    """Processor time of each training step, without collecting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        self.began = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.process_time() - self.began)


def update_seconds(env: str, capture: Any, n_rollouts: int) -> float:
    """Median time of the gradient steps of a rollout, of the second half of the rollouts."""
    pl.seed_everything(0, verbose=False)
    make = {"inspection": inspection, "cutting_2d": cutting_2d}[env]
    limit = partial(TimeLimitWrapper, max_episode_steps=180)
    data = RolloutDataModule(make, wrappers=[limit], n_envs=8, n_rollout_steps=100, epoch_length=n_rollouts)
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[64, 64])]),
        critic=SharedStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[64, 64])]),
    )
    module = PPO(spec=data.spec, networks=networks, capture=capture)
    updates = Updates()
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    quiet |= {"enable_checkpointing": False, "limit_val_batches": 0, "accelerator": "cpu", "devices": 1}
    pl.Trainer(max_epochs=1, callbacks=[updates], **quiet).fit(module, data)
    assert capture == "off" or module.n_traces > 0, module.capture_refusal
    return statistics.median(updates.seconds[n_rollouts // 2 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", choices=["inspection", "cutting_2d"], default="inspection")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    ratios = []
    milliseconds: dict[str, list[float]] = {"off": [], "auto": []}
    for index in range(arguments.rounds):
        order = ("auto", "off") if index % 2 == 0 else ("off", "auto")
        for capture in order:
            seconds = update_seconds(arguments.env, capture, arguments.rollouts)
            milliseconds[capture].append(1000 * seconds / N_UPDATES)
        ratios.append(milliseconds["off"][-1] / milliseconds["auto"][-1])
        times = ", ".join(f"{capture} {own[-1]:.2f} ms" for capture, own in milliseconds.items())
        print(f"round {index + 1}: {times} an update, ratio {ratios[-1]:.2f}", flush=True)
    print(f"{arguments.env}: median ratio {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    figures = {capture: statistics.median(own) for capture, own in milliseconds.items()}
    print(json.dumps({**figures, "ratio": statistics.median(ratios)}))


if __name__ == "__main__":
    main()
