"""A minibatch and networks whose losses can be computed by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

from maze_pl.modules import PolicySamples


def constant_networks(kit: SimpleNamespace, logit: float, value: float) -> Any:
    """A policy that takes action 1 with odds exp(logit) and a critic that always says `value`."""
    actor_critic = kit.make_actor_critic()
    with torch.no_grad():
        for parameter in actor_critic.parameters():
            parameter.zero_()
        actor_critic.policy.networks[0][0].body[3].bias.copy_(torch.tensor([0.0, logit]))
        actor_critic.critic.network.body[3].bias.fill_(value)
    return actor_critic


def minibatch(
    action: list[int], advantage: list[float], target: list[float], old_value: list[float], old_log_prob: list[float]
) -> dict[Any, PolicySamples]:
    n = len(action)
    weight = torch.full((n,), 1 / n)
    return {
        0: PolicySamples(
            {"observation": torch.zeros(n, 3)},
            {"action": torch.tensor(action)},
            torch.zeros(n, dtype=torch.int64),
            *(torch.tensor(numbers) for numbers in (advantage, target, old_value)),
            weight,
            weight,
            torch.tensor(old_log_prob),
        )
    }


# pi(1) = 3/4, pi(0) = 1/4
LOGIT = math.log(3.0)
ENTROPY = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
EVEN = math.log(0.5)
BATCH = dict(action=[1, 0], advantage=[2.0, 2.0], target=[1.0, 4.0], old_value=[0.5, 3.0], old_log_prob=[EVEN, EVEN])
