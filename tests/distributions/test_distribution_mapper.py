from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium import spaces

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    BernoulliProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
    DistributionMapper,
    MultiCategoricalProbabilityDistribution,
    distribution_mappers,
)

CATEGORICAL = "maze_pl.distributions.categorical_probability_distribution.CategoricalProbabilityDistribution"
HEADS = spaces.Dict(
    {
        "move": spaces.Discrete(4, start=1),
        "use": spaces.MultiBinary(3),
        "pick": spaces.MultiDiscrete([2, 5]),
        "steer": spaces.Box(-1.0, 1.0, (2,)),
    }
)


class SharpCategorical(CategoricalProbabilityDistribution):
    """A user's own distribution."""


class OtherCategorical(CategoricalProbabilityDistribution):
    """Another one."""


def kinds(mapper: DistributionMapper) -> dict[str, type[Any]]:
    logits = {head: torch.zeros(2, *shape) for head, shape in mapper.logits_shapes.items()}
    joint = mapper.logits_dict_to_distribution(logits)
    return {head: type(distribution) for head, distribution in joint.distributions.items()}


def test_defaults_and_logits_shapes_by_space():
    mapper = DistributionMapper(HEADS)
    assert mapper.logits_shapes == {"move": (4,), "use": (3,), "pick": (7,), "steer": (4,)}
    assert mapper.required_logits_shape("pick") == (7,)
    assert kinds(mapper) == {
        "move": CategoricalProbabilityDistribution,
        "use": BernoulliProbabilityDistribution,
        "pick": MultiCategoricalProbabilityDistribution,
        "steer": DiagonalGaussianProbabilityDistribution,
    }


def test_samples_lie_in_the_action_space():
    mapper = DistributionMapper(spaces.Dict({"move": HEADS["move"], "pick": HEADS["pick"]}))
    joint = mapper.logits_dict_to_distribution({"move": torch.zeros(4), "pick": torch.zeros(7)})
    sample = {head: value.numpy() for head, value in joint.sample().items()}
    assert mapper.action_space.contains(sample)


def test_an_empty_dict_is_an_empty_configuration():
    assert DistributionMapper(HEADS, {}).logits_shapes == DistributionMapper(HEADS, []).logits_shapes  # type: ignore[arg-type]


def test_the_last_override_that_fits_counts():
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)})
    general: dict[str, Any] = {"action_space": "gymnasium.spaces.Discrete", "distribution": SharpCategorical}
    special: dict[str, Any] = {"action_head": "b", "distribution": OtherCategorical}
    assert kinds(DistributionMapper(space, [general, special])) == {"a": SharpCategorical, "b": OtherCategorical}
    assert kinds(DistributionMapper(space, [special, general])) == {"a": SharpCategorical, "b": SharpCategorical}


def test_distributions_are_named_by_class_path():
    config = [{"action_space": "gymnasium.spaces.Discrete", "distribution": CATEGORICAL}]
    assert kinds(DistributionMapper(HEADS, config))["move"] is CategoricalProbabilityDistribution


def test_classes_stand_in_for_their_paths():
    config = [{"action_space": spaces.Discrete, "distribution": SharpCategorical}]
    assert kinds(DistributionMapper(HEADS, config))["move"] is SharpCategorical


def test_an_override_for_a_space_that_no_head_has_does_nothing():
    config = [{"action_space": "gymnasium.spaces.Discrete", "distribution": CATEGORICAL}]
    assert kinds(DistributionMapper(spaces.Dict({"use": HEADS["use"]}), config)) == {
        "use": BernoulliProbabilityDistribution
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"action_head": "mov", "distribution": CATEGORICAL}, "unknown action_head 'mov'; heads: .*'move'"),
        ({"action_space": "gymnasium.spaces.Discret", "distribution": CATEGORICAL}, "action_space: cannot import"),
        ({"action_space": "Discrete", "distribution": CATEGORICAL}, "action_space: cannot import"),
        ({"action_space": "torch.nn.Linear", "distribution": CATEGORICAL}, "is not a subclass of Space"),
        ({"action_head": "move", "distribution": "no.such.Distribution"}, "distribution: cannot import"),
        ({"action_head": "move", "distribution": "torch.nn.Linear"}, "is not a subclass of ProbabilityDistribution"),
        ({"action_head": "move"}, "needs `distribution` and"),
        ({"distribution": CATEGORICAL}, "needs `distribution` and"),
        ({"action_head": "move", "distribution": CATEGORICAL, "extra": 1}, "needs `distribution` and"),
    ],
)
def test_wrong_overrides_are_refused(entry, message):
    with pytest.raises(ValueError, match=message):
        DistributionMapper(HEADS, [entry])


def test_a_distribution_that_does_not_fit_names_head_and_space():
    with pytest.raises(TypeError, match=r"action head 'steer' with space Box.*needs a Discrete"):
        DistributionMapper(HEADS, [{"action_head": "steer", "distribution": CATEGORICAL}])


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Dict({"a": spaces.Discrete(2)})])
def test_a_space_without_distribution_names_head_and_space(space):
    with pytest.raises(TypeError, match="no distribution fits action head 'odd'"):
        DistributionMapper(spaces.Dict({"odd": space}))


def test_integer_boxes_are_refused():
    with pytest.raises(TypeError, match=r"action head 'level'.*Box space of floats"):
        DistributionMapper(spaces.Dict({"level": spaces.Box(0, 9, (2,), dtype=int)}))  # type: ignore[arg-type]


def test_multi_discrete_with_a_start_is_refused():
    with pytest.raises(TypeError, match="subtract the start"):
        DistributionMapper(spaces.Dict({"pick": spaces.MultiDiscrete([2, 2], start=[1, 1])}))


def test_unknown_heads_are_refused_when_asked_for():
    with pytest.raises(ValueError, match="unknown action head 'fly'"):
        DistributionMapper(HEADS).required_logits_shape("fly")


def test_masks_must_belong_to_heads_that_can_be_masked():
    with pytest.raises(ValueError, match=r"action head 'steer' has a DiagonalGaussian.*cannot be masked"):
        DistributionMapper(HEADS, masks={"steer": "steer_mask"})


def test_masks_and_temperature_reach_the_heads():
    mapper = DistributionMapper(spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Discrete(2)}), masks={"a": "mask"})
    logits = {"a": torch.zeros(1, 3), "b": torch.tensor([[0.0, math.log(9.0)]])}
    joint = mapper.logits_dict_to_distribution(logits, temperature=2.0, masks={"a": torch.tensor([[1, 0, 0]])})
    action = {"a": torch.tensor([0]), "b": torch.tensor([1])}
    assert joint.log_prob(action).item() == pytest.approx(math.log(0.75))


def test_one_configuration_serves_sub_steps_with_different_heads():
    heads = {0: spaces.Dict({"a": spaces.Discrete(2)}), "next": spaces.Dict({"b": spaces.Discrete(3)})}
    spec = Spec({key: StepSpec(spaces.Dict({"x": spaces.Discrete(2)}), space) for key, space in heads.items()})
    mappers = distribution_mappers(spec, [{"action_head": "b", "distribution": SharpCategorical}])
    assert kinds(mappers[0]) == {"a": CategoricalProbabilityDistribution}
    assert kinds(mappers["next"]) == {"b": SharpCategorical}
    with pytest.raises(ValueError, match="unknown action_head 'c'"):
        distribution_mappers(spec, [{"action_head": "c", "distribution": SharpCategorical}])
