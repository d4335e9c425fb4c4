"""Networks that are chosen from spaces: what goes in, and the configuration that says the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from torch import nn

from maze_pl.agents import (
    StateCritic,
    TorchActorCritic,
    TorchDeltaStateCritic,
    TorchSharedStateActionCritic,
    TorchSharedStateCritic,
    TorchStateActionCritic,
    TorchStepStateActionCritic,
    TorchStepStateCritic,
)
from maze_pl.config.factories import Factory
from maze_pl.core.class_path import import_object
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.distributions import (
    BetaProbabilityDistribution,
    CategoricalProbabilityDistribution,
    DiagonalGaussianProbabilityDistribution,
)
from maze_pl.modules import PPO, SAC
from maze_pl.perception import AutomaticModelComposer
from maze_pl.perception.models.automatic_model_composer import as_yaml

SQUASHED = [
    {
        "action_space": "gymnasium.spaces.Box",
        "distribution": "maze_pl.distributions.SquashedGaussianProbabilityDistribution",
    }
]
EVERYTHING = spaces.Dict(
    {
        "bits": spaces.MultiBinary([2, 2]),
        "board": spaces.Box(0, 3, (5, 5, 2), np.int8),
        "camera": spaces.Box(0, 255, (3, 40, 40), np.uint8),
        "counts": spaces.Box(0, 9, (3,), np.int64),
        "kind": spaces.Discrete(3, start=-1),
        "mask": spaces.MultiBinary(4),
        "pair": spaces.MultiDiscrete([2, 3], start=[5, 0]),
        "pieces": spaces.Box(-1.0, 1.0, (6, 2)),
        "scalar": spaces.Box(0.0, 1.0, ()),
        "speed": spaces.Box(-np.inf, np.inf, (2,)),
        "view": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    }
)
CHOICE = spaces.Dict({"choice": spaces.Discrete(4), "force": spaces.Box(-1.0, 1.0, (2,))})
FULL = Spec({0: StepSpec(EVERYTHING, CHOICE, masks={"choice": "mask"})})
NEEDS: dict[str, dict[str, Any]] = {
    "none": {},
    "state": {"critic_type": StateCritic},
    "state_action": {"critic_type": TorchStateActionCritic, "distributions": SQUASHED},
}


def step(actions: Any = 2, masks: dict[str, str] | None = None, **observations: spaces.Space[Any]) -> StepSpec:
    return StepSpec(spaces.Dict(observations), spaces.Dict({"action": spaces.Discrete(actions)}), masks=masks or {})


def sampled(space: spaces.Dict, n: int = 3) -> dict[str, torch.Tensor]:
    space.seed(0)
    return {name: torch.as_tensor(np.stack([part.sample() for _ in range(n)])) for name, part in space.items()}


def same(first: TorchActorCritic, second: TorchActorCritic) -> bool:
    weights, expected = first.state_dict(), second.state_dict()
    return weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)


@pytest.mark.parametrize("needs", NEEDS)
def test_the_printed_yaml_makes_the_same_networks_bit_for_bit(needs: str) -> None:
    torch.manual_seed(3)
    automatic = AutomaticModelComposer().compose(FULL, **NEEDS[needs])
    text = as_yaml(AutomaticModelComposer().describe(FULL, **NEEDS[needs]))
    torch.manual_seed(3)
    configured = Factory.of(yaml.safe_load(text))().compose(FULL)
    assert same(automatic, configured)
    assert repr(automatic) == repr(configured)
    batch = sampled(EVERYTHING)
    batch["mask"][:] = 1
    first, second = (networks.policy.distribution(0, batch) for networks in (automatic, configured))
    for head in CHOICE:
        assert type(first.distributions[head]) is type(second.distributions[head])
        assert torch.equal(first.distributions[head].logits, second.distributions[head].logits)


def test_every_observation_but_masks_changes_the_output() -> None:
    networks = AutomaticModelComposer().compose(FULL, StateCritic)
    assert isinstance(networks.critic, StateCritic)
    batch, other = sampled(EVERYTHING, 1), {}
    for name, space in EVERYTHING.spaces.items():
        value = space.sample()
        while np.array_equal(value, batch[name][0].numpy()):
            value = space.sample()
        other[name] = torch.as_tensor(np.stack([value]))
    before = networks.critic.value(0, batch)
    for name in EVERYTHING:
        after = networks.critic.value(0, {**batch, name: other[name]})
        assert torch.equal(before, after) == (name == "mask"), name


@pytest.mark.parametrize("critic_type", [StateCritic, TorchStateActionCritic])
def test_omitted_observations_are_not_read_also_with_the_printed_yaml(critic_type: type) -> None:
    observations = {"clock": spaces.Box(0, 9, (), np.int64), "nothing": spaces.Box(0.0, 1.0, (0,)), "view": VECTOR}
    spec = Spec({"first": step(**observations), "second": step(view=VECTOR)})
    composer = AutomaticModelComposer(kinds={"clock": "omitted"})
    torch.manual_seed(0)
    networks = composer.compose(spec, critic_type)
    assert all(network.in_keys == ["view"] for children in networks.policy.networks for network in children)
    description = yaml.safe_load(as_yaml(composer.describe(spec, critic_type)))
    mapping = description["init_args"]["model_builder"]["init_args"]["observation_modality_mapping"]
    assert mapping == {"clock": None, "nothing": None, "view": "vector"}
    torch.manual_seed(0)
    assert same(networks, Factory.of(description)().compose(spec))


def test_a_mask_is_an_input_if_it_is_asked_for_or_the_only_observation() -> None:
    asked = AutomaticModelComposer(kinds={"mask": "vector"}).compose(FULL)
    assert "mask" in asked.policy.networks[0][0].in_keys
    only = Spec({0: step(3, masks={"action": "allowed"}, allowed=spaces.MultiBinary(3))})
    assert AutomaticModelComposer().compose(only).policy.networks[0][0].in_keys == ["allowed"]


def test_bytes_and_integers_arrive_between_0_and_1() -> None:
    spec = Spec({0: step(memory=spaces.Box(0, 255, (2,), np.uint8), level=spaces.Box(-2, 8, (), np.int16))})
    networks = AutomaticModelComposer().compose(spec)
    seen: list[torch.Tensor] = []
    hidden = networks.policy.networks[0][0].perception_blocks["hidden"]
    hidden.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]["concat"]))
    networks.policy.act_on({"memory": np.array([0, 51], np.uint8), "level": np.array(3, np.int16)})
    assert list(spec.steps[0].observation_space) == ["level", "memory"]
    torch.testing.assert_close(seen[-1], torch.tensor([[0.5, 0.0, 0.2]]))


def test_layouts_of_images_are_equivalent() -> None:
    """The same image in both layouts, and as floats, gives the same output of the same weights."""
    first = Spec({0: step(view=spaces.Box(0, 255, (3, 9, 8), np.uint8))})
    last = Spec({0: step(view=spaces.Box(0, 255, (9, 8, 3), np.uint8))})
    floats = Spec({0: step(view=spaces.Box(0.0, 1.0, (9, 8, 3)))})
    image = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
    outputs = []
    for spec, view in (
        (first, image.transpose(2, 0, 1)),
        (last, image),
        (floats, image.astype(np.float32) / np.float32(255)),
    ):
        torch.manual_seed(0)
        networks = AutomaticModelComposer().compose(spec)
        batch = {"view": torch.as_tensor(np.ascontiguousarray(view))[None]}
        outputs.append(networks.policy.distribution(0, batch).distributions["action"].logits)
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])
    assert outputs[0].abs().min() > 0


def test_a_policy_tells_the_rows_of_a_table_apart() -> None:
    spec = Spec({0: step(4, jobs=spaces.Box(-1.0, 1.0, (4, 2)))})
    policy = AutomaticModelComposer().compose(spec).policy
    rows = torch.rand(1, 4, 2)
    logits, reversed_logits = (
        policy.distribution(0, {"jobs": each}).distributions["action"].logits for each in (rows, rows.flip(1))
    )
    assert not torch.allclose(logits, reversed_logits)


def test_rows_of_a_set_have_no_order() -> None:
    spec = Spec({0: step(pieces=spaces.Box(-1.0, 1.0, (4, 2)))})
    critic = AutomaticModelComposer(kinds={"pieces": "set"}).compose(spec, StateCritic).critic
    assert isinstance(critic, StateCritic)
    rows = torch.rand(1, 4, 2)
    torch.testing.assert_close(critic.value(0, {"pieces": rows}), critic.value(0, {"pieces": rows.flip(1)}))
    assert not torch.allclose(critic.value(0, {"pieces": rows}), critic.value(0, {"pieces": rows.flip(2)}))


VECTOR, LONGER = spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-1.0, 1.0, (5,))
PLAN_AND_WORK = Spec({"plan": step(view=VECTOR), "work": step(3, view=VECTOR)})
DIFFERENT = Spec({"plan": step(view=VECTOR), "work": step(3, view=LONGER)})
FLAT = Spec({0: step(view=VECTOR)})


@pytest.mark.parametrize(
    ("spec", "critic_type", "kind", "expected"),
    [
        (FLAT, object, "auto", type(None)),
        (FLAT, StateCritic, "auto", TorchSharedStateCritic),
        (FLAT, TorchStateActionCritic, "auto", TorchSharedStateActionCritic),
        (PLAN_AND_WORK, StateCritic, "auto", TorchSharedStateCritic),
        (PLAN_AND_WORK, StateCritic, "step", TorchStepStateCritic),
        (PLAN_AND_WORK, StateCritic, "delta", TorchDeltaStateCritic),
        (PLAN_AND_WORK, TorchDeltaStateCritic, "auto", TorchDeltaStateCritic),
        (PLAN_AND_WORK, TorchStateActionCritic, "auto", TorchSharedStateActionCritic),
        (PLAN_AND_WORK, TorchStateActionCritic, "step", TorchStepStateActionCritic),
        (DIFFERENT, StateCritic, "auto", TorchStepStateCritic),
        (DIFFERENT, TorchStateActionCritic, "auto", TorchStepStateActionCritic),
    ],
)
def test_the_critic_follows_from_what_the_algorithm_needs(
    spec: Spec, critic_type: type, kind: Any, expected: type
) -> None:
    networks = AutomaticModelComposer(critic=kind).compose(spec, critic_type)
    assert type(networks.critic) is expected
    assert networks.policy.spec is spec


@pytest.mark.parametrize(("critic_type", "kind"), [(TorchStateActionCritic, "delta"), (int, "auto")])
def test_a_critic_that_does_not_exist_is_refused(critic_type: type, kind: Any) -> None:
    with pytest.raises(ValueError, match=f"no {kind} critic is a {critic_type.__name__} for these sub-steps"):
        AutomaticModelComposer(critic=kind).compose(FLAT, critic_type)


def test_a_shared_critic_that_cannot_be_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="no shared critic is a StateCritic for these sub-steps: observation 'view'"):
        AutomaticModelComposer(critic="shared").compose(DIFFERENT, StateCritic)


def test_sizes_follow_from_the_critic_and_can_be_said() -> None:
    def hidden(composer: AutomaticModelComposer, critic_type: type) -> Any:
        description = composer.describe(FLAT, critic_type)
        return description["init_args"]["model_builder"]["init_args"]["modality_config"]["hidden"]

    tanh = {"hidden_units": [64, 64], "non_lin": "torch.nn.Tanh"}
    assert hidden(AutomaticModelComposer(), StateCritic)["block_params"] == tanh
    relu = {"hidden_units": [256, 256], "non_lin": "torch.nn.ReLU"}
    assert hidden(AutomaticModelComposer(), TorchStateActionCritic)["block_params"] == relu
    said = AutomaticModelComposer([8], torch.nn.SELU)
    assert hidden(said, StateCritic)["block_params"]["hidden_units"] == [8]
    assert said.compose(FLAT).policy.networks[0][0].perception_blocks["hidden"].net[1].__class__ is torch.nn.SELU
    assert hidden(AutomaticModelComposer([]), StateCritic) == {}
    assert "hidden" not in AutomaticModelComposer([]).compose(FLAT).policy.networks[0][0].block_names


def test_distributions_of_the_algorithm_come_before_those_that_are_said() -> None:
    def config(spec: Spec, said: Any = None) -> Any:
        composer = AutomaticModelComposer(distribution_mapper_config=said)
        return composer.describe(spec, distributions=SQUASHED)["init_args"]["distribution_mapper_config"]

    assert config(FLAT) == []  # there is no box
    beta = {"action_head": "force", "distribution": "maze_pl.distributions.BetaProbabilityDistribution"}
    assert config(FULL, [beta]) == [*SQUASHED, beta]
    networks = AutomaticModelComposer(distribution_mapper_config=[beta]).compose(FULL, distributions=SQUASHED)
    batch = sampled(EVERYTHING)
    batch["mask"][:] = 1
    force = networks.policy.distribution(0, batch).distributions["force"]
    assert type(force).__name__ == "BetaProbabilityDistribution"


LIMITED = {"type": "state_dependent", "log_std_bounds": [-20.0, 2.0]}


@pytest.mark.parametrize("target", [{"action_head": "force"}, {"action_space": spaces.Box}])
def test_entries_of_gaussians_keep_the_exploration_of_the_algorithm(target: Any) -> None:
    entry = {**target, "distribution": DiagonalGaussianProbabilityDistribution}

    def said(entry: dict[str, Any]) -> Any:
        composer = AutomaticModelComposer(distribution_mapper_config=[entry])
        return composer.describe(FULL, distributions=[{**SQUASHED[0], "exploration": LIMITED}])["init_args"]

    assert said(entry)["distribution_mapper_config"][1]["exploration"] == LIMITED
    assert "exploration" not in entry, "the given one is not changed"
    for own in ({"type": "state_dependent"}, {"type": "gsde"}):
        assert said({**entry, "exploration": own})["distribution_mapper_config"][1]["exploration"] == own
    for other in ({**target, "distribution": BetaProbabilityDistribution}, CATEGORICAL):
        assert "exploration" not in said(other)["distribution_mapper_config"][1]


CATEGORICAL = {"action_head": "choice", "distribution": CategoricalProbabilityDistribution}


def test_the_limits_of_sac_hold_for_heads_that_are_configured() -> None:
    trim = spaces.Dict(trim=spaces.Box(-np.inf, np.inf, (1,)))
    spec = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-1.0, 1.0, (2,))), trim)})
    config = [{"action_head": "trim", "distribution": DiagonalGaussianProbabilityDistribution}]
    policy = SAC(spec=spec, networks=AutomaticModelComposer([4], distribution_mapper_config=config)).policy
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.fill_(1e3)
    assert policy.distribution(0, {"x": torch.ones(1, 2)}).distributions["trim"].log_std.item() == 2.0


def test_unknown_observations_and_observations_without_content_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kinds names \['camera'\]; the observations are \['view'\]"):
        AutomaticModelComposer(kinds={"camera": "omitted"}).compose(FLAT)
    with pytest.raises(ValueError, match="sub-step 0 has no observation for its networks"):
        AutomaticModelComposer(kinds={"view": "omitted"}).compose(FLAT)


class Halved(nn.Module):
    """An activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def test_classes_may_be_given_in_place_of_their_paths() -> None:
    class Local(BetaProbabilityDistribution):
        """A distribution that cannot be imported."""

    given = AutomaticModelComposer(
        hidden_units=list(np.array([8, 8])),
        non_lin=Halved,
        distribution_mapper_config=[{"action_space": spaces.Box, "distribution": BetaProbabilityDistribution}],
    )
    module = PPO(spec=FULL, networks=given)
    assert module.policy.distribution_classes(0)["force"] is BetaProbabilityDistribution
    (entry,) = yaml.safe_load(module.chosen_networks or "")["init_args"]["distribution_mapper_config"]
    for name, path in {"action_space": spaces.Box, "distribution": BetaProbabilityDistribution}.items():
        assert import_object(entry[name]) is path
    torch.manual_seed(3)
    automatic = given.compose(FULL)
    torch.manual_seed(3)
    assert same(automatic, Factory.of(given.describe(FULL))().compose(FULL))
    local = AutomaticModelComposer(distribution_mapper_config=[{"action_head": "force", "distribution": Local}])
    assert local.compose(FULL).policy.distribution_classes(0)["force"] is Local
    assert "Local" in as_yaml(local.describe(FULL))
