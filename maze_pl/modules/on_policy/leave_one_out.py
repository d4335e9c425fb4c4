"""Advantages over other episodes from the same start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from maze_pl.core.batches import Rollout
from maze_pl.core.rows import Segment
from maze_pl.modules.on_policy.credit import Credits


@dataclass(frozen=True)
class EpisodesOfRollout:
    """Episodes that begin in a rollout, up to E in each of its N environments.

    Attributes:
        number: [T, N] int64, number of the row's episode in its environment.
        factor: [T, N] float64, gamma to the power of the environment time of the row in its episode.
        has_begun: [E, N] bool, the episode has a row.
        is_complete: [E, N] bool, it ended within the rollout.
    """

    number: Tensor
    factor: Tensor
    has_begun: Tensor
    is_complete: Tensor

    @classmethod
    def of(cls, rollout: Rollout, gamma: float) -> EpisodesOfRollout:
        """Find the episodes of a rollout whose environments have all begun new episodes with it.

        Args:
            rollout: The rollout.
            gamma: Discount of one unit of environment time.
        """
        rows = rollout.rows
        n_rows, n_envs = rows.filled.shape
        ends = rows.terminated | rows.truncated
        number = ends.cumsum(0) - ends.long()
        elapsed = (rows.env_steps.cumsum(0) - rows.env_steps).double()
        before = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        begun_at = torch.where(before, elapsed, 0.0).cummax(0).values  # time at which the episode began
        nothing = number.new_zeros(n_rows + 1, n_envs)
        return cls(
            number=number,
            factor=gamma ** (elapsed - begun_at),
            has_begun=nothing.scatter_add(0, number, rows.filled.long()) > 0,
            is_complete=nothing.scatter_add(0, number, ends.long()) > 0,
        )


def with_leave_one_out_baseline(credits: Credits, rollout: Rollout, gamma: float, *, by_actor: bool = False) -> Credits:
    """Replace advantages by the return of the episode minus the mean of the others from the same start.

        A_i = G_i - 1 / (n - 1) * sum of G_j over j != i,    G = sum of gamma^t * r_t

    for all acts of episode i, with n episodes from one start. W. Kool, H. van Hoof and M. Welling 2019, Buy 4
    REINFORCE samples, get a baseline for free! With the mean of all n episodes, which only scales
    the advantage by (n - 1) / n, it is the shared baseline of Y.-D. Kwon et al. 2020, POMO,
    arXiv:2010.16011. Departure: G is discounted.

    Acts count in the loss of the policy if their episode and another one from its start ended
    within the rollout; a time limit is an end like any other. No observation needs to follow the
    act, not even for step critics. What the critic learns stays the same. If some episodes are
    longer than the rollout, advantages are biased, since only the short ones are compared.

    Args:
        credits: Credit of the acts.
        rollout: Rollout whose environments have all begun new episodes with it.
        gamma: Discount of one unit of environment time.
        by_actor: Whether G of an act is the sum of the rewards that are attributed to its agent in
            its sub-step, where the environment attributes rewards, as for step critics. An agent
            that does not act in an episode has the return 0 there.

    Raises:
        ValueError: The rollout has one episode from each start only.
    """
    if rollout.n_same_starts < 2:
        raise ValueError(
            f"leave_one_out compares at least 2 episodes from each start, but n_same_starts={rollout.n_same_starts}"
        )
    episodes = EpisodesOfRollout.of(rollout, gamma)
    number = episodes.number
    complete = episodes.is_complete.double().view(len(episodes.is_complete), -1, rollout.n_same_starts)  # [E, G, n]
    others = complete.sum(2, keepdim=True) - complete
    counts = complete * (others > 0)
    weight = counts.view_as(episodes.is_complete).gather(0, number)
    rewards = torch.where(rollout.rows.filled, rollout.rows.reward, 0.0) * episodes.factor
    returns = rewards.new_zeros(episodes.is_complete.shape).scatter_add(0, number, rewards)
    of_rows = _advantages(returns.unsqueeze(-1), complete, others).squeeze(-1).gather(0, number)
    replaced = {}
    for key, credit in credits.items():
        segment = rollout.segments[key]
        n_slots = rollout.n_slots(key)
        own = weight.repeat_interleave(n_slots, 1).to(credit.weight) * segment.active.to(credit.weight)
        if by_actor and segment.actor_reward is not None:
            advantage = _advantages_of_actors(segment, segment.actor_reward, n_slots, episodes, complete, others)
        else:
            advantage = of_rows.repeat_interleave(n_slots, 1)
        replaced[key] = replace(credit, advantage=advantage.to(credit.advantage) * own, weight=own)
    return replaced


def _advantages(returns: Tensor, complete: Tensor, others: Tensor) -> Tensor:
    """[E, N, A] returns minus their means over the other episodes from the same start; undefined where there are none.

    Args:
        returns: [E, N, A] returns of A actors in each episode.
        complete: [E, N / n, n] 1 for episodes that ended, by groups of n environments with the same starts.
        others: [E, N / n, n] number of other ones from the same start.
    """
    grouped = returns.view(*complete.shape, -1)  # [E, N / n, n, A]
    known = grouped * complete.unsqueeze(-1)
    baseline = (known.sum(2, keepdim=True) - known) / others.clamp(min=1.0).unsqueeze(-1)
    return (grouped - baseline).view_as(returns)


def _advantages_of_actors(
    segment: Segment, reward: Tensor, n_slots: int, episodes: EpisodesOfRollout, complete: Tensor, others: Tensor
) -> Tensor:
    """[T, B] advantages of acts by the rewards [T, B] that are attributed to their actors.

    Agents are numbered by start, U in all, as ids of agents that come and go grow without limit.
    """
    n_starts, n_members = complete.flatten(0, 1).shape
    env = torch.arange(reward.shape[1], device=reward.device) // n_slots
    episode = episodes.number.repeat_interleave(n_slots, 1)
    start = episode * complete.shape[1] + env // n_members
    agent_id = torch.where(segment.active, segment.agent_id, 0)
    acting, number = torch.unique(agent_id * n_starts + start, return_inverse=True)  # [U], [T, B]
    entry = number * n_members + env % n_members  # [T, B] into [U, n]
    discounted = torch.where(segment.active, reward, 0.0) * episodes.factor.repeat_interleave(n_slots, 1)
    returns = discounted.new_zeros(len(acting) * n_members)
    returns = returns.scatter_add(0, entry.flatten(), discounted.flatten())
    start_of = acting % n_starts
    complete = complete.flatten(0, 1)[start_of].unsqueeze(1)  # [U, 1, n]
    others = others.flatten(0, 1)[start_of].unsqueeze(1)
    advantages = _advantages(returns.view(len(acting), n_members, 1), complete, others)
    return advantages.flatten()[entry]
