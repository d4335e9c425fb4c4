"""Densities of continuous distributions, as curves."""

from typing import Any, Final

import torch
from torch import Tensor

from maze_pl.distributions.continuous import BoundedProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution
from maze_pl.viewer.arrays import Array

N_POINTS: Final = 33
_MOST_NUMBERS: Final = 2_000_000
"""Numbers of all curves of a head; with more, curves have fewer points."""
_FEWEST_POINTS: Final = 9
_N_SAMPLES: Final = 64
_MARGIN: Final = 0.005
"""Share of the width of a box that is left out at each of its borders."""


def densities_of(distribution: ProbabilityDistribution, n_acts: int) -> tuple[Array | None, Array | None]:
    """Compute the density of each component of a distribution of independent components.

        p_j(x) is proportional to p(mode with x as component j)

    The range of a curve holds samples of the component and its mode; the curve is scaled so that
    the area below it is 1.

    Args:
        distribution: Distributions of n_acts acts.
        n_acts: Number of acts.

    Returns:
        [acts, components, points] values and densities; None if there are no densities, as of
        deterministic actions, or too many components and acts.
    """
    mode = distribution.deterministic_sample()
    flat = mode.reshape(n_acts, -1).double()  # [acts, components]
    n_components = flat.shape[1]
    n_points = min(N_POINTS, _MOST_NUMBERS // max(flat.numel(), 1))
    if n_points < _FEWEST_POINTS or not flat.numel():
        return None, None
    generator = torch.Generator().manual_seed(0)
    samples = torch.stack([distribution.sample(generator).reshape(n_acts, -1) for _ in range(_N_SAMPLES)]).double()
    low = torch.minimum(samples.amin(0), flat)
    high = torch.maximum(samples.amax(0), flat)
    margin = 0.25 * (high - low)
    low = low - margin
    high = high + margin
    if isinstance(distribution, BoundedProbabilityDistribution):
        low_bound, high_bound = _inner_bounds(distribution, flat.device)
        low = torch.maximum(low, low_bound)
        high = torch.minimum(high, high_bound)
    fractions = torch.linspace(0.0, 1.0, n_points, dtype=torch.float64, device=flat.device)
    x = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * fractions  # [acts, components, points]
    log_density = torch.empty_like(x)
    for component in range(n_components):
        for point in range(n_points):
            action = flat.clone()
            action[:, component] = x[:, component, point]
            log_density[:, component, point] = distribution.log_prob(action.to(mode.dtype).reshape(mode.shape)).double()
    density = (log_density - log_density.amax(-1, keepdim=True)).exp()
    area = torch.trapezoid(density, x, dim=-1).unsqueeze(-1)
    density = density / area
    if not bool(torch.isfinite(density).all()):
        return None, None
    return x.float().cpu().numpy(), density.float().cpu().numpy()


def _inner_bounds(distribution: BoundedProbabilityDistribution, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return [1, components] bounds a little inside of the box: densities may grow without limit towards it."""
    space: Any = distribution.action_space
    low = torch.from_numpy(space.low.reshape(1, -1)).to(device, torch.float64)
    high = torch.from_numpy(space.high.reshape(1, -1)).to(device, torch.float64)
    margin = _MARGIN * (high - low)
    return low + margin, high - margin
