"""The most likely actions of a policy, with their probabilities."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from gymnasium import spaces

from maze_pl.agents.acting import HasProbabilities
from maze_pl.core.policy import Array, Policy, PolicyBatch

Action = Mapping[str, Any]
"""Head -> an int for `Discrete`, an array for the other spaces."""


def best_actions(
    policy: Policy, batch: PolicyBatch, space: spaces.Dict, temperature: float, k: int
) -> list[list[tuple[Action, float]]]:
    """Return up to k actions of positive probability for each actor of a batch, the most likely first.

    Args:
        policy: The policy.
        batch: The actors and their observations.
        space: Action space of the actors.
        temperature: Above 1 flattens the distributions, below 1 sharpens them.
        k: Number of actions.

    Returns:
        For each actor, actions and their probabilities.

    Raises:
        TypeError: The policy has no probabilities, or a head is continuous.
    """
    if not isinstance(policy, HasProbabilities):
        raise TypeError(f"a {type(policy).__name__} has no probabilities, and so no candidates")
    probabilities = policy.probabilities(batch, temperature)
    for head, part in space.spaces.items():
        if head not in probabilities:
            raise TypeError(f"head {head!r} is {part}: only discrete actions have candidates")
    return [likeliest_actions(space, probabilities, row, k) for row in range(len(batch.agent_id))]


def likeliest_actions(
    space: spaces.Dict, probabilities: Mapping[str, Any], row: int, k: int
) -> list[tuple[Action, float]]:
    """Return up to k actions of positive probability, the most likely first.

    Args:
        space: Action space, of discrete heads.
        probabilities: Result of `TorchPolicy.probabilities`.
        row: Number of the actor in the batch.
        k: Number of actions.
    """
    factors: list[Array] = []  # [options] of each choice of all heads
    for head, part in space.spaces.items():
        factors += _factors(part, probabilities[head], row)
    found: list[tuple[Action, float]] = []
    for choices, probability in best_products(factors, k):
        rest = list(choices)
        action = {}
        for head, part in space.spaces.items():
            action[head], rest = _value(part, rest)
        found.append((action, probability))
    return found


def best_products(factors: Sequence[Array], k: int) -> list[tuple[tuple[int, ...], float]]:
    """Return the k most likely combinations of independent choices.

    The k best combinations of all choices begin with one of the k best combinations of the first
    ones, so choices are added one at a time. Combinations of probability 0 are left out.

    Args:
        factors: [options] probabilities of each choice.
        k: Number of combinations.

    Returns:
        Options and probability of each combination, the most likely first; equally likely ones in
        the order of their options.
    """
    best: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    for factor in factors:
        options = np.argsort(-factor, kind="stable")[:k].tolist()
        extended = []
        for (chosen, probability), option in product(best, options):
            joint = probability * float(factor[option])
            if joint > 0:
                extended.append(((*chosen, option), joint))
        extended.sort(key=lambda entry: (-entry[1], entry[0]))
        best = extended[:k]
    return best


def _factors(space: spaces.Space[Any], probabilities: Any, row: int) -> list[Array]:
    """Return the probabilities of the options of each choice of a head."""
    if isinstance(space, spaces.Discrete):
        return [probabilities[row]]
    if isinstance(space, spaces.MultiDiscrete):
        return [part[row] for part in probabilities]
    ones = probabilities[row].ravel()  # MultiBinary: probability of a 1 for each bit
    return [np.array([1 - one, one]) for one in ones]


def _value(space: spaces.Space[Any], choices: list[int]) -> tuple[Any, list[int]]:
    """Take the value of a head from the choices of all heads; return it and the remaining choices."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + choices[0], choices[1:]
    shape = space.shape or ()
    size = int(np.prod(shape))
    values = np.reshape(choices[:size], shape)
    if isinstance(space, spaces.MultiDiscrete):
        values = values + space.start
    return values.astype(space.dtype), choices[size:]
