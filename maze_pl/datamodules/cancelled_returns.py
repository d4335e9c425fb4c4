"""Warning of returns that are all 0 because the rewards of agents cancel out."""

from collections.abc import Sequence

from pytorch_lightning.utilities import rank_zero_warn

from maze_pl.core.cancelled_rewards import cancel_out


def warn_if_returns_cancel_out(returns: Sequence[float], paid: Sequence[float]) -> None:
    """Warn of agents whose rewards add up to 0 in all episodes, if these are compared by their returns.

    Args:
        returns: [n] returns of episodes, or sums of their absolute values.
        paid: [n] sums of the absolute values of the rewards that are attributed to acts in these episodes.
    """
    if cancel_out(returns, paid):
        fault = "the rewards of the agents add up to 0 in each episode, and episodes are compared by their sum"
        remedy = "use an algorithm with a step critic, with which each agent learns from its own rewards"
        rank_zero_warn(f"{fault}, which only differs by rounding, if at all: {remedy}")
