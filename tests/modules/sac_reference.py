"""SAC by loops over all options of each head, and small batches and networks to compare it on."""

from __future__ import annotations

import copy
import itertools
import math
from functools import partial

import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.core.batches import ReplayBatch, TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.modules import SAC
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
)

SQUASHED = [{"action_space": spaces.Box, "distribution": SquashedGaussianProbabilityDistribution}]
B = 5
HEADS = {
    "continuous": {"move": spaces.Box(-1.0, 3.0, (2,))},
    "masked_choice": {"choice": spaces.Discrete(3, start=2)},
    "multi_discrete": {"pick": spaces.MultiDiscrete([2, 3])},
    "masked_bits": {"bits": spaces.MultiBinary(3)},
    "mixed": {
        "bits": spaces.MultiBinary(2),
        "choice": spaces.Discrete(3),
        "force": spaces.Box(-2.0, 2.0, (1,)),
        "move": spaces.Box(0.0, 1.0, (2,)),
    },
}
MASKS = {"masked_choice": ("choice", 3), "masked_bits": ("bits", 3)}
every_kind = pytest.mark.parametrize("kind", HEADS)


def step_spec(kind):
    seen = {"view": spaces.Box(-1, 1, (3,))}
    masks = {}
    if kind in MASKS:
        head, n = MASKS[kind]
        seen["mask"], masks[head] = spaces.MultiBinary(n), "mask"
    return StepSpec(spaces.Dict(seen), spaces.Dict(HEADS[kind]), masks=masks)


def composer(hidden=4):
    policy = partial(FlattenConcatPolicyNet, hidden_units=[hidden])
    critic = partial(FlattenConcatStateActionValueNet, hidden_units=[hidden])
    return CustomModelComposer(
        ProbabilisticPolicyComposer([policy]), SharedStateActionCriticComposer([critic]), SQUASHED
    )


def make(kind, capture="off", **options):  # recording takes longer than a few updates
    torch.manual_seed(0)
    module = SAC(networks=composer(), spec=Spec({0: step_spec(kind)}), capture=capture, **options)
    with torch.no_grad():
        for parameter in module.policy.parameters():  # so that the policy is not the same everywhere
            parameter.mul_(3.0).add_(0.3 * torch.randn_like(parameter))
        for buffer in module.critic.twins[0].target.buffers():
            buffer.add_(0.2 * torch.randn_like(buffer))
    return module


def actions(space, shape, generator, mask=None):
    if isinstance(space, spaces.Box):
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        return low + (high - low) * torch.rand(*shape, *space.shape, generator=generator)
    if isinstance(space, spaces.Discrete):
        weights = torch.ones(*shape, int(space.n)) if mask is None else mask.float()
        flat = torch.multinomial(weights.reshape(-1, int(space.n)), 1, generator=generator)
        return flat.view(shape) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return torch.stack([torch.randint(int(n), shape, generator=generator) for n in space.nvec], dim=-1)
    bits = torch.randint(2, (*shape, *space.shape), generator=generator, dtype=torch.int8)
    return bits if mask is None else bits * mask


def make_acts(kind, shape=(B,), seed=0, dtype=torch.float32):
    generator, step = torch.Generator().manual_seed(seed), step_spec(kind)

    def seen():
        found = {"view": torch.randn(*shape, 3, generator=generator, dtype=dtype)}
        if step.masks:
            mask = torch.randint(2, (*shape, 3), generator=generator, dtype=torch.int8)
            mask[..., 1] = 1
            found["mask"] = mask
        return found

    observation, after = seen(), seen()
    action = {
        head: actions(space, shape, generator, observation.get("mask")) for head, space in step.action_space.items()
    }
    reward = torch.randn(shape, generator=generator, dtype=dtype)
    discount = torch.where(torch.rand(shape, generator=generator) < 0.3, 0.0, 0.9).to(dtype)
    return TransitionBatch(observation, action, torch.zeros(shape, dtype=torch.int64), after, reward, discount)


def replay_batch(kind, n_updates=2, seed=0, reprioritise=None):
    return ReplayBatch({0: make_acts(kind, (n_updates, B), seed)}, n_updates, reprioritise)


class Reference:
    """The same in loops over acts, heads and options, from separate networks, in float64."""

    def __init__(self, module, kind):
        self.step, self.policy = step_spec(kind), copy.deepcopy(module.policy.networks[0][0])
        twin = module.critic.twins[0]
        self.critics, self.targets = ([copy.deepcopy(twin.network) for _ in range(2)] for _ in range(2))
        for index in range(2):
            for name, stacked in twin.network.named_parameters():
                self._set(self.critics[index], name, stacked[index])
                self._set(self.targets[index], name, twin.target.get_buffer(name)[index])
        self.coefs = dict(zip(HEADS[kind], module.log_entropy_coef.detach().exp(), strict=True))

    @staticmethod
    def _set(network, path, value):
        *owner, name = path.split(".")
        network.get_submodule(".".join(owner))._parameters[name] = nn.Parameter(value.detach().clone())

    def options(self, space, logits, mask):
        """For each choice of a discrete head, the options that are allowed and their probabilities."""
        if isinstance(space, spaces.MultiBinary):
            for bit, logit in enumerate(logits):
                p = torch.sigmoid(logit)
                yield {2 * bit: 1 - p, 2 * bit + 1: p} if mask is None or mask[bit] else {2 * bit: torch.ones_like(p)}
            return
        first = 0
        for n in [space.n] if isinstance(space, spaces.Discrete) else space.nvec:
            allowed = [i for i in range(first, first + int(n)) if mask is None or mask[i]]
            total = sum(logits[i].exp() for i in allowed)
            yield {i: logits[i].exp() / total for i in allowed}
            first += int(n)

    def value(self, observation, noise, networks):
        """V(s) of each act, and by head the entropies and those that are aimed at."""
        values, entropies, aims = [], {}, {}
        logits = self.policy(observation)
        for b in range(B):
            seen = {name: tensor[b : b + 1] for name, tensor in observation.items()}
            mask = seen["mask"][0] if "mask" in seen else None
            for head, space in self.step.action_space.items():
                if isinstance(space, spaces.Box):
                    n = space.shape[0]
                    mean, log_std = logits[head][b][:n], logits[head][b][n:]
                    x = mean + log_std.exp() * noise[head][b]
                    low, high = torch.as_tensor(space.low).double(), torch.as_tensor(space.high).double()
                    seen[head] = torch.tanh(x).unsqueeze(0)  # the action from its bounds to [-1, 1]
                    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(x)
                    log_prob = (normal - torch.log((high - low) / 2 * (1 - torch.tanh(x) ** 2))).sum()
                    entropies.setdefault(head, []).append(-log_prob)
                    aims.setdefault(head, []).append(float(torch.log((high - low) / 2).sum()) - n)
            q = [network(seen) for network in networks]
            of_choices = []  # for each choice, the two values of each option and its probability
            for head, space in self.step.action_space.items():
                if not isinstance(space, spaces.Box):
                    entropy, aim = torch.zeros(()).double(), 0.0
                    for choice in self.options(space, logits[head][b], mask):
                        aim += 0.98 * math.log(len(choice))
                        entropy = entropy - sum(p * p.log() for p in choice.values())
                        of_choices.append([(q[0][head][0, o], q[1][head][0, o], p) for o, p in choice.items()])
                    entropies.setdefault(head, []).append(entropy)
                    aims.setdefault(head, []).append(aim)
            if len(of_choices) == 1:
                value = sum(p * torch.minimum(one, other) for one, other, p in of_choices[0])
            elif of_choices:
                means = [sum(p * both[i] for choice in of_choices for *both, p in choice) for i in range(2)]
                value = torch.minimum(*means)
            else:
                value = torch.minimum(q[0]["q_value"], q[1]["q_value"])[0, 0]
            values.append(value + sum(self.coefs[head] * entropies[head][b] for head in self.step.action_space))
        return values, entropies, aims

    def q_values(self, acts, b):
        """Q(s, a) of both critics for what was done."""
        seen = {name: tensor[b : b + 1] for name, tensor in acts.observation.items()}
        for head, space in self.step.action_space.items():
            if isinstance(space, spaces.Box):
                low, high = torch.as_tensor(space.low).double(), torch.as_tensor(space.high).double()
                seen[head] = 2 * (acts.action[head][b : b + 1] - low) / (high - low) - 1
        for network in self.critics:
            q, total = network(seen), 0.0
            for head, space in self.step.action_space.items():
                taken = acts.action[head][b]
                if isinstance(space, spaces.Discrete):
                    total = total + q[head][0, int(taken) - int(space.start)]
                elif isinstance(space, spaces.MultiDiscrete):
                    starts = [0, *itertools.accumulate(map(int, space.nvec))]
                    total = total + sum(q[head][0, start + int(i)] for start, i in zip(starts, taken, strict=False))
                elif isinstance(space, spaces.MultiBinary):
                    total = total + sum(q[head][0, 2 * bit + int(on)] for bit, on in enumerate(taken))
            yield total + q["q_value"][0, 0] if "q_value" in q else total

    def critic_loss(self, acts, noise, weight):
        values, _, _ = self.value(acts.next_observation, noise, self.targets)
        total, errors = 0.0, []
        for b in range(B):
            target = (acts.reward[b] + acts.discount[b] * values[b]).detach()
            both = [q - target for q in self.q_values(acts, b)]
            total = total + weight[b] * (both[0] ** 2 + both[1] ** 2) / B
            errors.append(float(sum(error.detach().abs() for error in both)) / 2)
        return total, errors

    def noise(self, seed):
        torch.manual_seed(seed)
        boxes = {head: space for head, space in self.step.action_space.items() if isinstance(space, spaces.Box)}
        return {head: torch.randn(B, *space.shape, dtype=torch.float64) for head, space in boxes.items()}
