"""Returns and advantages over trajectories with terminal states and time limits anywhere in them.

`gae` and `lambda_return` solve recursions of the form A_t = x_t + c_t * A_{t+1}, not sequentially
but by a parallel scan that doubles its span, see `discounted_sum`: after k rounds every step has
summed 2**k terms (Hillis and Steele 1986, https://doi.org/10.1145/7902.7903). This takes log2(T)
operations on whole tensors. `n_step_return` adds one reward to the sums of all steps at a time, in
n - 1 operations. All of them are differentiable.
"""

import torch
from torch import Tensor

from maze_pl.core.checks import check_fraction
from maze_pl.functional.shapes import check_time_major


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float | Tensor,
    gae_lambda: float,
) -> Tensor:
    """Compute generalised advantage estimates for a batch of trajectories.

        A_t = d_t + gamma_t * lambda * (1 - done_t) * A_{t+1}
        d_t = r_t + gamma_t * (1 - terminated_t) * V(s_{t+1}) - V(s_t)

    Schulman et al. 2016, arXiv:1506.02438, where episodes do not end within a batch. Here a
    terminal state and a time limit (`truncated`) both cut the sum. Only a terminal state omits the
    bootstrap, and it takes precedence if both are set. A_T, beyond the last step, is 0.

    Args:
        reward: [T, B] reward of step t.
        value: [T, B] value of the state before step t.
        next_value: [T, B] value of the true successor of step t, before any reset; ignored where
            terminated.
        terminated: [T, B] bool, step t reached a terminal state.
        truncated: [T, B] bool, the episode was cut off after step t.
        gamma: Discount factor, or [T, B] discount factors.
        gae_lambda: 0 for one-step advantages, 1 for advantages of full returns.

    Returns:
        [T, B] advantages.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, or a number `gamma` or `gae_lambda` is outside [0, 1]; discount
            factors in a tensor are not checked.

    Example:
        >>> step = torch.ones(2, 1)
        >>> never = torch.zeros(2, 1, dtype=torch.bool)
        >>> advantage = gae(step, 0 * step, 0 * step, never, never, gamma=0.5, gae_lambda=1.0)
        >>> advantage.flatten().tolist()
        [1.5, 1.0]
    """
    check_time_major(
        reward,
        gamma,
        value=value,
        next_value=next_value,
        terminated=terminated,
        truncated=truncated,
    )
    check_fraction(gae_lambda=gae_lambda)
    terminated = terminated.bool()
    delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    decay = torch.as_tensor(gamma * gae_lambda, dtype=delta.dtype, device=delta.device).expand(delta.shape)
    return discounted_sum(delta, decay.masked_fill(terminated | truncated.bool(), 0.0))


def lambda_return(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float | Tensor,
    lambda_: float,
) -> Tensor:
    """Compute lambda-returns: exponentially weighted averages of n-step returns.

        G_t = r_t + gamma_t * ((1 - lambda) * V(s_{t+1}) + lambda * G_{t+1})

    Sutton and Barto 2018, equation 12.18, http://incompleteideas.net/book/the-book-2nd.html. After a terminal state
    nothing follows; after a time limit and after the last step G_{t+1} is the value of the true successor.

    Args:
        reward: [T, B] reward of step t.
        next_value: [T, B] value of the true successor of step t, before any reset; ignored where
            terminated.
        terminated: [T, B] bool, step t reached a terminal state.
        truncated: [T, B] bool, the episode was cut off after step t.
        gamma: Discount factor, or [T, B] discount factors.
        lambda_: 0 for one-step returns, 1 for full returns.

    Returns:
        [T, B] returns.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, or a number `gamma` or `lambda_` is outside [0, 1]; discount
            factors in a tensor are not checked.

    Example:
        >>> step = torch.ones(2, 1)
        >>> never = torch.zeros(2, 1, dtype=torch.bool)
        >>> lambda_return(step, 8 * step, never, never, gamma=0.5, lambda_=1.0).flatten().tolist()
        [3.5, 5.0]
    """
    check_time_major(reward, gamma, next_value=next_value, terminated=terminated, truncated=truncated)
    check_fraction(lambda_=lambda_)
    bootstrap, cut = _ends(next_value, terminated, truncated)
    immediate = reward + gamma * torch.where(cut, bootstrap, (1.0 - lambda_) * bootstrap)
    decay = (~cut).to(immediate.dtype) * (gamma * lambda_)
    return discounted_sum(immediate, decay)


def n_step_return(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    gamma: float | Tensor,
    n: int,
) -> Tensor:
    """Compute returns that bootstrap after n steps.

        G_t = r_t + gamma_t * r_{t+1} + ... + gamma_t * ... * gamma_{t+n-1} * V(s_{t+n})

    Sutton and Barto 2018, equation 7.1, http://incompleteideas.net/book/the-book-2nd.html. A terminal state ends the
    sum; a time limit and the last step end it with the value of the true successor.

    Args:
        reward: [T, B] reward of step t.
        next_value: [T, B] value of the true successor of step t, before any reset; ignored where
            terminated.
        terminated: [T, B] bool, step t reached a terminal state.
        truncated: [T, B] bool, the episode was cut off after step t.
        gamma: Discount factor, or [T, B] discount factors.
        n: Maximum number of rewards in a sum, at least 1.

    Returns:
        [T, B] returns.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, a number `gamma` is outside [0, 1], or `n` is not positive;
            discount factors in a tensor are not checked.

    Example:
        >>> step = torch.ones(3, 1)
        >>> never = torch.zeros(3, 1, dtype=torch.bool)
        >>> n_step_return(step, 8 * step, never, never, gamma=0.5, n=2).flatten().tolist()
        [3.5, 3.5, 5.0]
    """
    check_time_major(reward, gamma, next_value=next_value, terminated=terminated, truncated=truncated)
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    bootstrap, cut = _ends(next_value, terminated, truncated)
    result = reward + gamma * bootstrap
    for _ in range(min(n, len(reward)) - 1):
        # The value rolled into the last row does not matter: that row is cut.
        result = reward + gamma * torch.where(cut, bootstrap, result.roll(-1, 0))
    return result


def discounted_sum(x: Tensor, decay: Tensor) -> Tensor:
    """Solve A_t = x_t + c_t * A_{t+1} with A_T = 0.

    Args:
        x: [T, B] term of each step.
        decay: [T, B] weight c_t of the sum that follows.

    Returns:
        [T, B] sums.

    Example:
        >>> discounted_sum(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.5, 0.5, 0.5])).tolist()
        [1.75, 1.5, 1.0]
    """
    n_steps, span = x.shape[0], 1
    while span < n_steps:
        # x_t holds the sum of the first `span` terms from t on, and decay_t the weight of the rest.
        # The weights of the last `span` steps have been dropped, as no terms follow these steps.
        head = torch.addcmul(x[:-span], decay[: n_steps - span], x[span:])
        x = torch.cat([head, x[-span:]])
        if 2 * span < n_steps:
            decay = decay[: n_steps - 2 * span] * decay[span : n_steps - span]
        span *= 2
    return x


def _ends(next_value: Tensor, terminated: Tensor, truncated: Tensor) -> tuple[Tensor, Tensor]:
    """Return bootstrap values, 0 after a terminal state, and the mask of steps that end a sum.

    The last step always ends a sum.
    """
    cut = terminated.bool() | truncated.bool()
    cut[-1] = True
    return next_value.masked_fill(terminated.bool(), 0.0), cut
