"""V-trace: value targets and advantages from acts of an older policy."""

import torch
from torch import Tensor

from maze_pl.functional.returns import discounted_sum
from maze_pl.functional.shapes import check_same_shape, check_time_major


def vtrace(
    log_rho: Tensor,
    discount: Tensor,
    reward: Tensor,
    value: Tensor,
    bootstrap_value: Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
) -> tuple[Tensor, Tensor]:
    """Compute V-trace value targets and the corresponding policy-gradient advantages.

        vs_t = V(s_t) + sum_{k>=t} (prod_{t<=i<k} g_i * min(1, rho_i)) * min(rho_bar, rho_k) * d_k
        d_k = r_k + g_k * V(s_{k+1}) - V(s_k)
        A_t = min(pg_rho_bar, rho_t) * (r_t + g_t * vs_{t+1} - V(s_t))

    where rho is the probability of an action under the target policy, which learns, divided by its
    probability under the behaviour policy, which acted. Espeholt et al. 2018, arXiv:1802.01561,
    section 4.1 with c_bar = 1; there the discount g is constant. A step with a discount of 0 ends
    the sum. At a time limit the caller adds the discounted value of the final observation to the
    reward and sets the discount to 0. The results carry no gradients.

    Args:
        log_rho: [T, B] log-probability of the action of step t under the target policy, minus its
            log-probability under the behaviour policy.
        discount: [T, B] discount from step t to step t + 1, 0 where an episode ended.
        reward: [T, B] reward of step t.
        value: [T, B] value of the state before step t.
        bootstrap_value: [B] value of the state after the last step.
        clip_rho_threshold: rho_bar, which sets the policy whose values are the targets: the target
            policy with None (no limit), and closer to the behaviour policy the smaller it is.
        clip_pg_rho_threshold: pg_rho_bar; None for no limit.

    Returns:
        [T, B] targets, and [T, B] advantages.

    Raises:
        TypeError: An argument is not a tensor.
        ValueError: Shapes differ, or a threshold is not positive.

    Example:
        >>> step, twice_as_likely = torch.ones(2, 1), torch.full((2, 1), 2.0).log()
        >>> vs, advantage = vtrace(twice_as_likely, 0.5 * step, step, 0 * step, torch.zeros(1), 1.0, None)
        >>> vs.flatten().tolist(), advantage.flatten().tolist()
        ([1.5, 1.0], [3.0, 2.0])
    """
    check_time_major(reward, 1.0, log_rho=log_rho, discount=discount, value=value)
    check_same_shape(value=value[0], bootstrap_value=bootstrap_value)
    for name, limit in (("clip_rho", clip_rho_threshold), ("clip_pg_rho", clip_pg_rho_threshold)):
        if limit is not None and not limit > 0.0:
            raise ValueError(f"{name}_threshold={limit} must be greater than 0, or None for no limit")
    with torch.no_grad():
        rho = log_rho.exp()
        next_value = torch.cat([value[1:], bootstrap_value[None]])
        delta = rho.clamp(0.0, clip_rho_threshold) * (reward + discount * next_value - value)
        vs = value + discounted_sum(delta, discount * rho.clamp(max=1.0))
        next_vs = torch.cat([vs[1:], bootstrap_value[None]])
        return vs, rho.clamp(0.0, clip_pg_rho_threshold) * (reward + discount * next_vs - value)
