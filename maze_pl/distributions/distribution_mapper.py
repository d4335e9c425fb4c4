"""Assignment of distributions to action heads: defaults by space, and the user's overrides."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_class
from maze_pl.core.spec import Spec
from maze_pl.distributions.bernoulli_probability_distribution import BernoulliProbabilityDistribution
from maze_pl.distributions.categorical_probability_distribution import CategoricalProbabilityDistribution
from maze_pl.distributions.diagonal_gaussian_probability_distribution import DiagonalGaussianProbabilityDistribution
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution
from maze_pl.distributions.exploration import Exploration
from maze_pl.distributions.multi_categorical_probability_distribution import MultiCategoricalProbabilityDistribution
from maze_pl.distributions.probability_distribution import ProbabilityDistribution
from maze_pl.distributions.result_shapes import require_shapes
from maze_pl.distributions.squashed_gaussian_probability_distribution import SquashedGaussianProbabilityDistribution

DistributionMapperConfig = Sequence[Mapping[str, Any]]

_CONFIG = "distribution_mapper_config"


class Override(NamedTuple):
    """An entry of the configuration.

    Attributes:
        target: Name of a head, or class of spaces.
        distribution: Class of the distribution.
        exploration: Options of its exploration; None if there are none.
    """

    target: str | type[spaces.Space[Any]]
    distribution: type[ProbabilityDistribution]
    exploration: Exploration | None = None


_DEFAULTS = (
    Override(spaces.Discrete, CategoricalProbabilityDistribution),
    Override(spaces.MultiDiscrete, MultiCategoricalProbabilityDistribution),
    Override(spaces.MultiBinary, BernoulliProbabilityDistribution),
    Override(spaces.Box, DiagonalGaussianProbabilityDistribution),
)
_GAUSSIAN = (DiagonalGaussianProbabilityDistribution, SquashedGaussianProbabilityDistribution)


class DistributionMapper:
    """Chooses a distribution class for each head, and makes joint distributions of logits.

    Args:
        action_space: The heads of one sub-step.
        distribution_mapper_config: Overrides, each
            `{action_space: <class path>, distribution: <class path>}` for all heads with such a
            space, or `{action_head: <name>, distribution: <class path>}` for one head. If several
            match a head, the last one applies, so list general overrides before specific ones.
            Classes may be given instead of their paths. For Gaussian distributions an entry may
            have options of their exploration, `exploration: {type: ...}`, see `Exploration`.
        masks: Head -> name of the observation that masks it; used to refuse heads that cannot be
            masked.

    Attributes:
        heads: Head -> class of its distribution, and its space.
        logits_shapes: Head -> shape of its logits, without batch dimensions.
        explorations: Head -> options of its exploration, for heads that have them.
        network_shapes: Head -> shape of what the network computes, without batch dimensions: the
            logits, or only means if the standard deviations are not outputs of the network.

    Raises:
        ValueError: An override is malformed or names an unknown head, space or distribution, a mask
            belongs to a head that cannot be masked, or a custom distribution returns wrong shapes.
        TypeError: No default distribution fits the space of a head, or the configured one does not.

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
        self.heads: dict[str, tuple[type[ProbabilityDistribution], spaces.Space[Any]]] = {}
        self.logits_shapes: dict[str, tuple[int, ...]] = {}
        self.explorations: dict[str, Exploration] = {}
        self.network_shapes: dict[str, tuple[int, ...]] = {}
        config = distribution_mapper_config or ()
        overrides = [_parse_override(entry, action_space.spaces) for entry in config]
        for head, space in action_space.spaces.items():
            distribution, exploration = _choose(head, space, overrides)
            self.heads[head] = (distribution, space)
            try:
                self.logits_shapes[head] = distribution.required_logits_shape(space)
            except TypeError as error:
                raise TypeError(f"action head {head!r} with space {space}: {error}") from error
            require_shapes(head, distribution, space)
            self.network_shapes[head] = self.logits_shapes[head]
            if exploration is not None:
                self.explorations[head] = exploration
                if exploration.type != "state_dependent":
                    self.network_shapes[head] = (self.logits_shapes[head][0] // 2,)
        for head in self.masks:
            distribution, _ = self.heads[head]
            if not distribution.supports_mask:
                found = f"action head {head!r} has a {distribution.__name__}"
                raise ValueError(f"{found}, which cannot be masked")

    def required_logits_shape(self, head: str) -> tuple[int, ...]:
        """Shape of the logits of one head, without batch dimensions.

        Raises:
            ValueError: There is no such head.
        """
        if head not in self.logits_shapes:
            raise ValueError(f"unknown action head {head!r}; heads: {sorted(self.logits_shapes)}")
        return self.logits_shapes[head]

    def logits_dict_to_distribution(
        self,
        logits_dict: Mapping[str, Tensor],
        temperature: float = 1.0,
        masks: Mapping[str, Tensor] | None = None,
    ) -> DictProbabilityDistribution:
        """Make the joint distribution of all heads.

        Args:
            logits_dict: Head -> [..., L] outputs of the policy network.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            masks: Head -> [..., L], nonzero where an entry is allowed; heads may be omitted.
        """
        parts = {}
        for head, (distribution, space) in self.heads.items():
            mask = None if masks is None else masks.get(head)
            parts[head] = distribution(logits_dict[head], space, temperature, mask)
        return DictProbabilityDistribution(parts)


def distribution_mappers(
    spec: Spec, distribution_mapper_config: DistributionMapperConfig | None = None
) -> dict[StepKey, DistributionMapper]:
    """Make one mapper per sub-step from one configuration; heads may exist in some sub-steps only.

    Args:
        spec: Sub-steps with their action heads and masks.
        distribution_mapper_config: Overrides for all sub-steps, see `DistributionMapper`.

    Raises:
        ValueError: An override names a head that no sub-step has; see `DistributionMapper` for
            other errors.
    """
    every_head = _every_head(spec)
    config = list(distribution_mapper_config or ())
    for entry in config:
        _parse_override(entry, every_head)
    mappers: dict[StepKey, DistributionMapper] = {}
    for key, step in spec.steps.items():
        targets = (None, *step.action_space)
        fitting = [entry for entry in config if entry.get("action_head") in targets]
        mappers[key] = DistributionMapper(step.action_space, fitting, step.masks)
    return mappers


def with_explorations(
    config: DistributionMapperConfig, defaults: DistributionMapperConfig, spec: Spec
) -> list[dict[str, Any]]:
    """Complete entries for Gaussian heads by the exploration that defaults have for their spaces.

    Args:
        config: Overrides, see `DistributionMapper`.
        defaults: Entries that these override.
        spec: Sub-steps with their action heads.

    Raises:
        ValueError: An override is malformed, or names an unknown head, space or distribution.
    """
    heads = _every_head(spec)
    explored = [(_parse_override(one, heads), one["exploration"]) for one in defaults if "exploration" in one]
    completed = []
    for entry in config:
        override = _parse_override(entry, heads)
        options = dict(entry)
        if "exploration" not in entry and issubclass(override.distribution, _GAUSSIAN):
            for default, exploration in explored:
                if _covers(default.target, override.target, heads):
                    options["exploration"] = exploration
        completed.append(options)
    return completed


def _covers(
    default: str | type[spaces.Space[Any]],
    target: str | type[spaces.Space[Any]],
    heads: Mapping[str, spaces.Space[Any]],
) -> bool:
    """True if a default is for all heads of an override's target."""
    if isinstance(default, str):
        return target == default
    return isinstance(heads[target], default) if isinstance(target, str) else issubclass(target, default)


def _every_head(spec: Spec) -> dict[str, spaces.Space[Any]]:
    """Return the heads of all sub-steps with their spaces."""
    every_head: dict[str, spaces.Space[Any]] = {}
    for step in spec.steps.values():
        every_head.update(step.action_space.spaces)
    return every_head


def _parse_override(entry: Mapping[str, Any], heads: Mapping[str, spaces.Space[Any]]) -> Override:
    keys = entry.keys() - {"exploration"}
    if keys not in ({"action_head", "distribution"}, {"action_space", "distribution"}):
        needed = "`distribution` and `action_space` or `action_head`"
        raise ValueError(f"{_CONFIG}: {dict(entry)} needs {needed}")
    where = f"{_CONFIG}: distribution: "
    distribution = import_class(entry["distribution"], ProbabilityDistribution, where)
    exploration = None
    if "exploration" in entry:
        exploration = Exploration.parse(entry["exploration"])
        if not issubclass(distribution, _GAUSSIAN):
            names = " or ".join(kind.__name__ for kind in _GAUSSIAN)
            raise ValueError(f"{_CONFIG}: a {distribution.__name__} has no exploration; only a {names} does")
    if "action_head" not in entry:
        space = import_class(entry["action_space"], spaces.Space, f"{_CONFIG}: action_space: ")
        return Override(space, distribution, exploration)
    head = entry["action_head"]
    if head not in heads:
        raise ValueError(f"{_CONFIG}: unknown action_head {head!r}; heads: {sorted(heads)}")
    return Override(head, distribution, exploration)


def _choose(
    head: str, space: spaces.Space[Any], overrides: Sequence[Override]
) -> tuple[type[ProbabilityDistribution], Exploration | None]:
    for target, distribution, exploration in (*reversed(overrides), *_DEFAULTS):
        is_named = isinstance(target, str) and target == head
        if is_named or (isinstance(target, type) and isinstance(space, target)):
            return distribution, exploration
    known = ", ".join(default.target.__name__ for default in _DEFAULTS if isinstance(default.target, type))
    found = f"action head {head!r} with space {space}"
    raise TypeError(f"no distribution fits {found}; known spaces: {known}")
