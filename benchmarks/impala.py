"""IMPALA on CartPole-v1, 8 trajectories of 100 steps in a batch (W4), or in an environment with steps of 2 ms.

Prints one line of JSON with the environment steps per second, from the second batch to the end (the first one waits for
the processes), and the peak memory of the training process. `--scaling` runs one actor in one process and two actors in
two processes in turn in the slow environment, and prints the rates of both and their ratio, which is meaningful only on
an idle machine. `--arrays N` runs one actor with N CartPoles in arrays, whose rollouts of 20 steps are a batch each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"

from engines import Busy


def make_cartpole():
    from maze_pl.envs import make_gym_maze_env

    return make_gym_maze_env("CartPole-v1")


def make_busy():
    from maze_pl.envs import GymMazeEnv

    return GymMazeEnv(Busy())


def env_steps_per_second(
    make_env, num_actors: int, n_workers: int, env_steps: int, seed: int = 0, n_envs_per_actor: int = 1
) -> float:
    """Env steps per second of a run with a number of actors and local processes; 0 processes means this one."""
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.loggers import CSVLogger
    from torch import nn

    from maze_pl.collect.engines import InProcessEngine, ProcessEngine
    from maze_pl.datamodules import ActorDataModule
    from maze_pl.modules import IMPALA
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

    def policy_net(obs_shapes, action_logits_shapes):
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.Tanh, [64, 64])

    def value_net(obs_shapes):
        return FlattenConcatStateValueNet(obs_shapes, nn.Tanh, [64, 64])

    torch.set_num_threads(1)
    pl.seed_everything(seed, verbose=False)
    size = 2 if make_env is make_busy else 8
    n_rollout_steps = 100
    if n_envs_per_actor > 1:
        size, n_rollout_steps = 1, 20
    data = ActorDataModule(
        make_env,
        num_actors=num_actors,
        actors_batch_size=size,
        n_envs_per_actor=n_envs_per_actor,
        n_rollout_steps=n_rollout_steps,
        epoch_length=25,
        engine=ProcessEngine(n_workers) if n_workers else InProcessEngine(),
        seed=seed,
    )
    networks = CustomModelComposer(ProbabilisticPolicyComposer([policy_net]), SharedStateCriticComposer([value_net]))
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=env_steps // data.env_steps_per_rollout,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            callbacks=[Clock()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        trainer.fit(IMPALA(networks=networks, spec=data.spec, max_grad_norm=0.5), data)
    return data.env_steps_per_rollout * (len(times) - 1) / (times[-1] - times[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_actors", type=int, default=8)
    parser.add_argument("--n_workers", type=int, default=0, help="local processes; 0: everything in this one")
    parser.add_argument("--env_steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--arrays", type=int, default=0, help="number of CartPoles in arrays of a single actor")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    if arguments.scaling:
        one, two = (env_steps_per_second(make_busy, n, n, 4000, arguments.seed) for n in (1, 2))
        print(json.dumps({"one actor": one, "two actors": two, "ratio": two / one}))
        return
    options = arguments.n_workers, arguments.env_steps, arguments.seed
    if arguments.arrays:
        from maze_pl.envs.arrays import CartPoleArrayEnv

        speed = env_steps_per_second(CartPoleArrayEnv, 1, *options, n_envs_per_actor=arguments.arrays)
    else:
        speed = env_steps_per_second(make_cartpole, arguments.num_actors, *options)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
