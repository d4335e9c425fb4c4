"""Composers: what networks are given, what is refused, and composition from YAML."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from jsonargparse import ArgumentParser
from torch import nn

from maze_pl.agents import TorchActorCritic, TorchSharedStateCritic, TorchStepStateCritic
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StateCriticComposer,
    StateCriticComposerInterface,
    StepStateCriticComposer,
)

CONFIGS = Path(__file__).parents[3] / "configs"
FLAT = Spec(
    {
        0: StepSpec(
            spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (4,))}), spaces.Dict({"action": spaces.Discrete(2)})
        )
    }
)
STRUCTURED = Spec(
    {
        0: StepSpec(
            spaces.Dict({"stock": spaces.Box(0.0, 1.0, (3, 2), np.float64), "order": spaces.Box(0.0, 1.0, (2,))}),
            spaces.Dict({"pick": spaces.Discrete(3)}),
        ),
        "cut": StepSpec(
            spaces.Dict({"order": spaces.Box(0.0, 1.0, (2,)), "kind": spaces.Discrete(5)}),
            spaces.Dict({"rotate": spaces.Discrete(2), "order": spaces.MultiBinary(2)}),
            n_agents=2,
            n_slots=2,
        ),
    }
)
POLICY = partial(FlattenConcatPolicyNet, hidden_units=[8])
VALUE = partial(FlattenConcatStateValueNet, hidden_units=[8])


class Recorder(nn.Module):
    """Remembers what it was made with."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any = None, width: int = 1) -> None:
        super().__init__()
        self.made_with = obs_shapes, action_logits_shapes
        self.outputs = action_logits_shapes or {"value": (1,)}
        self.width = width
        self.seen: dict[str, torch.Tensor] = {}

    def forward(self, in_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.seen = in_dict
        n = len(next(iter(in_dict.values())))
        return {name: torch.zeros(n, *shape) for name, shape in self.outputs.items()}


class WrongKeys(Recorder):
    def forward(self, in_dict):
        return {"wrong": torch.zeros(2, 1)}


class WrongShape(Recorder):
    def forward(self, in_dict):
        return {name: tensor.new_zeros(2, 7) for name, tensor in super().forward(in_dict).items()}


class NoDict(Recorder):
    def forward(self, in_dict):
        return torch.zeros(2, 1)


class NoTensor(Recorder):
    def forward(self, in_dict):
        return dict.fromkeys(self.outputs, 0.0)


class Rounding(Recorder):
    def forward(self, in_dict):
        return {name: output.long() for name, output in super().forward(in_dict).items()}


class MoreKeys(Recorder):
    def forward(self, in_dict):
        return {**super().forward(in_dict), "value": torch.zeros(2, 1)}


class MixedKeys(Recorder):
    def forward(self, in_dict):
        return {1: torch.zeros(2, 1), "action": torch.zeros(2, 2)}


class FailsWhenMade(Recorder):
    def __init__(self, obs_shapes: Any, action_logits_shapes: Any = None) -> None:
        super().__init__({"picture": obs_shapes["picture"]}, action_logits_shapes)


class FailsWhenRun(Recorder):
    def forward(self, in_dict):
        return {"action": torch.zeros(2, 5) @ in_dict["observation"]}


class Carrying(Recorder):
    """Gives a state, of the right shape or a wrong one."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any = None, size: int = 3) -> None:
        super().__init__(obs_shapes, action_logits_shapes)
        self.state_shapes, self.size = {"memory": (3,)}, size

    def forward(self, in_dict):
        n = len(in_dict["observation"])
        return {"action": torch.zeros(n, 2), **({"memory": torch.zeros(n, self.size)} if self.size else {})}


class Normalised(nn.Module):
    """Learns statistics in its forward pass, and draws random numbers in training mode."""

    def __init__(self, obs_shapes: Any) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.LazyLinear(1)

    def forward(self, in_dict):
        return {"value": self.head(self.drop(self.norm(in_dict["observation"])))}


def test_composes_policy_and_critic_for_a_flat_environment():
    model = CustomModelComposer(ProbabilisticPolicyComposer([POLICY]), StateCriticComposer([VALUE])).compose(FLAT)
    assert isinstance(model, TorchActorCritic)
    assert isinstance(model.critic, TorchSharedStateCritic)
    observation = {"observation": torch.zeros(3, 4)}
    assert model.policy.distribution(0, observation).sample()["action"].shape == (3,)
    assert model.critic.value(0, observation).shape == (3,)


def test_a_critic_may_be_left_out():
    assert CustomModelComposer(ProbabilisticPolicyComposer([POLICY])).compose(FLAT).critic is None


def test_networks_get_shapes_as_tuples_and_their_own_arguments():
    composer = ProbabilisticPolicyComposer({0: partial(Recorder, width=3), "cut": Recorder})
    first, second = (networks[0] for networks in composer.compose(STRUCTURED).networks)
    assert first.made_with == ({"order": (2,), "stock": (3, 2)}, {"pick": (3,)})
    assert first.width == 3
    assert second.made_with == ({"kind": (), "order": (2,)}, {"order": (2,), "rotate": (2,)})


def test_the_trial_batch_has_the_types_of_the_spaces():
    network = ProbabilisticPolicyComposer([Recorder, Recorder]).compose(STRUCTURED).networks[1][0]
    assert {name: (tuple(x.shape), x.dtype) for name, x in network.seen.items()} == {
        "kind": ((2,), torch.int64),
        "order": ((2, 2), torch.float32),
    }


def test_one_class_in_a_list_makes_a_network_for_each_sub_step():
    model = CustomModelComposer(
        ProbabilisticPolicyComposer([POLICY]), StepStateCriticComposer([VALUE]), distribution_mapper_config=[]
    ).compose(STRUCTURED)
    assert isinstance(model.critic, TorchStepStateCritic)
    assert len(model.policy.networks) == len(model.critic.networks) == 2
    assert model.policy.networks[0][0] is not model.policy.networks[1][0]


def test_separate_agents_get_networks_of_their_own():
    policy = ProbabilisticPolicyComposer([POLICY], ["cut"]).compose(STRUCTURED)
    assert [len(networks) for networks in policy.networks] == [1, 2]
    first, second = policy.networks[1]
    assert not torch.equal(first.body[0].weight, second.body[0].weight)


def test_a_shared_critic_sees_all_observations_and_the_sub_step():
    network = SharedStateCriticComposer([Recorder]).compose(STRUCTURED).network
    assert network.made_with[0] == {"kind": (), "order": (2,), "step_key": (2,), "stock": (3, 2)}


def test_finished_networks_are_used_as_they_are():
    network = FlattenConcatPolicyNet({"observation": (4,)}, {"action": (2,)}, nn.Tanh, [3])
    assert ProbabilisticPolicyComposer([network]).compose(FLAT).networks[0][0] is network
    with pytest.raises(ValueError, match="cannot serve"):
        ProbabilisticPolicyComposer([network]).compose(STRUCTURED)
    with pytest.raises(ValueError, match="cannot serve 2 agents"):
        ProbabilisticPolicyComposer([Recorder, network], ["cut"]).compose(STRUCTURED)


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        (
            WrongKeys,
            ValueError,
            r"policy network of sub-step 0 \(WrongKeys\): forward returned the keys \['wrong'\], expec",
        ),
        (WrongShape, ValueError, r"output 'action' for a batch of 2 has shape \(2, 7\), expected \(2, 2\)"),
        (NoDict, TypeError, "forward returned a Tensor, expected a dict"),
        (NoTensor, TypeError, "is a float, expected a tensor of floats"),
        (
            Rounding,
            TypeError,
            r"'action' for a batch of 2 is a torch\.int64, expected a tensor of floats of shape \(2, 2\)",
        ),
        (lambda **shapes: "net", TypeError, r"returned a str, expected a torch\.nn\.Module"),
        (MoreKeys, ValueError, r"forward returned the keys \['action', 'value'\], expected \['action'\]"),
        (MixedKeys, ValueError, r"forward returned the keys \['1', 'action'\], expected \['action'\]"),
        (
            partial(Recorder, depth=3),
            ValueError,
            "^policy network of sub-step 0 cannot be made with obs_shapes, action_logits_shapes: TypeError: .*'depth'",
        ),
        (FailsWhenMade, ValueError, "^policy network of sub-step 0 cannot be made with .*: KeyError: 'picture'$"),
        (
            FailsWhenRun,
            ValueError,
            r"\(FailsWhenRun\): forward failed for the zeros {'observation': 'float32 \(2, 4\)'}: RuntimeError",
        ),
        (partial(Carrying, size=0), ValueError, r"returned the keys \['action'\], expected \['action', 'memory'\]"),
        (partial(Carrying, size=5), ValueError, r"'memory' for a batch of 2 has shape \(2, 5\), expected \(2, 3\)"),
    ],
)
def test_policy_networks_that_do_not_fit_are_refused(network, error, message):
    with pytest.raises(error, match=message):
        ProbabilisticPolicyComposer([network]).compose(FLAT)


def test_a_state_that_is_carried_is_expected_beside_the_heads():
    assert len(ProbabilisticPolicyComposer([Carrying]).compose(FLAT).networks) == 1


@pytest.mark.parametrize("composer", [SharedStateCriticComposer, StepStateCriticComposer])
def test_critic_networks_that_do_not_fit_are_refused(composer):
    with pytest.raises(ValueError, match=r"critic network.*output 'value' .* has shape \(2, 7\), expected \(2, 1\)"):
        composer([WrongShape]).compose(FLAT)


@pytest.mark.parametrize("networks", [[POLICY] * 3, {0: POLICY}, {0: POLICY, "cat": POLICY}, []])
def test_networks_must_be_one_for_each_sub_step(networks):
    with pytest.raises(ValueError, match=r"got .*networks for"):
        ProbabilisticPolicyComposer(networks).compose(STRUCTURED)


def test_shared_critics_have_one_network():
    with pytest.raises(ValueError, match="a shared critic has one network for all sub-steps, got 2"):
        SharedStateCriticComposer({0: VALUE, "cut": VALUE}).compose(STRUCTURED)


def test_unknown_sub_steps_with_separate_networks_are_refused():
    with pytest.raises(ValueError, match="unknown sub-step 'cat'"):
        ProbabilisticPolicyComposer([POLICY], ["cat"]).compose(STRUCTURED)


def test_trying_networks_changes_neither_statistics_nor_modes():
    critic = SharedStateCriticComposer([Normalised]).compose(FLAT)
    assert critic.network.norm.num_batches_tracked.item() == 0
    assert all(module.training for module in critic.modules())
    assert critic.network.head.weight.shape == (1, 4)


def test_weights_depend_on_the_global_generator_only():
    composer = CustomModelComposer(ProbabilisticPolicyComposer([POLICY]), StateCriticComposer([VALUE]))

    def weights(seed):
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(composer.compose(FLAT).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_distribution_overrides_reach_the_policy():
    heads = [{"action_head": "cut", "distribution": "maze_pl.distributions.CategoricalProbabilityDistribution"}]
    composer = CustomModelComposer(ProbabilisticPolicyComposer([POLICY]), distribution_mapper_config=heads)
    with pytest.raises(ValueError, match="unknown action_head 'cut'"):
        composer.compose(FLAT)


def from_yaml(kind: type[Any], *arguments: str) -> Any:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "networks")
    parsed = parser.parse_args(list(arguments))
    assert yaml.safe_load(parser.dump(parsed))["networks"]["class_path"]
    return parser.instantiate(parsed).networks


def test_the_shipped_model_is_composed_from_yaml():
    model = from_yaml(CustomModelComposer, f"--networks={CONFIGS}/model/flatten_concat.yaml").compose(FLAT)
    assert [tuple(layer.weight.shape) for layer in model.policy.networks[0][0].body if hasattr(layer, "weight")] == [
        (256, 4),
        (256, 256),
    ]
    assert isinstance(model.policy.networks[0][0].body[1], nn.Tanh)
    assert model.critic.kind == "shared"


def test_the_shipped_model_serves_structured_environments():
    model = from_yaml(CustomModelComposer, f"--networks={CONFIGS}/model/flatten_concat.yaml").compose(STRUCTURED)
    assert len(model.policy.networks) == 2


def test_values_in_yaml_can_be_overridden():
    model = from_yaml(
        CustomModelComposer,
        f"--networks={CONFIGS}/model/flatten_concat.yaml",
        "--networks.policy.networks.init_args.hidden_units=[8]",
        "--networks.policy.networks.init_args.non_lin=torch.nn.ReLU",
        "--networks.critic.networks.init_args.hidden_units=[4,4,4]",
    ).compose(FLAT)
    assert [type(layer) for layer in model.policy.networks[0][0].body] == [nn.Linear, nn.ReLU]
    assert len(model.critic.network.body) == 6


def test_the_shipped_critic_is_composed_from_yaml():
    critic = from_yaml(StateCriticComposerInterface, f"--networks={CONFIGS}/critic/flatten_concat_shared.yaml")
    assert critic.compose(FLAT).kind == "shared"


def test_the_shipped_critic_fits_into_the_shipped_model():
    model = from_yaml(
        CustomModelComposer,
        f"--networks={CONFIGS}/model/flatten_concat.yaml",
        f"--networks.critic={CONFIGS}/critic/flatten_concat_shared.yaml",
    ).compose(FLAT)
    assert model.critic.kind == "shared"


def test_networks_by_sub_step_are_composed_from_yaml(tmp_path):
    network = {"class_path": "maze_pl.perception.FlattenConcatPolicyNet", "init_args": {"hidden_units": [8]}}
    config = {
        "class_path": "maze_pl.perception.CustomModelComposer",
        "init_args": {
            "policy": {
                "class_path": "maze_pl.perception.ProbabilisticPolicyComposer",
                "init_args": {"networks": {0: network, "cut": network}, "substeps_with_separate_agent_nets": ["cut"]},
            },
            "critic": None,
            "distribution_mapper_config": [
                {
                    "action_space": "gymnasium.spaces.Discrete",
                    "distribution": "maze_pl.distributions.CategoricalProbabilityDistribution",
                }
            ],
        },
    }
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(config))
    model = from_yaml(CustomModelComposer, f"--networks={path}").compose(STRUCTURED)
    assert [len(networks) for networks in model.policy.networks] == [1, 2]


def test_misspelt_arguments_of_networks_are_refused(tmp_path):
    config = yaml.safe_load((CONFIGS / "model/flatten_concat.yaml").read_text())
    config["init_args"]["policy"]["init_args"]["networks"][0]["init_args"]["hidden_unit"] = [3]
    path = tmp_path / "model.yaml"
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(Exception, match="hidden_unit' is not accepted"):
        from_yaml(CustomModelComposer, f"--networks={path}")


@pytest.mark.parametrize("composer", [ProbabilisticPolicyComposer, SharedStateCriticComposer, StepStateCriticComposer])
def test_a_network_class_that_is_not_in_a_list_is_refused(composer: Any) -> None:
    expected = rf"must be a list, such as {composer.__name__}\(\[FlattenConcatPolicyNet\]\), or a dict by sub-step"
    with pytest.raises(TypeError, match=rf"{expected}, not FlattenConcatPolicyNet alone"):
        composer(FlattenConcatPolicyNet)
