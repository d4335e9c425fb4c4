"""PPO with several decisions in a step, and with masks, in one file to read from top to bottom.

    python examples/ppo_in_one_file.py

It trains an agent of cutting-2D, which chooses a piece from the inventory in the first sub-step of
each environment step, and the way to cut it in the second. Only the environment comes from maze_pl.
The updates give the same numbers as those of `maze_pl.modules.PPO` with a shared critic: a test
compares the parameters of both. Docstrings say what the library does beyond that.

Shapes: T environment steps are collected in each of N environments; a batch consists of B = T * N of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.envs import StructuredEnv
from maze_pl.envs.cutting_2d import masked_struct_env_factory
from maze_pl.envs.wrappers import TimeLimitWrapper

Tensors = dict[str, Tensor]  # by the name of an observation or of a head of the action
StepKey = Any  # identifies a sub-step


def make_env() -> StructuredEnv:
    """Make the documented instance of cutting-2D, in which 180 orders need 31 raw pieces."""
    demand = [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)]
    env = masked_struct_env_factory(max_pieces_in_inventory=50, raw_piece_size=(4, 3), static_demand=demand)
    return TimeLimitWrapper.wrap(env, max_episode_steps=180)


@dataclass
class Options:
    """Hyper-parameters, named as the options of `maze_pl.modules.PPO`."""

    n_env_steps: int = 150_000
    n_envs: int = 8
    n_rollout_steps: int = 100  # T
    lr: float = 5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    n_optimization_epochs: int = 4
    n_minibatches: int = 4
    clip_range: float = 0.2
    value_loss_coef: float = 0.5
    entropy_coef: float = 0.002
    max_grad_norm: float = 0.5
    seed: int = 0


# ------------------------------------------------------------------------------------------------------------ networks


class MLP(nn.Module):
    """Flattens all observations, side by side, and passes them through two layers."""

    def __init__(self, space: spaces.Dict, n_outputs: int, n_units: int = 64) -> None:
        super().__init__()
        n_inputs = sum(int(np.prod(part.shape or (1,))) for part in space.values())
        body = [nn.Linear(n_inputs, n_units), nn.Tanh(), nn.Linear(n_units, n_units), nn.Tanh()]
        self.layers = nn.Sequential(*body, nn.Linear(n_units, n_outputs))
        self.names = list(space)

    def forward(self, observation: Tensors) -> Tensor:
        """Return [B, n_outputs]."""
        inputs = torch.cat([observation[name].flatten(1) for name in self.names], dim=1)
        outputs: Tensor = self.layers(inputs)
        return outputs


class Policy(nn.Module):
    """Policy of one sub-step: an independent choice for each head, of the options that its mask allows.

    Args:
        observation_space: Observations, masks included.
        action_space: Head -> `Discrete`.
        masks: Head -> name of its mask, an observation.
    """

    def __init__(self, observation_space: spaces.Dict, action_space: spaces.Dict, masks: dict[str, str]) -> None:
        super().__init__()
        self.sizes = {head: spaces.flatdim(space) for head, space in action_space.items()}
        self.masks = masks
        self.network = MLP(observation_space, sum(self.sizes.values()))

    def log_probs(self, observation: Tensors) -> Tensors:
        """Return, by head, [B, n] log-probabilities; those of masked options are very small."""
        logits = self.network(observation).split(list(self.sizes.values()), dim=1)
        result = {}
        for head, of_head in zip(self.sizes, logits, strict=True):
            if head in self.masks:
                is_allowed = observation[self.masks[head]] > 0
                of_head = of_head.masked_fill(~is_allowed, torch.finfo(of_head.dtype).min)
            result[head] = of_head.log_softmax(dim=1)
        return result

    def judge(self, observation: Tensors, action: Tensors) -> tuple[Tensor, Tensor]:
        """Return the log-probability [B] of actions, and the entropy [B]; heads add up."""
        log_prob, entropy = torch.zeros(()), torch.zeros(())
        for head, log_probs in self.log_probs(observation).items():
            log_prob = log_prob + log_probs.gather(1, action[head][:, None])[:, 0]
            probs = log_probs.exp()
            entropy = entropy - (probs * log_probs).masked_fill(probs == 0, 0.0).sum(dim=1)
        return log_prob, entropy


class Agent(nn.Module):
    """A policy for each sub-step, and one value of the state, from the observation of the first sub-step."""

    def __init__(self, env: StructuredEnv) -> None:
        super().__init__()
        self.step_keys: list[StepKey] = list(env.observation_spaces_dict)
        self.policies = nn.ModuleDict()
        for key in self.step_keys:
            masks = dict(env.action_masks_dict[key])
            self.policies[str(key)] = Policy(env.observation_spaces_dict[key], env.action_spaces_dict[key], masks)
        self.value = MLP(env.observation_spaces_dict[self.step_keys[0]], 1)

    def policy(self, key: StepKey) -> Policy:
        """Return the policy of a sub-step."""
        policy = self.policies[str(key)]
        assert isinstance(policy, Policy)
        return policy


# ----------------------------------------------------------------------------------------------------------- collecting


@dataclass
class Rollout:
    """What N environments gave in T environment steps.

    Attributes:
        observation: Step key -> name -> [T, N, ...].
        action: Step key -> head -> [T, N].
        reward: [T, N] sum over the sub-steps.
        terminated: [T, N] the episode has ended: nothing follows.
        truncated: [T, N] the episode was cut off: something would have followed.
        next_value: [T, N] value of the state after the environment step, that of a new episode excepted.
    """

    observation: dict[StepKey, Tensors]
    action: dict[StepKey, Tensors]
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    next_value: Tensor


class Collector:
    """Plays N environments, step by step, by the current policies.

    The library also handles actors that differ between environments, agents that come and go, and
    episodes that end within a step; it writes into arrays allocated once, and acts without autograd or tensors.
    """

    def __init__(self, make_env: Callable[[], StructuredEnv], n_envs: int, seed: int) -> None:
        self.envs = [make_env() for _ in range(n_envs)]
        self.observations = [env.reset(seed=seed + index)[0] for index, env in enumerate(self.envs)]
        self.generator = torch.Generator().manual_seed(seed)
        self.running = np.zeros(n_envs)  # return of the running episodes
        self.returns: list[float] = []  # of episodes that have ended

    @torch.no_grad()
    def collect(self, agent: Agent, n_steps: int) -> Rollout:
        """Collect a rollout."""
        observations: dict[StepKey, list[Tensors]] = {key: [] for key in agent.step_keys}
        actions: dict[StepKey, list[Tensors]] = {key: [] for key in agent.step_keys}
        reward, next_value = torch.zeros(2, n_steps, len(self.envs), dtype=torch.float64)
        terminated, truncated = torch.zeros(2, n_steps, len(self.envs), dtype=torch.bool)
        for step in range(n_steps):
            for key in agent.step_keys:
                observation = stack(self.observations)
                action = self._sample(agent.policy(key).log_probs(observation))
                observations[key].append(observation)
                actions[key].append(action)
                for index, env in enumerate(self.envs):
                    chosen = {head: int(options[index]) for head, options in action.items()}
                    self.observations[index], paid, ended, cut, _ = env.step(chosen)
                    reward[step, index] += paid
                    terminated[step, index], truncated[step, index] = ended, cut and not ended
            next_value[step] = agent.value(stack(self.observations))[:, 0]  # before environments are reset
            self._begin_episodes(reward[step], terminated[step] | truncated[step])
        of_keys = {key: {name: together(parts, name) for name in parts[0]} for key, parts in observations.items()}
        chosen_of_keys = {key: {head: together(parts, head) for head in parts[0]} for key, parts in actions.items()}
        return Rollout(of_keys, chosen_of_keys, reward, terminated, truncated, next_value)

    def _sample(self, log_probs: Tensors) -> Tensors:
        """Sample an option for each head and environment."""
        return {
            head: torch.multinomial(of_head.exp(), 1, generator=self.generator)[:, 0]
            for head, of_head in log_probs.items()
        }

    def _begin_episodes(self, reward: Tensor, is_over: Tensor) -> None:
        """Note the returns of episodes that have ended, and begin the next ones."""
        self.running += reward.numpy()
        for index in np.flatnonzero(is_over):
            self.returns.append(float(self.running[index]))
            self.running[index] = 0.0
            self.observations[index], _ = self.envs[index].reset()


def stack(observations: list[dict[str, Any]]) -> Tensors:
    """Turn the observations of N environments into tensors [N, ...]."""
    names = observations[0]
    return {name: torch.as_tensor(np.stack([one[name] for one in observations])) for name in names}


def together(parts: list[Tensors], name: str) -> Tensor:
    """Join what T steps have under a name to [T, N, ...]."""
    return torch.stack([part[name] for part in parts])


# ------------------------------------------------------------------------------------------------------------- learning


def estimate_advantages(rollout: Rollout, value: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Estimate advantages [T, N] by generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

        delta_t = r_t + gamma * V(s_{t+1}) - V(s_t),    A_t = delta_t + gamma * lambda * A_{t+1}

    After a terminated episode there is no next value, after a truncated one there is; the sum ends
    with either. All decisions of an environment step have its advantage. The library has other
    critics, too, with values for each decision or each agent.
    """
    next_value = rollout.next_value.masked_fill(rollout.terminated, 0.0)
    delta = rollout.reward + gamma * next_value - value
    is_over = rollout.terminated | rollout.truncated
    advantage = torch.zeros_like(delta)
    following = torch.zeros_like(delta[0])
    for step in reversed(range(len(delta))):
        following = delta[step] + gamma * gae_lambda * following.masked_fill(is_over[step], 0.0)
        advantage[step] = following
    return advantage


@dataclass
class Batch:
    """All environment steps of a rollout, [B, ...], with what PPO needs of them."""

    observation: dict[StepKey, Tensors]
    action: dict[StepKey, Tensors]
    old_log_prob: dict[StepKey, Tensor]
    advantage: Tensor  # normalised
    return_: Tensor

    def select(self, index: Tensor) -> Batch:
        """Return some of the environment steps."""
        return Batch(
            {key: {name: part[index] for name, part in parts.items()} for key, parts in self.observation.items()},
            {key: {head: part[index] for head, part in parts.items()} for key, parts in self.action.items()},
            {key: part[index] for key, part in self.old_log_prob.items()},
            self.advantage[index],
            self.return_[index],
        )


@torch.no_grad()
def prepare(agent: Agent, rollout: Rollout, options: Options) -> Batch:
    """Judge a rollout before learning from it."""
    observation = {key: flat(parts) for key, parts in rollout.observation.items()}
    action = {key: flat(parts) for key, parts in rollout.action.items()}
    value = agent.value(observation[agent.step_keys[0]])[:, 0].double().view_as(rollout.reward)
    advantage = estimate_advantages(rollout, value, options.gamma, options.gae_lambda)
    return_ = (advantage + value).flatten()
    normalised = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    log_prob = {key: agent.policy(key).judge(observation[key], action[key])[0] for key in agent.step_keys}
    dtype = log_prob[agent.step_keys[0]].dtype
    return Batch(observation, action, log_prob, normalised.flatten().to(dtype), return_.to(dtype))


def flat(parts: Tensors) -> Tensors:
    """Join time and environments: [T, N, ...] to [B, ...]."""
    return {name: part.flatten(0, 1) for name, part in parts.items()}


def ppo_loss(agent: Agent, batch: Batch, options: Options) -> Tensor:
    """Compute the loss of PPO (Schulman et al. 2017, arXiv:1707.06347), summed over the sub-steps k.

    L = sum_k mean(-min(rho_k * A, clip(rho_k, 1 - c, 1 + c) * A) - c_e * H_k) + c_v * mean((V - R)^2)
    rho_k = pi_k(a | o) / pi_old,k(a | o)
    """
    loss = torch.zeros(())
    for key in agent.step_keys:
        log_prob, entropy = agent.policy(key).judge(batch.observation[key], batch.action[key])
        ratio = (log_prob - batch.old_log_prob[key]).exp()
        clipped = ratio.clamp(1 - options.clip_range, 1 + options.clip_range)
        surrogate = torch.minimum(ratio * batch.advantage, clipped * batch.advantage)
        loss = loss - surrogate.mean() - options.entropy_coef * entropy.mean()
    value = agent.value(batch.observation[agent.step_keys[0]])[:, 0]
    total: Tensor = loss + options.value_loss_coef * (value - batch.return_).square().mean()
    return total


def minibatches(batch: Batch, n: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield the environment steps of a batch in n random parts of equal size; their decisions stay together."""
    for index in torch.randperm(len(batch.advantage), generator=generator).tensor_split(n):
        yield batch.select(index)


def learn(
    agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, options: Options, generator: torch.Generator
) -> None:
    """Learn from a rollout.

    The library writes down the operations of an update once and repeats them, which is faster, and
    follows schedules of the options.
    """
    batch = prepare(agent, rollout, options)
    for _ in range(options.n_optimization_epochs):
        for part in minibatches(batch, options.n_minibatches, generator):
            optimizer.zero_grad()
            torch.autograd.backward(ppo_loss(agent, part, options))
            nn.utils.clip_grad_norm_(agent.parameters(), options.max_grad_norm)
            optimizer.step()


def train(options: Options, make_env: Callable[[], StructuredEnv] = make_env) -> tuple[Agent, float]:
    """Train an agent; return it with the mean return of its last 20 episodes."""
    torch.manual_seed(options.seed)
    collector = Collector(make_env, options.n_envs, options.seed)
    agent = Agent(collector.envs[0])
    optimizer = torch.optim.Adam(agent.parameters(), options.lr)
    generator = torch.Generator().manual_seed(options.seed)
    n_of_rollout = options.n_envs * options.n_rollout_steps
    for n_env_steps in range(n_of_rollout, options.n_env_steps + 1, n_of_rollout):
        learn(agent, optimizer, collector.collect(agent, options.n_rollout_steps), options, generator)
        if collector.returns and n_env_steps // n_of_rollout % 10 == 0:
            print(f"{n_env_steps:,} env steps: mean return {np.mean(collector.returns[-20:]):.1f}")
    return agent, float(np.mean(collector.returns[-20:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in vars(Options()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    train(Options(**vars(parser.parse_args())))
