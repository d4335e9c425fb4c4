"""Training on a device: environments in tensors through the public API, beside plain PyTorch loops of the same work.

Prints one line of JSON: env steps per second, or updates per second for SAC, of both. The first rollout, in which
graphs are recorded and libraries choose their algorithms, does not count. Collecting alone is measured without and
with the statistics of episodes and actions.

    python benchmarks/device_arrays.py cartpole --device cuda
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from gymnasium import spaces
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor, nn

from maze_pl.collect.tensors.tensor_collector import TensorCollector
from maze_pl.collect.tensors.tensor_vector import TensorVector
from maze_pl.datamodules import ReplayDataModule, RolloutDataModule
from maze_pl.distributions import SquashedGaussianProbabilityDistribution
from maze_pl.envs import make_gym_maze_env
from maze_pl.envs.cutting_2d.tensor_environment import StructuredCutting2DTensorEnvironment
from maze_pl.envs.tensors import CartPoleTensorEnv, Outcome, TensorEnv
from maze_pl.envs.tensors.tensor_streams import uniform
from maze_pl.modules import PPO, SAC
from maze_pl.modules.run_statistics import RunStatistics
from maze_pl.perception import CustomModelComposer, ProbabilisticPolicyComposer, SharedStateCriticComposer

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, NORM, LR = 0.98, 0.95, 0.2, 2.5e-4, 0.5, 0.5, 2.5e-4
DEMAND = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]


class PixelTensorEnv(TensorEnv):
    """Frames of 84 x 84 pixels that are cheap to make, so that everything else is measured."""

    @property
    def observation_spaces_dict(self) -> dict[Any, spaces.Dict]:
        return {0: spaces.Dict({"pixels": spaces.Box(0, 255, (4, 84, 84), np.uint8)})}

    @property
    def action_spaces_dict(self) -> dict[Any, spaces.Dict]:
        return {0: spaces.Dict({"action": spaces.Discrete(6)})}

    def make_tensors(self, n_envs: int) -> None:
        self.frames = torch.zeros(n_envs, 4, 84, 84, dtype=torch.uint8, device=self.device)
        self.seed = torch.zeros(n_envs, dtype=torch.int64, device=self.device)

    def begin(self, which: Tensor, seeds: Tensor) -> None:
        self.seed.copy_(torch.where(which, seeds, self.seed))
        self.frames.copy_(torch.where(which[:, None, None, None], 0, self.frames))

    def observe(self, step_key: Any) -> dict[str, Tensor]:
        return {"pixels": self.frames}

    def act(self, step_key: Any, action: Any) -> Outcome:
        self.frames[:, :3].copy_(self.frames[:, 1:].clone())
        self.frames[:, 3].add_((action["action"] + 1)[:, None, None].to(torch.uint8))
        chance = uniform(self.seed, 1, first=self.n_steps)[:, 0]
        return Outcome((action["action"] == 0).double(), chance < 0.01)


def dense(n_inputs: int, n_outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(n_inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_outputs))


def convolutions(n_outputs: int) -> nn.Sequential:
    layers = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_outputs))


class Network(nn.Module):
    """The same network in both contenders: observations -> one output for each name."""

    def __init__(self, inputs: dict[str, tuple[int, ...]], outputs: dict[str, int]) -> None:
        super().__init__()
        self.inputs, self.outputs = list(inputs), outputs
        self.is_image = any(len(shape) == 3 for shape in inputs.values())
        n_outputs = sum(outputs.values())
        n_inputs = sum(int(np.prod(shape)) for shape in inputs.values())
        self.body = convolutions(n_outputs) if self.is_image else dense(n_inputs, n_outputs)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.is_image:
            joined = observation[self.inputs[0]].float() / 255.0
        else:
            joined = torch.cat([observation[name].float().flatten(1) for name in self.inputs], 1)
        parts = self.body(joined).split(list(self.outputs.values()), 1)
        return dict(zip(self.outputs, parts, strict=True))


def policy_network(obs_shapes: Any, action_logits_shapes: Any) -> Network:
    return Network(obs_shapes, {head: shape[0] for head, shape in action_logits_shapes.items()})


def value_network(obs_shapes: Any) -> Network:
    return Network(obs_shapes, {"value": 1})


ENVIRONMENTS: dict[str, Callable[[], TensorEnv]] = {
    "cartpole": CartPoleTensorEnv,
    "cutting_2d": partial(StructuredCutting2DTensorEnvironment, 50, (4, 3), DEMAND, max_episode_steps=180),
    "pixels": PixelTensorEnv,
}
SIZES = {"cartpole": (8192, 32), "cutting_2d": (4096, 32), "pixels": (512, 32)}  # environments, steps in a rollout


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch(pl.Callback):
    """Measures from the end of the first batch."""

    wall = 0.0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not self.wall:
            synchronize(pl_module.device)
            self.wall = time.perf_counter()


def fitted(module: pl.LightningModule, data: pl.LightningDataModule, options: argparse.Namespace) -> float:
    """Train for one epoch; return the seconds from the second batch on."""
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator=options.device,
            devices=1,
            precision=options.precision,
            logger=CSVLogger(folder),
            callbacks=[stopwatch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, data)
        synchronize(module.device)
        return time.perf_counter() - stopwatch.wall


def ppo(options: argparse.Namespace) -> tuple[PPO, RolloutDataModule]:
    data = RolloutDataModule(
        ENVIRONMENTS[options.workload],
        n_envs=options.n_envs,
        n_rollout_steps=options.n_rollout_steps,
        epoch_length=options.rollouts,
        evaluators={},
        seed=0,
    )
    spec = data.spec
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([policy_network] * len(spec.steps)),
        critic=SharedStateCriticComposer([value_network]),
    )
    module = PPO(
        spec=spec,
        networks=networks,
        gamma=GAMMA,
        gae_lambda=GAE_LAMBDA,
        max_grad_norm=NORM,
        lr=LR,
        batch_size=options.n_envs * options.n_rollout_steps // options.minibatches,
        n_optimization_epochs=options.epochs,
        clip_range=CLIP,
        entropy_coef=ENTROPY,
        value_loss_coef=VALUE,
        capture=options.capture,
    )
    return module, data


class PlainLoop:
    """PPO as one would write it for these environments only, without statistics, logs or checkpoints."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        n_steps, n_envs = self.shape = options.n_rollout_steps, options.n_envs
        self.env = ENVIRONMENTS[options.workload]()
        self.env.device = device
        self.env.allocate(n_envs)
        self.keys = list(self.env.observation_spaces_dict)
        self.masks = self.env.action_masks_dict
        self.policies, self.heads = {}, {}
        for key in self.keys:
            heads = {head: int(part.n) for head, part in self.env.action_spaces_dict[key].spaces.items()}
            shapes = {name: part.shape for name, part in self.env.observation_spaces_dict[key].spaces.items()}
            self.policies[key], self.heads[key] = Network(shapes, heads).to(device), heads
        first = self.env.observation_spaces_dict[self.keys[0]].spaces
        self.critic = Network({name: part.shape for name, part in first.items()}, {"value": 1}).to(device)
        networks = [*self.policies.values(), self.critic]
        self.parameters = [parameter for network in networks for parameter in network.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=LR, fused=True)
        self.next_seed = torch.arange(n_envs, device=device)
        self.env.begin(torch.ones(n_envs, dtype=torch.bool, device=device), self.next_seed)
        self.observations: dict[Any, dict[str, Tensor]] = {}  # by step key and name, [n_steps, n_envs, ...]
        for key in self.keys:
            self.observations[key] = {}
            for name, value in self.env.observe(key).items():
                shape = (n_steps, *value.shape)
                self.observations[key][name] = torch.zeros(shape, dtype=value.dtype, device=device)
        self.actions = {
            key: {head: torch.zeros(n_steps, n_envs, dtype=torch.int64, device=device) for head in self.heads[key]}
            for key in self.keys
        }
        self.log_probs = {key: torch.zeros(n_steps, n_envs, device=device) for key in self.keys}
        self.rewards, self.values, self.bootstrap, self.ends = torch.zeros(4, n_steps, n_envs, device=device)

    def distributions(self, key: Any, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        """Log-probabilities of the options of each head, with masks."""
        found = {}
        for head, logits in self.policies[key](observation).items():
            if head in self.masks.get(key, {}):
                allowed = observation[self.masks[key][head]] > 0
                logits = torch.where(allowed, logits, torch.finfo(logits.dtype).min)
            found[head] = logits.log_softmax(-1)
        return found

    @torch.no_grad()
    def collect(self) -> None:
        """Play one rollout, with the bootstrapped values of truncated episodes."""
        env = self.env
        for step in range(self.shape[0]):
            self.rewards[step] = 0.0
            for key in self.keys:
                observation = env.observe(key)
                for name, value in observation.items():
                    self.observations[key][name][step] = value
                log_prob = 0.0
                action = {}
                for head, log_probs in self.distributions(key, observation).items():
                    chosen = torch.multinomial(log_probs.exp(), 1)
                    action[head] = self.actions[key][head][step] = chosen[:, 0]
                    log_prob = log_prob + log_probs.gather(1, chosen)[:, 0]
                self.log_probs[key][step] = log_prob
                reward, terminated = env.act(key, action)
                env.fired.drain()
                self.rewards[step] += reward
            env.n_steps += 1
            truncated = torch.zeros_like(terminated)
            if env.max_episode_steps is not None:
                truncated = (env.n_steps >= env.max_episode_steps) & ~terminated
                self.bootstrap[step] = self.critic(env.observe(self.keys[0]))["value"][:, 0] * truncated
            ended = terminated | truncated
            self.ends[step] = ended
            self.next_seed += self.shape[1]
            env.begin(ended, self.next_seed)
            env.n_steps.masked_fill_(ended, 0)
        flat = {name: value.flatten(0, 1) for name, value in self.observations[self.keys[0]].items()}
        self.values[...] = self.critic(flat)["value"].view(self.shape)

    @torch.no_grad()
    def advantages(self) -> Tensor:
        """Generalised advantage estimates of the rollout."""
        advantages = torch.zeros_like(self.rewards)
        following = self.critic(self.env.observe(self.keys[0]))["value"][:, 0]
        last = torch.zeros_like(following)
        for step in reversed(range(self.shape[0])):
            going = 1 - self.ends[step]
            delta = self.rewards[step] + GAMMA * (following * going + self.bootstrap[step]) - self.values[step]
            last = delta + GAMMA * GAE_LAMBDA * going * last
            advantages[step] = last
            following = self.values[step]
        return advantages

    def learn(self) -> None:
        """Update the networks."""
        advantages = self.advantages()
        returns = (advantages + self.values).view(-1)
        advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).view(-1)
        for _ in range(self.options.epochs):
            for rows in torch.randperm(len(returns), device=self.device).chunk(self.options.minibatches):
                advantage, loss = advantages[rows], torch.zeros((), device=self.device)
                for key in self.keys:
                    observation = {name: value.flatten(0, 1)[rows] for name, value in self.observations[key].items()}
                    log_prob, entropy = 0.0, 0.0
                    for head, log_probs in self.distributions(key, observation).items():
                        chosen = self.actions[key][head].view(-1)[rows][:, None]
                        log_prob = log_prob + log_probs.gather(1, chosen)[:, 0]
                        entropy = entropy - (log_probs.exp() * log_probs).sum(-1).mean()
                    ratio = (log_prob - self.log_probs[key].view(-1)[rows]).exp()
                    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
                    loss = loss - surrogate - ENTROPY * entropy
                    if key == self.keys[0]:
                        error = (self.critic(observation)["value"][:, 0] - returns[rows]).square().mean()
                        loss = loss + VALUE * error
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, NORM)
                self.optimizer.step()


def timed(device: torch.device, function: Callable[[], Any], times: int) -> float:
    """Seconds of several calls after one that does not count."""
    function()
    synchronize(device)
    began = time.perf_counter()
    for _ in range(times):
        function()
    synchronize(device)
    return time.perf_counter() - began


def collected(options: argparse.Namespace, device: torch.device, module: PPO, spec: Any) -> tuple[float, float]:
    """Seconds of the rollouts alone, and of their statistics, fetched and computed as at the end of an epoch."""
    vector = TensorVector(ENVIRONMENTS[options.workload](), options.n_envs, spec, device)
    collector = TensorCollector(vector, options.n_rollout_steps, torch.Generator(device).manual_seed(0))
    statistics = RunStatistics()
    statistics.add_episodes("train", collector.collect(module.policy).summaries)
    statistics.finish_training()  # of a rollout that does not count

    def collect() -> None:
        statistics.add_episodes("train", collector.collect(module.policy).summaries)

    seconds = timed(device, collect, options.rollouts)
    began = time.perf_counter()
    statistics.finish_training()
    return seconds, (time.perf_counter() - began) * options.rollouts / (options.rollouts + 1)


def ppo_figures(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    n_envs, n_steps = SIZES[options.workload]
    options.n_envs = options.n_envs or n_envs
    options.n_rollout_steps = options.n_rollout_steps or n_steps
    size, rollouts = options.n_envs * options.n_rollout_steps, options.rollouts
    module, data = ppo(options)
    trained = fitted(module, data, options)
    module.to(device).eval()
    collecting, summarising = collected(options, device, module, data.spec)
    loop = PlainLoop(options, device)
    plain_collected = timed(device, loop.collect, rollouts)

    def both() -> None:
        loop.collect()
        loop.learn()

    plain = timed(device, both, rollouts - 1)
    return {
        "collected_per_second": rollouts * size / collecting,
        "collected_with_statistics_per_second": rollouts * size / (collecting + summarising),
        "statistics_ms_per_rollout": 1000 * summarising / rollouts,
        "plain_collected_per_second": rollouts * size / plain_collected,
        "trained_per_second": (rollouts - 1) * size / trained,
        "plain_trained_per_second": (rollouts - 1) * size / plain,
        "ratio": plain / trained,
        "capture_refusal": module.capture_refusal,
    }


class PlainSAC:
    """SAC as one would write it for vectors only, on transitions that lie on the device."""

    def __init__(self, device: torch.device, n_observed: int, n_acts: int, units: int) -> None:
        def network(n_inputs: int, n_outputs: int) -> nn.Sequential:
            hidden = [nn.Linear(n_inputs, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU()]
            return nn.Sequential(*hidden, nn.Linear(units, n_outputs)).to(device)

        self.actor = network(n_observed, 2 * n_acts)
        self.critics = [network(n_observed + n_acts, 1) for _ in range(2)]
        self.targets = [network(n_observed + n_acts, 1) for _ in range(2)]
        self.log_alpha = torch.zeros((), device=device, requires_grad=True)
        self.critic_parameters = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.target_parameters = [parameter for critic in self.targets for parameter in critic.parameters()]
        self.optimizers = [
            torch.optim.Adam(parameters, lr=1e-3, fused=True)
            for parameters in (self.actor.parameters(), self.critic_parameters, [self.log_alpha])
        ]
        self.n_acts = n_acts

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(observation).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        squashed = raw.tanh()
        log_prob = -0.5 * noise.square() - log_std - 0.919 - (1 - squashed.square() + 1e-6).log()
        return squashed, log_prob.sum(-1, keepdim=True)

    def step(self, index: int, loss: Tensor) -> None:
        self.optimizers[index].zero_grad()
        loss.backward()
        self.optimizers[index].step()

    def update(self, observation: Tensor, action: Tensor, reward: Tensor, following: Tensor) -> None:
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            chosen, log_prob = self.sample(following)
            joined = torch.cat([following, chosen], -1)
            value = torch.min(*(target(joined) for target in self.targets)) - alpha * log_prob
            wanted = reward + 0.99 * value
        joined = torch.cat([observation, action], -1)
        self.step(1, sum((critic(joined) - wanted).square().mean() for critic in self.critics))
        chosen, log_prob = self.sample(observation)
        joined = torch.cat([observation, chosen], -1)
        self.step(0, (alpha * log_prob - torch.min(*(critic(joined) for critic in self.critics))).mean())
        self.step(2, -(self.log_alpha * (log_prob.detach() - self.n_acts)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(self.target_parameters, self.critic_parameters, 0.005)


def sac_figures(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    n_updates, units = 32, 256
    data = ReplayDataModule(
        partial(make_gym_maze_env, "Pendulum-v1"),
        num_actors=1,
        n_rollout_steps=1,
        num_batches_per_iter=n_updates,
        batch_size=256,
        initial_buffer_size=1000,
        epoch_length=options.rollouts,
        evaluators={},
        seed=0,
    )
    from maze_pl.perception import (
        FlattenConcatPolicyNet,
        FlattenConcatStateActionValueNet,
        SharedStateActionCriticComposer,
    )

    hidden: dict[str, Any] = {"hidden_units": [units, units], "non_lin": nn.ReLU}
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, **hidden)]),
        critic=SharedStateActionCriticComposer([partial(FlattenConcatStateActionValueNet, **hidden)]),
        distribution_mapper_config=[
            {"action_space": spaces.Box, "distribution": SquashedGaussianProbabilityDistribution}
        ],
    )
    module = SAC(spec=data.spec, networks=networks, capture=options.capture)
    seconds = fitted(module, data, options)
    plain = PlainSAC(device, 3, 1, units)
    batch = [torch.randn(256, size, device=device) for size in (3, 1, 1, 3)]
    plain_seconds = timed(device, lambda: plain.update(*batch), 300)
    per_second = (options.rollouts - 1) * n_updates / seconds
    return {
        "updates_per_second": per_second,
        "plain_updates_per_second": 300 / plain_seconds,
        "ratio": per_second * plain_seconds / 300,
        "capture_refusal": module.capture_refusal,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=[*ENVIRONMENTS, "sac"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--n_envs", type=int, default=0)
    parser.add_argument("--n_rollout_steps", type=int, default=0)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument("--capture", choices=["auto", "off"], default="auto")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--matmul_precision", choices=["highest", "high", "medium"], default="highest", help="of both")
    options = parser.parse_args()
    torch.set_float32_matmul_precision(options.matmul_precision)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(0, verbose=False)
    device = torch.device(options.device)
    figures = sac_figures(options, device) if options.workload == "sac" else ppo_figures(options, device)
    figures["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(json.dumps({"workload": options.workload, **figures}))


if __name__ == "__main__":
    main()
