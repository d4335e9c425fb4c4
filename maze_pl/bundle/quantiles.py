"""Quantile functions in operations that ONNX has, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

# Coefficients of algorithm AS 241 (Wichura 1988): numerator and denominator, highest power last.
_CENTRE: Final = (
    (
        *(3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_MIDDLE: Final = (
    (
        *(1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504),
        *(1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)
_TAIL: Final = (
    (
        *(6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)
_LEAST: Final = 2.0**-54
"""Uniform numbers are kept this far away from 0 and 1: they have 53 binary digits."""


def normal_quantile(probability: Tensor) -> Tensor:
    """Standard normal quantiles, with a relative error of about 1e-16.

    Algorithm AS 241, Wichura 1988, https://doi.org/10.2307/2347330.

    Args:
        probability: [...] float64 in [0, 1).

    Returns:
        [...] float64, from -8.3 to 8.2.
    """
    probability = probability.clamp(_LEAST, 1.0 - 2 * _LEAST)
    q = probability - 0.5
    r = _exact(0.180625) - q * q
    centre = q * _ratio(_CENTRE, r)
    lower = torch.minimum(probability, 1.0 - probability)
    root = torch.sqrt(-torch.log(lower))
    tail = torch.where(root <= 5.0, _ratio(_MIDDLE, root - _exact(1.6)), _ratio(_TAIL, root - 5.0))
    return torch.where(q.abs() <= _exact(0.425), centre, torch.where(q < 0, -tail, tail))


def _ratio(coefficients: tuple[tuple[float, ...], ...], x: Tensor) -> Tensor:
    numerator, denominator = coefficients
    return _polynomial(numerator, x) / _polynomial(denominator, x)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = _exact(coefficients[-1]).expand_as(x)
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _exact(coefficient)
    return value


def _exact(number: float) -> Tensor:
    """Return a number as float64; in ONNX, numbers of Python are rounded to float32."""
    return torch.tensor(number, dtype=torch.float64)


_N_CELLS: Final = 128
_N_STEPS: Final = 6
# Nodes and weights of Gauss-Legendre quadrature with 6 nodes on [0, 1].
_NODES: Final = (
    *(0.033765242898423975, 0.16939530676686776, 0.38069040695840156),
    *(0.6193095930415985, 0.8306046932331322, 0.966234757101576),
)
_WEIGHTS: Final = (
    *(0.08566224618958525, 0.1803807865240693, 0.23395696728634552),
    *(0.23395696728634552, 0.1803807865240693, 0.08566224618958525),
)


def beta_quantile(probability: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Quantiles of beta distributions with alpha, beta >= 1, with an absolute error below 1e-9.

    For x = 1 / (1 + exp(-y)), the density of y is proportional to

        exp(alpha log x + beta log(1 - x)),

    which is log-concave and smooth for all y. It is integrated over cells of equal width by
    Gauss-Legendre quadrature, so that no gamma function is needed; Newton's method, kept inside of
    the cell, solves for y.

    Args:
        probability: [...] float64 in [0, 1).
        alpha: [...] float64.
        beta: [...] float64.

    Returns:
        [..., 2] x and 1 - x, both accurate relative to their size.
    """
    probability = probability.clamp(_LEAST, 1.0 - 2 * _LEAST)
    mode = torch.log(alpha) - torch.log(beta)
    deviation = torch.sqrt(1.0 / alpha + 1.0 / beta)
    # Less than 1e-15 of the mass is outside: tails fall at least as fast as exp(-alpha |y|) and exp(-beta |y|).
    low = mode - 8.5 * deviation - 36.0 / alpha
    high = mode + 8.5 * deviation + 36.0 / beta
    width = (high - low) / _N_CELLS
    peak = _log_density(mode, alpha, beta)

    def density(y: Tensor) -> Tensor:  # [..., n]
        logarithm = _log_density(y, alpha.unsqueeze(-1), beta.unsqueeze(-1))
        return torch.exp(logarithm - peak.unsqueeze(-1))

    nodes = torch.tensor(_NODES, dtype=torch.float64)
    weights = torch.tensor(_WEIGHTS, dtype=torch.float64)
    places = (torch.arange(_N_CELLS, dtype=torch.float64).unsqueeze(-1) + nodes).flatten()
    values = density(low.unsqueeze(-1) + width.unsqueeze(-1) * places)
    of_cells = values.reshape(*values.shape[:-1], _N_CELLS, len(_NODES))
    masses = (of_cells * weights).sum(dim=-1)  # [..., cells], in cell widths
    cumulative = masses.cumsum(dim=-1)
    target = probability.unsqueeze(-1) * cumulative[..., -1:]
    is_below = (cumulative[..., :-1] <= target).to(torch.float64)
    start = is_below.sum(dim=-1)  # number of the cell
    before = (is_below * masses[..., :-1]).sum(dim=-1)
    first = low + width * start
    part = _part_of_cell(density, first, width, target.squeeze(-1) - before, nodes, weights)
    y = first + width * part
    return torch.exp(torch.stack((_log_sigmoid(y), _log_sigmoid(-y)), dim=-1))


def _part_of_cell(
    density: Callable[[Tensor], Tensor],
    first: Tensor,
    width: Tensor,
    wanted: Tensor,
    nodes: Tensor,
    weights: Tensor,
) -> Tensor:
    """Return the part of each cell, from its lower end, that holds a mass.

    Args:
        density: Function of places [..., n] that is proportional to the density there.
        first: [...] lower ends of the cells.
        width: [...] widths of the cells.
        wanted: [...] masses, in cell widths.
        nodes: Nodes of the quadrature on [0, 1].
        weights: Weights of the quadrature.

    Returns:
        [...] fractions of the widths.
    """
    # a little outside, as rounding may pick a neighbouring cell
    lower = torch.full_like(wanted, -0.25)
    upper = torch.full_like(wanted, 1.25)
    part = torch.full_like(wanted, 0.5)
    for _ in range(_N_STEPS):
        inside = density(first.unsqueeze(-1) + (width * part).unsqueeze(-1) * nodes)
        excess = (inside * weights).sum(dim=-1) * part - wanted
        lower = torch.where(excess < 0, part, lower)
        upper = torch.where(excess < 0, upper, part)
        slope = density((first + width * part).unsqueeze(-1)).squeeze(-1)
        newton = part - excess / slope.maximum(_exact(1e-300))
        is_inside = (newton >= lower) & (newton <= upper)
        part = torch.where(is_inside, newton, 0.5 * (lower + upper))
    return part


def _log_density(y: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha * _log_sigmoid(y) + beta * _log_sigmoid(-y)


def _log_sigmoid(y: Tensor) -> Tensor:
    """log(1 / (1 + exp(-y))), in operations that have float64 in ONNX Runtime."""
    return -torch.log(1.0 + torch.exp(-y.abs())) - torch.relu(-y)
