"""Speedup by local processes: A2C in an environment whose steps take 2 ms of processor time.

Prints one line of JSON with the environment steps per second, from the second rollout to the end (the first one waits
for the processes), and the peak memory of the training process. Without `--n_workers`, one process and two processes
take turns, and the line has the rates of both and their ratio, which is meaningful only on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import numpy as np
from gymnasium import spaces

MILLISECONDS = 2.0


class Busy(gymnasium.Env):
    """Computes for a while in each step; episodes take 100 steps."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        until = time.thread_time() + MILLISECONDS / 1000  # of this process, however busy the machine is
        while time.thread_time() < until:
            np.tanh(np.ones(1000)).sum()
        self.time += 1
        return self._observe(), float(action), self.time == 100, False, {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


def env_steps_per_second(n_workers: int, env_steps: int, seed: int = 0) -> float:
    """Env steps per second of a run with the environments in `n_workers` local processes; 0 means this process."""
    import pytorch_lightning as pl
    import torch

    from maze_pl.collect.engines import InProcessEngine, ProcessEngine
    from maze_pl.datamodules import RolloutDataModule
    from maze_pl.envs import GymMazeEnv
    from maze_pl.modules import A2C
    from maze_pl.perception import (
        CustomModelComposer,
        FlattenConcatPolicyNet,
        FlattenConcatStateValueNet,
        ProbabilisticPolicyComposer,
        SharedStateCriticComposer,
    )

    times: list[float] = []

    class Clock(pl.Callback):
        def on_train_batch_start(self, *arguments):
            times.append(time.perf_counter())

    torch.set_num_threads(1)
    pl.seed_everything(seed, verbose=False)
    data = RolloutDataModule(
        lambda: GymMazeEnv(Busy()),
        n_envs=8,
        n_rollout_steps=25,
        epoch_length=1 + env_steps // 200,
        n_shards=0,
        engine=ProcessEngine(n_workers) if n_workers else InProcessEngine(),
        evaluators={},
        seed=seed,
    )
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([lambda **shapes: FlattenConcatPolicyNet(**shapes, hidden_units=[64, 64])]),
        critic=SharedStateCriticComposer(
            [lambda **shapes: FlattenConcatStateValueNet(**shapes, hidden_units=[64, 64])]
        ),
    )
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[Clock()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(A2C(networks=networks, spec=data.spec), data)
    return 200 * (len(times) - 1) / (times[-1] - times[0])


def compare(env_steps: int = 2000, seed: int = 0) -> dict[str, float]:
    """The rates of one process and of two, one after the other, and their ratio."""
    one, two = (env_steps_per_second(n_workers, env_steps, seed) for n_workers in (0, 2))
    return {"one process": one, "two local processes": two, "ratio": two / one}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_workers", type=int, default=None, help="local processes; 0: everything in this one")
    parser.add_argument("--env_steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    if arguments.n_workers is None:
        print(json.dumps(compare(arguments.env_steps, arguments.seed)))
        return
    speed = env_steps_per_second(arguments.n_workers, arguments.env_steps, arguments.seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
