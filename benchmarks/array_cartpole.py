"""PPO on CartPole in arrays, through the public API with statistics on, or as a plain PyTorch loop of the same work.

Prints one line of JSON with the environment steps per second, from the second rollout to the end, both of the clock and
of processor time, and the peak memory.
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

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn

from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import CartPoleArrayEnv
from maze_pl.modules import PPO
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, NORM, LR, EPOCHS, MINIBATCHES = 0.98, 0.95, 0.2, 2.5e-4, 0.5, 0.5, 2.5e-4, 4, 8


class Stopwatch(pl.Callback):
    """Measures from the request of the second rollout, after which everything has been set up."""

    wall = 0.0
    processor = 0.0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not self.wall:
            self.wall, self.processor = time.perf_counter(), time.process_time()


def maze_pl_run(options: argparse.Namespace) -> tuple[int, float, float]:
    """Train through the public API; return measured env steps, seconds and processor seconds."""
    data = RolloutDataModule(
        CartPoleArrayEnv,
        n_envs=options.n_envs,
        n_rollout_steps=options.n_rollout_steps,
        epoch_length=options.rollouts,
        evaluators={},
        seed=options.seed,
    )
    units = [options.units, options.units]

    def policy(obs_shapes, action_logits_shapes):
        return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, nn.Tanh, units)

    def critic(obs_shapes):
        return FlattenConcatStateValueNet(obs_shapes, nn.Tanh, units)

    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([policy]), critic=SharedStateCriticComposer([critic])
    )
    module = PPO(
        spec=data.spec,
        networks=networks,
        gamma=GAMMA,
        gae_lambda=GAE_LAMBDA,
        max_grad_norm=NORM,
        lr=LR,
        batch_size=options.n_envs * options.n_rollout_steps // MINIBATCHES,
        n_optimization_epochs=EPOCHS,
        clip_range=CLIP,
        entropy_coef=ENTROPY,
        value_loss_coef=VALUE,
        capture=options.capture,
    )
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            callbacks=[stopwatch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
        seconds = time.perf_counter() - stopwatch.wall, time.process_time() - stopwatch.processor
    return (options.rollouts - 1) * options.n_envs * options.n_rollout_steps, *seconds


def network(units: int, n_outputs: int) -> nn.Sequential:
    """The network of the plain loop."""
    return nn.Sequential(
        nn.Linear(4, units), nn.Tanh(), nn.Linear(units, units), nn.Tanh(), nn.Linear(units, n_outputs)
    )


class PlainLoop:
    """PPO as one would write it for these environments only, without statistics, logs or checkpoints."""

    def __init__(self, options: argparse.Namespace) -> None:
        n_steps, n_envs = self.shape = options.n_rollout_steps, options.n_envs
        self.env = CartPoleArrayEnv()
        self.env.allocate(n_envs)
        self.policy = network(options.units, 2)
        self.critic = network(options.units, 1)
        self.parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=LR, fused=True)
        self.next_seed = n_envs
        first = self.env.reset(np.arange(n_envs), np.arange(n_envs)).observation[0]["observation"]
        self.observation = torch.from_numpy(first.copy())
        self.observations = torch.zeros(n_steps, n_envs, 4)
        self.actions = torch.zeros(n_steps, n_envs, dtype=torch.int64)
        self.log_probs, self.rewards, self.values, self.bootstrap, self.ends = torch.zeros(5, n_steps, n_envs)

    @torch.no_grad()
    def collect(self) -> None:
        """Play one rollout, with the bootstrapped values of truncated episodes."""
        env = self.env
        self.bootstrap.zero_()
        for step in range(self.shape[0]):
            self.observations[step] = self.observation
            log_probs = self.policy(self.observation).log_softmax(-1)
            actions = (torch.rand(len(log_probs)) > log_probs[:, 0].exp()).long()
            self.actions[step] = actions
            self.log_probs[step] = log_probs.gather(1, actions[:, None])[:, 0]
            result = env.step({0: {"action": actions.numpy()}}, slice(None))
            env.array_events.drain()
            observation = torch.from_numpy(result.observation[0]["observation"].copy())
            self.rewards[step] = torch.from_numpy(result.reward)
            terminated, truncated = result.terminated, result.truncated
            ended = terminated if truncated is None else terminated | truncated
            self.ends[step] = torch.from_numpy(ended)
            if truncated is not None and truncated.any():
                cut = np.flatnonzero(truncated & ~terminated)
                self.bootstrap[step, cut] = self.critic(observation[cut])[:, 0]
            (which,) = np.nonzero(ended)
            if len(which):
                seeds = np.arange(self.next_seed, self.next_seed + len(which))
                self.next_seed += len(which)
                first = env.reset(which, seeds).observation[0]["observation"]
                observation[which] = torch.from_numpy(first[which])
            self.observation = observation
        n_steps, n_envs = self.shape
        self.values[...] = self.critic(self.observations.view(-1, 4)).view(n_steps, n_envs)

    @torch.no_grad()
    def advantages(self) -> torch.Tensor:
        """Generalised advantage estimates of the rollout."""
        advantages = torch.zeros_like(self.rewards)
        following, last = self.critic(self.observation)[:, 0], torch.zeros(self.shape[1])
        for step in reversed(range(self.shape[0])):
            going = 1 - self.ends[step]
            successor = following * going + self.bootstrap[step]
            delta = self.rewards[step] + GAMMA * successor - self.values[step]
            last = delta + GAMMA * GAE_LAMBDA * going * last
            advantages[step] = last
            following = self.values[step]
        return advantages

    def learn(self) -> None:
        """Update the networks."""
        advantages = self.advantages()
        returns = (advantages + self.values).view(-1)
        advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).view(-1)
        observations, actions = self.observations.view(-1, 4), self.actions.view(-1)
        old_log_probs = self.log_probs.view(-1)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(actions)).chunk(MINIBATCHES):
                observation, advantage = observations[rows], advantages[rows]
                log_probs = self.policy(observation).log_softmax(-1)
                log_prob = log_probs.gather(1, actions[rows][:, None])[:, 0]
                ratio = (log_prob - old_log_probs[rows]).exp()
                surrogate = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
                error = (self.critic(observation)[:, 0] - returns[rows]).square().mean()
                self.optimizer.zero_grad()
                (-surrogate + VALUE * error - ENTROPY * entropy).backward()
                nn.utils.clip_grad_norm_(self.parameters, NORM)
                self.optimizer.step()


def plain_run(options: argparse.Namespace) -> tuple[int, float, float]:
    """Train in the plain loop; return measured env steps, seconds and processor seconds."""
    loop = PlainLoop(options)
    loop.collect()
    loop.learn()
    began = time.perf_counter(), time.process_time()
    for _ in range(options.rollouts - 1):
        loop.collect()
        loop.learn()
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    return (options.rollouts - 1) * options.n_envs * options.n_rollout_steps, *seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--contender", choices=["maze_pl", "plain"], default="maze_pl")
    parser.add_argument("--n_envs", type=int, default=1024)
    parser.add_argument("--n_rollout_steps", type=int, default=64)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--capture", choices=["auto", "off"], default="auto")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(options.seed, verbose=False)
    run = maze_pl_run if options.contender == "maze_pl" else plain_run
    env_steps, seconds, processor_seconds = run(options)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "env_steps_per_second": env_steps / seconds,
        "env_steps_per_processor_second": env_steps / processor_seconds,
        "peak_megabytes": memory,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
