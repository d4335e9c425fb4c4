"""REINFORCE (Williams 1992, doi:10.1007/BF00992696) as an algorithm of maze_pl: networks need a policy only.

usage, in this folder or with it on PYTHONPATH: maze-pl fit --config reinforce_cartpole.yaml
"""

from __future__ import annotations

from typing import Any

import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules import AlgorithmModule, step_credit
from maze_pl.system.ranks import sum_over_ranks


class Reinforce(AlgorithmModule):
    """Makes actions more likely by the return that followed them: one step for each rollout.

        L = -mean(log pi(a_t | s_t) * (R_t - mean(R)) / std(R)) - c_e * mean(H(pi(s_t)))

    R_t is the discounted sum of rewards up to the end of the episode or of the rollout. Works for any mix of sub-steps
    and agents; each sub-step has a mean and deviation of its own, over all ranks.

    Args:
        gamma: Discount of one environment step.
        entropy_coef: Weight of the policy's entropy, which is maximised.
        kwargs: Further options, see `AlgorithmModule`.
    """

    batch_type = Rollout

    def __init__(self, *, gamma: float = 0.95, entropy_coef: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma, self.entropy_coef = gamma, entropy_coef

    def training_step(self, rollout: Rollout, batch_idx: int) -> None:
        """Learn from a rollout."""
        values = {key: torch.zeros(segment.active.shape) for key, segment in rollout.segments.items()}
        final_values = {key: torch.zeros(len(final.row)) for key, final in rollout.finals.items()}
        credit = step_credit(rollout, values, final_values, self.gamma, 1.0)  # advantage = return - 0
        loss = torch.zeros((), device=self.device)
        for key, segment in rollout.segments.items():
            counts = credit[key].weight.to(self.device) > 0  # [T, B] acts that exist and have a successor
            returns = credit[key].return_.to(self.device)[counts]
            moments = torch.stack([counts.sum(), returns.sum(), returns.square().sum()])
            n_acts, mean, square = sum_over_ranks(moments)  # every rank must call it, whether it has acts or not
            mean, square = mean / n_acts.clamp(min=1.0), square / n_acts.clamp(min=1.0)
            advantage = (returns - mean) / ((square - mean.square()).clamp(min=0.0).sqrt() + 1e-8)
            if len(advantage):
                observation = {name: tensor[counts] for name, tensor in segment.observation.items()}
                action = {head: tensor[counts] for head, tensor in segment.action.items()}
                log_prob, entropy = self.policy.evaluate(key, observation, action, segment.agent_id[counts])
                weight = self.trainer.world_size / n_acts.float()  # so that the mean over ranks is that over all acts
                loss = loss - weight * (log_prob * advantage.float() + self.entropy_coef * entropy).sum()
                self.record("policy_entropy", entropy.detach().sum(), key, count=len(entropy))
        self.record("policy_loss", loss.detach())
        self.gradient_step(loss, record_norms=True)
