"""SAC on Pendulum-v1, batches of 256, networks of 256 x 256: maze_pl through the public API, or stable-baselines3.

Prints one line of JSON with the updates per second after a warm-up and, for maze_pl, the time of a batch of the Trainer
relative to a bare loop that only collects, samples and updates.
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
ARGUMENTS.add_argument("--library", choices=["maze_pl", "stable-baselines3"], default="maze_pl")
ARGUMENTS.add_argument("--updates", type=int, default=1, help="of a batch, after as many steps")
ARGUMENTS.add_argument("--n_updates", type=int, default=960, help="that are measured")
ARGUMENTS.add_argument("--threads", type=int, default=1)
ARGUMENTS.add_argument("--seed", type=int, default=0)
GIVEN = ARGUMENTS.parse_args()
os.environ["OMP_NUM_THREADS"] = str(GIVEN.threads)

N_FILLED, N_WARM = 1000, 256


def ours() -> dict[str, float]:
    import pytorch_lightning as pl
    from torch import nn

    from maze_pl.datamodules import ReplayDataModule
    from maze_pl.envs import make_gym_maze_env
    from maze_pl.modules import SAC
    from maze_pl.perception import (
        CustomModelComposer,
        FlattenConcatPolicyNet,
        FlattenConcatStateActionValueNet,
        ProbabilisticPolicyComposer,
        SharedStateActionCriticComposer,
    )

    class Clock(pl.Callback):
        """Measures batches of the Trainer, then those of a bare loop."""

        speed = share = 0.0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            if batch_idx + 1 == n_warm:
                self.began = time.perf_counter()
            if batch_idx + 1 < n_warm + n_batches:
                return
            seconds, began = time.perf_counter() - self.began, time.perf_counter()
            for index in range(n_batches):
                module.training_step(data._next_batch(), index)
                module._finish_updates()
            self.speed = n_batches * GIVEN.updates / seconds
            self.share = seconds / (time.perf_counter() - began)

    def policy_net(obs_shapes, action_logits_shapes):
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.ReLU, [256, 256])

    def critic_net(obs_shapes, action_shapes, q_shapes):
        return FlattenConcatStateActionValueNet(obs_shapes, action_shapes, q_shapes, nn.ReLU, [256, 256])

    n_warm, n_batches = N_WARM // GIVEN.updates, GIVEN.n_updates // GIVEN.updates
    pl.seed_everything(GIVEN.seed, verbose=False)
    data = ReplayDataModule(
        lambda: make_gym_maze_env("Pendulum-v1"),
        n_rollout_steps=GIVEN.updates,
        num_batches_per_iter=GIVEN.updates,
        batch_size=256,
        initial_buffer_size=N_FILLED,
        epoch_length=n_warm + n_batches,
        evaluators={},
        seed=GIVEN.seed,
    )
    squashed = "maze_pl.distributions.SquashedGaussianProbabilityDistribution"
    box = {"action_space": "gymnasium.spaces.Box", "distribution": squashed}
    networks = CustomModelComposer(
        ProbabilisticPolicyComposer([policy_net]), SharedStateActionCriticComposer([critic_net]), [box]
    )
    module = SAC(spec=data.spec, networks=networks, lr=3e-4, entropy_coef_lr=3e-4, gamma=0.99)
    clock = Clock()
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=1, callbacks=[clock], enable_model_summary=False, devices=1, **options)
    trainer.fit(module, data)
    if module.capture_refusal is not None:
        raise SystemExit(f"updates were not traced: {module.capture_refusal}")
    return {"updates_per_second": clock.speed, "lightning_share": clock.share}


def theirs() -> dict[str, float]:
    from stable_baselines3 import SAC
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        began = 0.0

        def _on_step(self) -> bool:
            if self.num_timesteps == N_FILLED + N_WARM:
                self.began = time.perf_counter()
            return True

    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=3e-4,
        learning_starts=N_FILLED,
        batch_size=256,
        train_freq=GIVEN.updates,
        gradient_steps=GIVEN.updates,
        policy_kwargs={"net_arch": [256, 256]},
        seed=GIVEN.seed,
        device="cpu",
    )
    clock = Clock()
    model.learn(N_FILLED + N_WARM + GIVEN.n_updates, callback=clock)
    return {"updates_per_second": GIVEN.n_updates / (time.perf_counter() - clock.began)}


if __name__ == "__main__":
    import torch

    torch.set_num_threads(GIVEN.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    print(json.dumps(ours() if GIVEN.library == "maze_pl" else theirs()))
    sys.stdout.flush()
