"""Notes at the start of training on spaces with which policies learn slowly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from maze_pl.agents import TorchPolicy
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import PPO, SAC
from maze_pl.modules.notes import notes_on, notes_on_observations, say_before_training
from maze_pl.perception import (
    AutomaticModelComposer,
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)

VECTOR = spaces.Box(-1.0, 1.0, (3,))
UNBOUNDED: Any = {np.float32: (-np.inf, np.inf), np.int64: (np.iinfo(np.int64).min, np.iinfo(np.int64).max)}
SQUASHED = {"action_space": "gymnasium.spaces.Box", "distribution": "maze_pl.distributions.BetaProbabilityDistribution"}


def spec(action: spaces.Space[Any] | None = None, masks: Any = None, **observations: spaces.Space[Any]) -> Spec:
    seen, done = spaces.Dict(observations or {"x": VECTOR}), spaces.Dict({"a": action or spaces.Discrete(4)})
    return Spec({0: StepSpec(seen, done, masks=dict(masks or {}))})


def policy_of(of: Spec, **options: Any) -> TorchPolicy:
    policy: TorchPolicy = PPO(spec=of, networks=AutomaticModelComposer(**options)).policy
    return policy


def flat_policy_of(of: Spec) -> TorchPolicy:
    flat = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([FlattenConcatPolicyNet]),
        critic=SharedStateCriticComposer([FlattenConcatStateValueNet]),
    )
    policy: TorchPolicy = PPO(spec=of, networks=flat).policy
    return policy


def box(low: float, high: float) -> spaces.Box:
    return spaces.Box(low, high, (2,))


@pytest.mark.parametrize("bounds", [(0.0, 1000.0), (0.0, 0.01), (3.0, 4.0), (-1e9, 1e9)])
def test_actions_in_other_units_are_named_with_their_bounds(bounds: tuple[float, float]) -> None:
    (note,) = notes_on(policy_of(spec(box(*bounds))))
    assert f"the actions 'a' have bounds such as [{bounds[0]:g}, {bounds[1]:g}]" in note
    assert notes_on(policy_of(spec(box(*bounds)), distribution_mapper_config=[SQUASHED])) == []
    assert notes_on(SAC(spec=spec(box(*bounds))).policy) == []


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-2.0, 2.0), (0.0, 5.0), (-0.4, 0.4), (-np.inf, np.inf)])
def test_usual_actions_have_no_note(bounds: tuple[float, float]) -> None:
    assert notes_on(policy_of(spec(box(*bounds)))) == []


def test_components_that_cannot_be_squashed_are_named() -> None:
    def note_on(low: list[float], high: list[float]) -> str:
        (note,) = notes_on(policy_of(spec(spaces.Box(np.float32(low), np.float32(high)))))
        return note

    note = note_on([7, 0], [7, 500])
    remedy = (
        "use SquashedGaussianProbabilityDistribution (docs/action_distributions.md#units-of-actions); before that, "
    )
    assert "have bounds such as [0, 500]" in note
    assert note.endswith(f"{remedy}component [0] has the bounds [7.0, 7.0]; remove it from the action, as {NOTHING}")
    assert note_on([0, 0], [500, np.inf]).endswith(f"{remedy}component [1] has the bounds [0.0, inf]; {TWO_BOUNDS}")
    assert notes_on(policy_of(spec(spaces.Box(np.float32([7, -1]), np.float32([7, 1]))))) == []


NOTHING = "there is nothing to choose"
TWO_BOUNDS = "give each component two finite bounds"


def test_a_wide_range_of_integers_is_named() -> None:
    wide = spec(queue=spaces.Box(0, 1_000_000, (2,), np.int64), memory=spaces.Box(0, 255, (2,), np.uint8))
    (note,) = notes_on(policy_of(wide))
    assert "'queue' is divided by the range of its space, 1,000,000" in note
    assert "--model.networks.kinds.queue vector" in note
    assert notes_on(policy_of(wide, kinds={"queue": "vector"})) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_range_is_exact_in_any_precision(dtype: torch.dtype) -> None:
    policy = policy_of(spec(time=spaces.Box(0, 10**9, (2,), np.int64))).to(dtype)  # its inverse is 0 in float16
    (note,) = notes_on(policy)
    assert "'time' is divided by the range of its space, 1,000,000,000: if" in note
    assert "set kinds={'time': 'vector'} of automatic networks" in note


def test_categories_that_networks_read_as_numbers_are_named() -> None:
    categories = spec(place=spaces.Discrete(12), kinds=spaces.MultiDiscrete([2, 7]), coin=spaces.Discrete(2), x=VECTOR)
    notes = notes_on(flat_policy_of(categories))
    named = [note.partition(" categories")[0] for note in notes]
    assert named == ["the observation 'kinds' has 7", "the observation 'place' has 12"]
    assert notes_on(policy_of(categories)) == []


def test_bytes_that_networks_do_not_scale_are_named() -> None:
    of = spec(
        image=spaces.Box(0, 255, (20, 20, 3), np.uint8),
        memory=spaces.Box(0, 128, (4,), np.uint8),
        board=spaces.Box(0, 1, (3, 3, 2), np.uint8),
        mask=spaces.Box(0, 255, (4,), np.uint8),
        masks={"a": "mask"},
    )
    image, memory = notes_on(flat_policy_of(of))
    assert image.startswith("the observation 'image' has bytes up to 255, which the networks do not scale: use autom")
    assert "'memory' has bytes up to 128" in memory and "--model.networks auto" in memory
    assert notes_on(policy_of(of)) == []


@pytest.mark.parametrize("mask", [spaces.MultiBinary(4), spaces.Box(0, 1, (4,), np.int8)])
def test_an_observation_that_may_be_a_mask_is_named(mask: spaces.Space[Any]) -> None:
    (note,) = notes_on(policy_of(spec(x=VECTOR, action_mask=mask)))
    assert "set action_masks of the data module (--data.action_masks '{a: action_mask}')" in note
    assert notes_on(policy_of(spec(x=VECTOR, action_mask=mask, masks={"a": "action_mask"}))) == []
    assert notes_on(policy_of(spec(spaces.Discrete(5), x=VECTOR, action_mask=mask))) == []


def test_notes_are_printed_after_the_networks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        say_before_training(policy_of(spec(box(0.0, 1000.0))), "class_path: some.Composer")
    first, second = caplog.messages
    assert first.endswith("class_path: some.Composer") and second.startswith("note: the actions 'a'")


def sample_of(**observations: Any) -> ObservationSample:
    sample = ObservationSample()
    sample.add(0, {name: np.asarray(values) for name, values in observations.items()})
    return sample


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_large_observations_are_named_with_their_size(dtype: Any) -> None:
    large = spec(tank=spaces.Box(*UNBOUNDED[dtype], (2,), dtype), small=VECTOR)
    sample = sample_of(tank=np.full((8, 2), [3, 101_325], dtype), small=np.ones((8, 3), np.float32))
    (note,) = notes_on_observations(policy_of(large), sample)
    assert note.startswith(
        "the observation 'tank' has numbers of the size of 101,325, with which networks hardly learn"
    )


def test_large_images_are_named_if_networks_have_no_convolutions() -> None:
    images = spec(image=spaces.Box(0.0, 255.0, (12, 12, 3)))
    sample = sample_of(image=np.full((8, 64), 200.0))
    (note,) = notes_on_observations(flat_policy_of(images), sample)
    assert note.startswith("the observation 'image' has numbers of the size of 200")
    assert notes_on_observations(policy_of(images), sample) == []


def test_observations_that_are_small_scaled_or_masks_have_no_note() -> None:
    quiet = spec(
        queue=spaces.Box(0, 10_000, (2,), np.int64),
        image=spaces.Box(0, 255, (20, 20), np.uint8),
        mask=spaces.Box(0, 1000, (4,)),
        hundred=spaces.Box(-np.inf, np.inf, (1,)),
        masks={"a": "mask"},
    )
    sample = sample_of(queue=np.full((8, 2), 9000), image=np.full((8, 64), 255), mask=np.full((8, 4), 999.0))
    sample.add(0, {"hundred": np.full((8, 1), 100.0)})
    assert notes_on_observations(policy_of(quiet), sample) == []
