"""Warnings of rollouts from which an agent cannot learn what it should."""

from typing import Final, Literal

from pytorch_lightning.utilities import rank_zero_warn

from maze_pl.core.batches import Rollout
from maze_pl.core.cancelled_rewards import ROUNDING
from maze_pl.modules.on_policy.leave_one_out import EpisodesOfRollout

ENOUGH: Final = 0.5
"""Share of the episodes that should end within a rollout, for comparisons of whole episodes."""


def warn_if_rewards_cancel_out(kind: Literal["shared", "step", "delta"], rollout: Rollout) -> None:
    """Warn of actors whose rewards add up to 0 in each row, up to rounding, if they learn from the sum.

    Args:
        kind: `StateCritic.kind`, which decides it for the critic as for episodes that are compared.
        rollout: The collected rollout.
    """
    rewards = [part.actor_reward for part in rollout.segments.values() if part.actor_reward is not None]
    largest = max((float(reward.abs().max()) for reward in rewards), default=0.0)
    if kind != "step" and largest > 0 and float(rollout.rows.reward.abs().max()) <= ROUNDING * largest:
        fault = f"the rewards of the actors add up to 0, and a {kind} critic learns from their sum"
        rank_zero_warn(f"{fault}: use a step critic, with which each actor learns from its own rewards")


def warn_if_few_episodes_end(rollout: Rollout) -> bool:
    """Warn if fewer than half of the episodes that begin in a rollout end in it; returns whether it did.

    Args:
        rollout: Rollout whose environments have all begun new episodes with it.
    """
    episodes = EpisodesOfRollout.of(rollout, 1.0)
    n_begun = int(episodes.has_begun.sum())
    n_complete = int(episodes.is_complete.sum())
    if n_complete >= ENOUGH * n_begun:
        return False
    found = f"{n_complete:,} of {n_begun:,} episodes ended within the {rollout.n_rollout_steps:,} steps of a rollout"
    fault = "baseline=leave_one_out learns from these only, and nothing from longer ones"
    rank_zero_warn(f"{found}, but {fault}: let n_rollout_steps hold whole episodes, or limit these to it")
    return True
