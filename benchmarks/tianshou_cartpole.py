"""The work of `maze_pl_cartpole.py` in tianshou."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time

os.environ["OMP_NUM_THREADS"] = "1"

import gymnasium
import torch
from tianshou.algorithm import A2C, PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algorithm", choices=["ppo", "a2c"], default="ppo")
    parser.add_argument("--env_steps", type=int, default=200_000)
    parser.add_argument("--n_rollout_steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    env = gymnasium.make("CartPole-v1")
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    envs.seed(arguments.seed)

    def net() -> Net:
        return Net(state_shape=(4,), hidden_sizes=[64, 64], activation=torch.nn.Tanh)

    policy = DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=net(), action_shape=2, softmax_output=False),
        action_space=env.action_space,
        observation_space=env.observation_space,
    )
    common = {
        "policy": policy,
        "critic": DiscreteCritic(preprocess_net=net()),
        "optim": AdamOptimizerFactory(lr=2.5e-4 if arguments.algorithm == "ppo" else 5e-4),
        "vf_coef": 0.5,
        "ent_coef": 2.5e-4,
        "max_grad_norm": 0.5,
        "gae_lambda": 0.95,
        "gamma": 0.98,
    }
    size = 8 * arguments.n_rollout_steps
    algorithm = PPO(**common, eps_clip=0.2) if arguments.algorithm == "ppo" else A2C(**common)
    collector = Collector(algorithm, envs, VectorReplayBuffer(size, 8))
    started = time.perf_counter()
    result = algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            test_collector=None,
            max_epochs=arguments.env_steps // (25 * size),
            epoch_num_steps=25 * size,
            collection_step_num_env_steps=size,
            update_step_num_repetitions=4 if arguments.algorithm == "ppo" else 1,
            batch_size=100 if arguments.algorithm == "ppo" else size,
            test_in_training=False,
            verbose=False,
            show_progress=False,
        )
    )
    speed = result.train_step / (time.perf_counter() - started)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"env_steps_per_second": speed, "peak_megabytes": memory}))


if __name__ == "__main__":
    main()
