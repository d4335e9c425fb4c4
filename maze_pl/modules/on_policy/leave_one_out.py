"""Advantages over other episodes from the same start."""

from __future__ import annotations

from dataclasses import replace

import torch

from maze_pl.core.batches import Rollout
from maze_pl.modules.on_policy.credit import Credits


def with_leave_one_out_baseline(credits: Credits, rollout: Rollout, gamma: float) -> Credits:
    """Replace advantages by the return of the episode minus the mean of the others from the same start.

        A_i = G_i - 1 / (n - 1) * sum of G_j over j != i,    G = sum of gamma^t * r_t

    for all acts of episode i, with n episodes from one start. W. Kool, H. van Hoof and M. Welling 2019, Buy 4
    REINFORCE samples, get a baseline for free! With the mean of all n episodes, which only scales
    the advantage by (n - 1) / n, it is the shared baseline of Y.-D. Kwon et al. 2020, POMO,
    arXiv:2010.16011. Departure: G is discounted.

    Acts count in the loss of the policy if their episode and another one from its start ended
    within the rollout; a time limit is an end like any other. No observation needs to follow the
    act, not even for step critics. What the critic learns stays the same.

    Args:
        credits: Credit of the acts.
        rollout: Rollout whose environments have all begun new episodes with it.
        gamma: Discount of one unit of environment time.

    Raises:
        ValueError: The rollout has one episode from each start only.
    """
    if rollout.n_same_starts < 2:
        raise ValueError(
            f"leave_one_out compares at least 2 episodes from each start, but n_same_starts={rollout.n_same_starts}"
        )
    rows = rollout.rows
    n_rows, n_envs = rows.filled.shape
    ends = rows.terminated | rows.truncated
    number = ends.cumsum(0) - ends.long()  # [T, N] of the episode in the rollout
    elapsed = (rows.env_steps.cumsum(0) - rows.env_steps).double()
    before = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    begun_at = torch.where(before, elapsed, 0.0).cummax(0).values  # time at which the episode began
    reward = torch.where(rows.filled, rows.reward, 0.0) * gamma ** (elapsed - begun_at)
    of_episodes = reward.new_zeros(n_rows + 1, n_envs)
    returns = of_episodes.scatter_add(0, number, reward)
    is_complete = of_episodes.scatter_add(0, number, ends.double())
    shape = n_rows + 1, -1, rollout.n_same_starts  # [E, groups, n]
    complete, summed = is_complete.view(shape), (returns * is_complete).view(shape)
    others = complete.sum(2, keepdim=True) - complete
    baseline = (summed.sum(2, keepdim=True) - summed) / others.clamp(min=1.0)
    counts = complete * (others > 0)
    advantage = ((returns.view(shape) - baseline) * counts).view_as(returns).gather(0, number)
    weight = counts.view_as(returns).gather(0, number)
    replaced = {}
    for key, credit in credits.items():
        n_slots = rollout.n_slots(key)
        own = weight.repeat_interleave(n_slots, 1).to(credit.weight) * rollout.segments[key].active.to(credit.weight)
        replaced[key] = replace(
            credit, advantage=advantage.repeat_interleave(n_slots, 1).to(credit.advantage) * own, weight=own
        )
    return replaced
