"""Shapes of actions, log-probabilities and entropies that a custom distribution returns."""

from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from maze_pl.distributions.probability_distribution import ProbabilityDistribution

_N_ACTIONS = 2


def require_shapes(head: str, distribution: type[ProbabilityDistribution], space: spaces.Space[Any]) -> None:
    """Refuse a custom distribution whose results have wrong shapes, by a test on logits of zeros.

    Methods that raise an error are not tested: an algorithm need not call all of them. Random
    generators are left as they are.

    Args:
        head: Name of the action head.
        distribution: Its class; those of maze_pl are not tested.
        space: Its space.

    Raises:
        ValueError: A shape is wrong; the message names the head, the class and the method.
    """
    if distribution.__module__.partition(".")[0] == "maze_pl" or space.shape is None:
        return
    n_actions = (_N_ACTIONS,)
    logits = torch.zeros(*n_actions, *distribution.required_logits_shape(space))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            tested = distribution(logits, space)
            action = tested.sample()
        except Exception:  # code of users; the error comes again where it matters
            return
        methods: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
            "sample": (lambda: action, (*n_actions, *space.shape)),
            "deterministic_sample": (tested.deterministic_sample, (*n_actions, *space.shape)),
            "log_prob": (lambda: tested.log_prob(action), n_actions),
            "entropy": (tested.entropy, n_actions),
        }
        for method, (call, expected) in methods.items():
            try:
                result = call()
            except Exception:
                continue
            found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            if found != expected:
                came = f"{method} of {distribution.__name__}, the distribution of action head {head!r}"
                fault = f"returned {found} for logits of shape {tuple(logits.shape)}"
                raise ValueError(f"{came}, {fault}: expected a tensor of shape {expected}")
