"""V-trace as the paper writes it."""

from __future__ import annotations

import math

from torch import Tensor


def by_the_paper(
    log_rho: Tensor, discount: Tensor, reward: Tensor, value: Tensor, after: Tensor, clip: float, clip_pg: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Equation 1 of Espeholt et al. as it reads: for each step a sum over all later ones, with products in it."""
    n_steps, n_columns = reward.shape
    targets, advantages = ([[0.0] * n_columns for _ in range(n_steps)] for _ in range(2))
    for b in range(n_columns):
        rho = [math.exp(float(x)) for x in log_rho[:, b]]
        v = [*value[:, b].tolist(), float(after[b])]
        g, r = discount[:, b].tolist(), reward[:, b].tolist()
        for s in range(n_steps):
            total = v[s]
            for t in range(s, n_steps):
                trace = math.prod(g[i] * min(1.0, rho[i]) for i in range(s, t))
                total += trace * min(clip, rho[t]) * (r[t] + g[t] * v[t + 1] - v[t])
            targets[s][b] = total
        for s in range(n_steps):
            following = targets[s + 1][b] if s + 1 < n_steps else v[n_steps]
            advantages[s][b] = min(clip_pg, rho[s]) * (r[s] + g[s] * following - v[s])
    return targets, advantages
