"""Which distribution belongs to which action head: defaults by space, and the user's overrides."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.distributions.bernoulli import BernoulliProbabilityDistribution
from maze_pl.distributions.categorical import CategoricalProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.dict import DictProbabilityDistribution
from maze_pl.distributions.multi_categorical import MultiCategoricalProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution

DistributionMapperConfig = Sequence[Mapping[str, Any]]

_DEFAULTS: tuple[tuple[type[spaces.Space[Any]], type[ProbabilityDistribution]], ...] = (
    (spaces.Discrete, CategoricalProbabilityDistribution),
    (spaces.MultiDiscrete, MultiCategoricalProbabilityDistribution),
    (spaces.MultiBinary, BernoulliProbabilityDistribution),
    (spaces.Box, DiagonalGaussianProbabilityDistribution),
)


class DistributionMapper:
    """Chooses a distribution class for each head and makes the joint distribution from a network's outputs.

    Args:
        action_space: The heads of one sub-step.
        distribution_mapper_config: Overrides, each `{action_space: <class path>, distribution: <class path>}` for all
            heads with such a space, or `{action_head: <name>, distribution: <class path>}` for one head. Of several
            that fit a head the last one counts, so go from the general to the particular. Classes may stand in
            place of their paths.
        masks: Head -> name of the observation that masks it; used to refuse heads that cannot be masked.

    Raises:
        ValueError: An override is malformed or names an unknown head, space or distribution, or a mask belongs to an
            unknown head or one that cannot be masked.
        TypeError: No distribution fits the space of a head, or the one that was asked for does not.

    Example:
        >>> mapper = DistributionMapper(spaces.Dict({"my_action": spaces.Discrete(2)}))
        >>> mapper.required_logits_shape("my_action")
        (2,)
    """

    def __init__(
        self,
        action_space: spaces.Dict,
        distribution_mapper_config: DistributionMapperConfig | None = None,
        masks: Mapping[str, str] | None = None,
    ) -> None:
        self.action_space = action_space
        self.masks = dict(masks or {})
        self._heads: dict[str, tuple[type[ProbabilityDistribution], spaces.Space[Any]]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        overrides = [_parse_override(entry, action_space.spaces) for entry in distribution_mapper_config or ()]
        for head, space in action_space.spaces.items():
            distribution = _choose(head, space, overrides)
            self._heads[head] = distribution, space
            try:
                self._shapes[head] = distribution.required_logits_shape(space)
            except TypeError as error:
                raise TypeError(f"action head {head!r} with space {space}: {error}") from error
        for head in self.masks:
            if head not in self._heads:
                raise ValueError(f"mask for unknown action head {head!r}; heads: {sorted(self._heads)}")
            if not self._heads[head][0].supports_mask:
                raise ValueError(f"action head {head!r} has a {self._heads[head][0].__name__}, which cannot be masked")

    @property
    def heads(self) -> dict[str, tuple[type[ProbabilityDistribution], spaces.Space[Any]]]:
        """Head -> class of its distribution, and its space."""
        return dict(self._heads)

    @property
    def logits_shapes(self) -> dict[str, tuple[int, ...]]:
        """Head -> shape of its logits, without batch dimensions."""
        return dict(self._shapes)

    def required_logits_shape(self, head: str) -> tuple[int, ...]:
        """Shape of the logits of one head, without batch dimensions.

        Raises:
            ValueError: There is no such head.
        """
        if head not in self._shapes:
            raise ValueError(f"unknown action head {head!r}; heads: {sorted(self._shapes)}")
        return self._shapes[head]

    def logits_dict_to_distribution(
        self, logits_dict: Mapping[str, Tensor], temperature: float = 1.0, masks: Mapping[str, Tensor] | None = None
    ) -> DictProbabilityDistribution:
        """Make the joint distribution of all heads.

        Args:
            logits_dict: Head -> [..., L] outputs of the policy network.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            masks: Head -> [..., L], nonzero where an entry is allowed; heads may be left out.
        """
        return DictProbabilityDistribution(
            {
                head: distribution(logits_dict[head], space, temperature, masks.get(head) if masks else None)
                for head, (distribution, space) in self._heads.items()
            }
        )


def distribution_mappers(
    action_spaces: Mapping[StepKey, spaces.Dict],
    distribution_mapper_config: DistributionMapperConfig | None = None,
    masks: Mapping[StepKey, Mapping[str, str]] | None = None,
) -> dict[StepKey, DistributionMapper]:
    """One mapper for each sub-step from a single configuration, in which a head may exist in some sub-steps only.

    Args:
        action_spaces: Sub-step -> its heads.
        distribution_mapper_config: Overrides for all sub-steps, see `DistributionMapper`.
        masks: Sub-step -> head -> observation.

    Raises:
        ValueError: An override names a head that no sub-step has; see `DistributionMapper` for the rest.
    """
    every_head = {head: space for step in action_spaces.values() for head, space in step.spaces.items()}
    config = list(distribution_mapper_config or ())
    for entry in config:
        _parse_override(entry, every_head)
    return {
        key: DistributionMapper(
            space,
            [entry for entry in config if "action_head" not in entry or entry["action_head"] in space.spaces],
            (masks or {}).get(key),
        )
        for key, space in action_spaces.items()
    }


Override = tuple[str | type[spaces.Space[Any]], type[ProbabilityDistribution]]


def _parse_override(entry: Mapping[str, Any], heads: Mapping[str, spaces.Space[Any]]) -> Override:
    keys = set(entry)
    if keys == {"action_head", "distribution"}:
        target: str | type[spaces.Space[Any]] = entry["action_head"]
        if target not in heads:
            raise ValueError(f"distribution_mapper_config: unknown action_head {target!r}; heads: {sorted(heads)}")
    elif keys == {"action_space", "distribution"}:
        target = _resolve("action_space", entry["action_space"], spaces.Space)
    else:
        raise ValueError(
            f"distribution_mapper_config: {dict(entry)} needs `distribution` and `action_space` or `action_head`"
        )
    return target, _resolve("distribution", entry["distribution"], ProbabilityDistribution)


def _resolve(what: str, path: str | type[Any], base: type[Any]) -> type[Any]:
    found: Any = path
    if isinstance(path, str):
        module, _, name = path.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"distribution_mapper_config: cannot import {what} {path!r}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"distribution_mapper_config: {what} {path!r} is not a subclass of {base.__name__}")
    return found


def _choose(head: str, space: spaces.Space[Any], overrides: Sequence[Override]) -> type[ProbabilityDistribution]:
    for target, distribution in reversed(overrides):
        if target == head if isinstance(target, str) else isinstance(space, target):
            return distribution
    for space_type, distribution in _DEFAULTS:
        if isinstance(space, space_type):
            return distribution
    known = ", ".join(space_type.__name__ for space_type, _ in _DEFAULTS)
    raise TypeError(f"no distribution fits action head {head!r} with space {space}; known spaces: {known}")
