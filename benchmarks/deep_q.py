"""DQN on CartPole-v1 or TD3 on Pendulum-v1: maze_pl through the public API, or stable-baselines3.

DQN has networks of 64 x 64 and batches of 64, and no double Q-learning, which stable-baselines3 does not have; TD3 has
networks and batches as the benchmark of SAC. Prints one line of JSON with the updates per second of processor time
after a warm-up; env steps are part of the work, as many as there are updates.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings

ARGUMENTS = argparse.ArgumentParser()
ARGUMENTS.add_argument("--algorithm", choices=["dqn", "td3"], default="dqn")
ARGUMENTS.add_argument("--library", choices=["maze_pl", "stable-baselines3"], default="maze_pl")
ARGUMENTS.add_argument("--updates", type=int, default=1, help="of a batch, after as many steps")
ARGUMENTS.add_argument("--n_updates", type=int, help="that are measured")
ARGUMENTS.add_argument("--seed", type=int, default=0)
GIVEN = ARGUMENTS.parse_args()
os.environ["OMP_NUM_THREADS"] = "1"

IS_DQN = GIVEN.algorithm == "dqn"
ENVIRONMENT = "CartPole-v1" if IS_DQN else "Pendulum-v1"
N_FILLED, N_WARM = 1000, 256
N_UPDATES = GIVEN.n_updates or (8000 if IS_DQN else 1600)
WIDTHS = [64, 64] if IS_DQN else [256, 256]
BATCH_SIZE = 64 if IS_DQN else 256
LR = 1e-3


def ours() -> dict[str, float]:
    import pytorch_lightning as pl
    from torch import nn

    from maze_pl.datamodules import ReplayDataModule
    from maze_pl.envs import make_gym_maze_env
    from maze_pl.modules import DQN, TD3
    from maze_pl.perception import (
        CustomModelComposer,
        FlattenConcatPolicyNet,
        FlattenConcatStateActionValueNet,
        ProbabilisticPolicyComposer,
        SharedStateActionCriticComposer,
    )

    class Clock(pl.Callback):
        """Measures batches of the Trainer."""

        speed = 0.0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if batch_idx + 1 == n_warm:
                self.began = time.process_time()
            if batch_idx + 1 == n_warm + n_batches:
                self.speed = n_batches * GIVEN.updates / (time.process_time() - self.began)

    def policy_net(obs_shapes, action_logits_shapes):
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.ReLU, WIDTHS)

    def critic_net(obs_shapes, action_shapes, q_shapes):
        return FlattenConcatStateActionValueNet(obs_shapes, action_shapes, q_shapes, nn.ReLU, WIDTHS)

    n_warm, n_batches = N_WARM // GIVEN.updates, N_UPDATES // GIVEN.updates
    pl.seed_everything(GIVEN.seed, verbose=False)
    data = ReplayDataModule(
        lambda: make_gym_maze_env(ENVIRONMENT),
        n_rollout_steps=GIVEN.updates,
        num_batches_per_iter=GIVEN.updates,
        batch_size=BATCH_SIZE,
        initial_buffer_size=N_FILLED,
        epoch_length=n_warm + n_batches,
        evaluators={},
        seed=GIVEN.seed,
    )
    policy = ProbabilisticPolicyComposer([policy_net])
    if IS_DQN:
        kind = "maze_pl.distributions.EpsilonGreedyProbabilityDistribution"
        config = {"action_space": "gymnasium.spaces.Space", "distribution": kind}
        networks = CustomModelComposer(policy, distribution_mapper_config=[config])
        module = DQN(spec=data.spec, networks=networks, lr=LR, double_q=False, target_update_interval=1000)
    else:
        kind = "maze_pl.distributions.DeterministicProbabilityDistribution"
        config = {"action_space": "gymnasium.spaces.Box", "distribution": kind}
        networks = CustomModelComposer(policy, SharedStateActionCriticComposer([critic_net]), [config])
        module = TD3(spec=data.spec, networks=networks, lr=LR)
    clock = Clock()
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=1, callbacks=[clock], enable_model_summary=False, devices=1, **options)
    trainer.fit(module, data)
    if module.capture_refusal is not None:
        raise SystemExit(f"updates were not traced: {module.capture_refusal}")
    return {"updates_per_second": clock.speed}


def theirs() -> dict[str, float]:
    from stable_baselines3 import DQN, TD3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    class Clock(BaseCallback):
        began = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == N_FILLED + N_WARM:
                self.began = time.process_time()
            return True

    options = {
        "learning_rate": LR,
        "learning_starts": N_FILLED,
        "batch_size": BATCH_SIZE,
        "train_freq": GIVEN.updates,
        "gradient_steps": GIVEN.updates,
        "policy_kwargs": {"net_arch": WIDTHS},
        "seed": GIVEN.seed,
        "device": "cpu",
    }
    if IS_DQN:
        model = DQN("MlpPolicy", ENVIRONMENT, target_update_interval=1000, **options)
    else:
        import numpy as np

        noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
        model = TD3("MlpPolicy", ENVIRONMENT, action_noise=noise, **options)
    clock = Clock()
    model.learn(N_FILLED + N_WARM + N_UPDATES, callback=clock)
    return {"updates_per_second": N_UPDATES / (time.process_time() - clock.began)}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    print(json.dumps(ours() if GIVEN.library == "maze_pl" else theirs()))
    sys.stdout.flush()
