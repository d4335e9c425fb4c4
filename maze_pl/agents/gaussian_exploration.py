"""Standard deviations of Gaussian policies that are not outputs of the network, and coherent exploration noise.

Generalised state-dependent exploration (gSDE), Raffin et al. 2021, arXiv:2005.05719: the noise of an
act is a linear function of the features that the network computes last,

    a = mu(s) + E^T phi(s),   E_ij = sigma_ij * xi_ij,   xi_ij standard normal

and E is kept for several acts, so that exploration is smooth. For a single act this is a diagonal
Gaussian, whose log-probability and entropy are used for learning:

    a_j ~ N(mu_j(s), sum_i phi_i(s)^2 * sigma_ij^2)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from maze_pl.core.policy import Array
from maze_pl.distributions.exploration import Exploration

_LEAST_VARIANCE = 1e-6
"""Added to the variances of gsde, as in stable-baselines3; keeps them positive where all features are 0."""


class GaussianExploration(nn.Module):
    """Completes the outputs of networks for one head to the parameters of a Gaussian.

    Args:
        options: Dependence of the standard deviations, and their limits.
        n_components: Number of components of the action, n.
        n_networks: Number of networks: 1, or one for each agent, each with separate parameters.
        n_features: Number of features L of the networks; needed by gsde only.

    Attributes:
        options: See above.
        log_std: Log standard deviations before they are limited, [n_networks, n], or with gsde
            [n_networks, L, n]; there are none if the networks compute them.
    """

    def __init__(self, options: Exploration, n_components: int, n_networks: int = 1, n_features: int = 0) -> None:
        super().__init__()
        self.options = options
        self.n_components = n_components
        self.n_networks = n_networks
        self.n_features = n_features
        shapes = {"state_independent": (n_networks, n_components), "gsde": (n_networks, n_features, n_components)}
        if options.type in shapes:
            self.log_std = nn.Parameter(torch.full(shapes[options.type], options.log_std_init))

    @property
    def is_gsde(self) -> bool:
        """True for generalised state-dependent exploration."""
        return self.options.type == "gsde"

    def bounded_log_std(self) -> Tensor:
        """Log standard deviations within their limits, shaped as `log_std`."""
        return limited(self.log_std, self.options.log_std_bounds)

    def forward(self, output: Tensor, features: Tensor | None, agent_id: Tensor | None) -> Tensor:
        """Compute means and log standard deviations.

        Args:
            output: [..., 2n] means and log standard deviations if the networks compute both,
                otherwise [..., n] means.
            features: [..., L] features of the network, for gsde.
            agent_id: [...] ids of the agents, needed if they have separate networks.

        Returns:
            [..., 2n] means, then log standard deviations.
        """
        if self.options.type == "state_dependent":
            mean, log_std = output.chunk(2, dim=-1)
            log_std = limited(log_std + self.options.log_std_init, self.options.log_std_bounds)
            return torch.cat((mean, log_std), dim=-1)
        of_parameters = self._of_agents(self.bounded_log_std(), agent_id)
        if not self.is_gsde:
            return torch.cat((output, of_parameters.to(output.dtype).expand_as(output)), dim=-1)
        assert features is not None
        squares = (features if self.options.learn_features else features.detach()).square()
        variances = torch.exp(2.0 * of_parameters).to(squares.dtype)  # [..., L, n]
        variance = torch.matmul(squares.unsqueeze(-2), variances).squeeze(-2)
        return torch.cat((output, 0.5 * torch.log(variance + _LEAST_VARIANCE)), dim=-1)

    def noise(self, features: Tensor, xi: Tensor, agent_id: Tensor | None) -> Tensor:
        """Compute the noise of gsde, E^T phi.

        Args:
            features: [B, L] features of the network.
            xi: [B, L, n] standard normal noise of each actor.
            agent_id: [B] ids of the agents, needed if they have separate networks.

        Returns:
            [B, n] noise to be added to the means.
        """
        deviations = self._of_agents(self.bounded_log_std(), agent_id).exp()
        matrix = (deviations * xi.to(deviations)).to(features.dtype)  # [B, L, n]
        return torch.matmul(features.unsqueeze(-2), matrix).squeeze(-2)

    def _of_agents(self, parameters: Tensor, agent_id: Tensor | None) -> Tensor:
        """[...] parameters of each actor, those of the only network without leading dimensions."""
        if self.n_networks == 1:
            return parameters[0]
        assert agent_id is not None
        # ids that belong to no agent, such as padding, get any of them
        return parameters[agent_id.to(parameters.device).clamp(0, self.n_networks - 1)]


class NoiseState:
    """Exploration noise of actors: the current matrix of each actor, and the number of its acts.

    The state is a dict of arrays, so that it is kept and saved with other states of actors:
    "<head>" -> [B, L, n] float32 and "<head>/n_acts" -> [B] int64. Where the number is 0, an
    episode begins.

    Args:
        state: State before the acts; without entries, all actors begin an episode.
        n_actors: Number of actors, B.
    """

    def __init__(self, state: Mapping[str, Array], n_actors: int) -> None:
        self._before = state
        self._n_actors = n_actors
        self.after: dict[str, Array] = {}

    def next(self, head: str, exploration: GaussianExploration, generator: torch.Generator | None) -> Tensor:
        """Return [B, L, n] standard normal noise for the next act, drawn again where it is due.

        Args:
            head: The action head.
            exploration: Its exploration, of type gsde.
            generator: Source of randomness, on any device.
        """
        shape = (self._n_actors, exploration.n_features, exploration.n_components)
        count = f"{head}/n_acts"
        if head in self._before:
            xi = np.array(self._before[head])
            n_acts = np.array(self._before[count])
        else:
            xi = np.zeros(shape, np.float32)
            n_acts = np.zeros(self._n_actors, np.int64)
        frequency = exploration.options.sample_freq
        is_due = n_acts == 0 if frequency is None else n_acts % frequency == 0
        n_due = int(is_due.sum())
        if n_due:
            device: Any = None if generator is None else generator.device
            drawn = torch.randn((n_due, *shape[1:]), generator=generator, device=device)
            xi[is_due] = drawn.cpu().numpy()
        self.after[head] = xi
        self.after[count] = n_acts + 1
        return torch.from_numpy(xi)


def noisy(logits: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Shift the means of a Gaussian by noise, whose variance a temperature multiplies.

    Args:
        logits: [B, 2n] means, then log standard deviations.
        noise: [B, n] noise at temperature 1.
        temperature: Above 1 for more noise, below 1 for less.

    Returns:
        [B, 2n]
    """
    mean, log_std = logits.chunk(2, dim=-1)
    return torch.cat((mean + math.sqrt(temperature) * noise, log_std), dim=-1)


# ------------------------------------------------------------------------------------------------------------ limits


def limited(log_std: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """Limit log standard deviations; gradients that lead back from a limit pass.

    With the gradient of `clamp`, a parameter that an update has moved beyond a limit would never
    return.

    Args:
        log_std: Any shape.
        bounds: Lower and upper limit; None for no limits.

    Returns:
        The shape of `log_std`.

    Example:
        >>> x = torch.tensor([-9.0, 0.0, 9.0], requires_grad=True)
        >>> limited(x, (-5.0, 2.0)).tolist()
        [-5.0, 0.0, 2.0]
    """
    if bounds is None:
        return log_std
    function: Any = _Limited
    result: Tensor = function.apply(log_std, *bounds)
    return result


class _Limited(torch.autograd.Function):
    """Clamp whose gradient vanishes only where a step along it would lead further beyond a limit."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(value)
        ctx.bounds = low, high
        return value.clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (value,) = ctx.saved_tensors
        low, high = ctx.bounds
        # descent subtracts the gradient
        returns_from_low = (value > low) | (gradient < 0)
        returns_from_high = (value < high) | (gradient > 0)
        return torch.where(returns_from_low & returns_from_high, gradient, 0.0), None, None
