"""The work of `maze_pl_cartpole.py` in torchrl."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import GymEnv, SerialEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import A2CLoss, ClipPPOLoss
from torchrl.objectives.value import GAE


def net(size: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, size))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "a2c"], default="ppo")
    parser.add_argument("--env_steps", type=int, default=200_000)
    parser.add_argument("--n_rollout_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    size = 8 * arguments.n_rollout_steps
    ppo = arguments.algorithm == "ppo"
    actor = ProbabilisticActor(
        TensorDictModule(net(2), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(net(1))
    env = SerialEnv(8, lambda: GymEnv("CartPole-v1"))
    env.set_seed(arguments.seed)
    started = time.perf_counter()
    collector = Collector(env, actor, frames_per_batch=size, total_frames=arguments.env_steps)
    advantage = GAE(gamma=0.98, lmbda=0.95, value_network=critic, average_gae=ppo)
    if ppo:
        loss_module = ClipPPOLoss(
            actor, critic, clip_epsilon=0.2, entropy_coeff=2.5e-4, critic_coeff=0.5, loss_critic_type="l2"
        )
    else:
        loss_module = A2CLoss(actor, critic, entropy_coeff=2.5e-4, critic_coeff=0.5, loss_critic_type="l2")
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=2.5e-4 if ppo else 5e-4)
    n_epochs, batch_size = (4, 100) if ppo else (1, size)
    buffer = ReplayBuffer(storage=LazyTensorStorage(size), sampler=SamplerWithoutReplacement(), batch_size=batch_size)
    env_steps = 0
    for data in collector:
        with torch.no_grad():
            data = advantage(data)
        env_steps += data.numel()
        for _ in range(n_epochs):
            buffer.extend(data.reshape(-1))
            for _ in range(size // batch_size):
                losses = loss_module(buffer.sample())
                loss = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                loss.backward()
                nn.utils.clip_grad_norm_(loss_module.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    speed = env_steps / (time.perf_counter() - started)
    collector.shutdown()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
