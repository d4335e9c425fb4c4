"""Notes on training: properties of spaces and observations with which a policy learns slowly, or not at all."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from gymnasium import spaces
from pytorch_lightning.utilities import rank_zero_info
from torch import nn

from maze_pl.agents import TorchPolicy
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.policy import Policy
from maze_pl.core.spec import StepSpec
from maze_pl.distributions import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.continuous import unsuitable_bounds
from maze_pl.perception import ScalingBlock
from maze_pl.perception.models.built_in import FlattenConcatNet

_MOST_VALUES: Final = 1000  # range that integers are divided by without a note
_LARGEST_NUMBER: Final = 100.0  # root mean square of an element of an observation without a note
_LARGEST_UNIT: Final = 10.0
_SMALLEST_UNIT: Final = 0.1


def say_before_training(policy: Policy, chosen_networks: str | None) -> None:
    """Print automatic networks, and what may keep the policy from learning.

    Args:
        policy: The policy; there are no notes on one that wraps another.
        chosen_networks: Automatic networks as YAML.
    """
    if chosen_networks is not None:
        rank_zero_info(f"networks that fit the spaces, as model.networks in YAML:\n{chosen_networks}")
    notes = notes_on(policy) if isinstance(policy, TorchPolicy) else []
    for note in notes:
        rank_zero_info(f"note: {note}")


def notes_on(policy: TorchPolicy) -> list[str]:
    """Return what may keep a policy from learning, a sentence each with its remedy.

    Args:
        policy: The policy.
    """
    notes: list[str] = []
    for key, networks in zip(policy.spec.step_keys, policy.networks, strict=True):
        step = policy.spec.steps[key]
        notes += _undeclared_masks(step)
        notes += _wide_ranges(networks.modules(), step)
        if _are_flat(networks.modules()):
            notes += _categories_as_numbers(step)
            notes += _bytes_as_numbers(step)
        for head, distribution in policy.distribution_classes(key).items():
            space = step.action_space[head]
            if issubclass(distribution, DiagonalGaussianProbabilityDistribution) and isinstance(space, spaces.Box):
                notes += _units_of_actions(head, space)
    return list(dict.fromkeys(notes))


def notes_on_observations(policy: TorchPolicy, sample: ObservationSample) -> list[str]:
    """Return a sentence on each observation whose numbers are too large for networks that do not scale them.

    Args:
        policy: The policy.
        sample: Observations that the policy has received.
    """
    notes = []
    for (key, name), values in sample.overall.items():
        step = policy.spec.steps[key]
        size = float(np.sqrt(np.square(values, dtype=np.float64).mean(0)).max(initial=0.0))
        networks = list(policy.modules_of(key).modules())
        if size <= _LARGEST_NUMBER or not _is_read_unscaled(name, step, networks):
            continue
        fact = f"the observation {name!r} has numbers of the size of {size:,.0f}, with which networks hardly learn"
        remedy = "normalise it (--data.wrappers+ wrappers/running_obs; wrappers/vector_obs with replay buffers)"
        notes.append(f"{fact}: {remedy}")
    return list(dict.fromkeys(notes))


def _are_flat(networks: Iterable[nn.Module]) -> bool:
    """True if a network reads all observations as numbers, without scaling any."""
    return any(isinstance(network, FlattenConcatNet) for network in networks)


def _is_read_unscaled(name: str, step: StepSpec, networks: Sequence[nn.Module]) -> bool:
    """True for a Box of numbers that is neither a mask, nor bytes, nor scaled by a block.

    Images count only where networks are sure to have no convolutions.
    """
    space = step.observation_space.spaces[name]
    is_of_numbers = isinstance(space, spaces.Box) and space.dtype != np.uint8
    is_of_numbers = is_of_numbers and (len(space.shape or ()) < 3 or _are_flat(networks))
    scaled = {block.in_keys[0] for block in networks if isinstance(block, ScalingBlock)}
    return is_of_numbers and name not in scaled and name not in step.masks.values()


def _undeclared_masks(step: StepSpec) -> Iterator[str]:
    """Yield a note on each observation that is called a mask, fits a head, and is not its mask."""
    for name, space in step.observation_space.spaces.items():
        if "mask" not in name.lower() or name in step.masks.values():
            continue
        for head, actions in step.action_space.spaces.items():
            is_choice = isinstance(actions, spaces.Discrete | spaces.MultiDiscrete)
            if is_choice and head not in step.masks and math.prod(space.shape or ()) == spaces.flatdim(actions):
                fact = f"the observation {name!r} has a number for each option of {head!r}, and is not its mask"
                option = f"action_masks of the data module (--data.action_masks '{{{head}: {name}}}')"
                yield f"{fact}: if it says which are allowed, set {option}"


def _wide_ranges(networks: Iterable[nn.Module], step: StepSpec) -> Iterator[str]:
    """Yield a note on each observation that a block divides by a wide range."""
    for block in networks:
        if not isinstance(block, ScalingBlock):
            continue
        name = block.in_keys[0]
        widest = block.scaling.widest
        if widest > _MOST_VALUES and name in step.observation_space.spaces:
            fact = f"the observation {name!r} is divided by the range of its space, {widest:,.0f}"
            option = f"kinds={{{name!r}: 'vector'}} of automatic networks (--model.networks.kinds.{name} vector)"
            yield f"{fact}: if its values are much smaller, narrow the bounds, or set {option}"


def _categories_as_numbers(step: StepSpec) -> Iterator[str]:
    """Yield a note on each category that a network reads as a number."""
    for name, space in step.observation_space.spaces.items():
        n = int(space.n) if isinstance(space, spaces.Discrete) else 0
        if isinstance(space, spaces.MultiDiscrete):
            n = int(space.nvec.max(initial=0))
        if n > 2:
            fact = f"the observation {name!r} has {n} categories, which the networks read as a number"
            yield f"{fact}: use automatic networks (--model.networks auto), which give each category an input"


def _bytes_as_numbers(step: StepSpec) -> Iterator[str]:
    """Yield a note on each observation of bytes that a network reads as they are."""
    for name, space in step.observation_space.spaces.items():
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
            continue
        highest = int(space.high.max(initial=0))
        if highest > _LARGEST_NUMBER and name not in step.masks.values():
            fact = f"the observation {name!r} has bytes up to {highest}"
            remedy = "use automatic networks (--model.networks auto), which do"
            yield f"{fact}, which the networks do not scale: {remedy}, with convolutions for images"


def _units_of_actions(head: str, space: spaces.Box) -> Iterator[str]:
    """Yield a note on actions whose bounds are far from those around 0 of size 1."""
    low, high = (np.asarray(bound, np.float64).ravel() for bound in (space.low, space.high))
    are_bounds = np.isfinite(low) & np.isfinite(high) & (low < high)
    low, high = low[are_bounds], high[are_bounds]
    half_width, centre = (high - low) / 2, (high + low) / 2
    is_far = (half_width > _LARGEST_UNIT) | (half_width < _SMALLEST_UNIT) | (np.abs(centre) > half_width)
    if is_far.any():
        first = is_far.argmax()
        bounds = f"[{low[first]:g}, {high[first]:g}]"
        fact = f"the actions {head!r} have bounds such as {bounds}, but begin around 0 with a standard deviation of 1"
        page = "docs/action_distributions.md#units-of-actions"
        remedy = f"use SquashedGaussianProbabilityDistribution ({page})"
        hindrance = unsuitable_bounds(space)
        yield f"{fact}: {remedy}; before that, {hindrance}" if hindrance else f"{fact}: {remedy}"
