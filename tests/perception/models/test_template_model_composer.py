"""Templates as whole agents: sub-steps, critics, masks, what is shared and refused, YAML, and acting in NumPy."""

from __future__ import annotations

import copy
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

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.agents.network_io import state_shapes
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DeltaStateCriticComposer,
    FlattenConcatPolicyNet,
    FlattenConcatSharedStateValueNet,
    FlattenConcatStateValueNet,
    InferenceBlock,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StateCriticComposer,
    StepStateCriticComposer,
    TemplateModelComposer,
)

FEATURE = {"block_type": "maze_pl.perception.DenseBlock", "block_params": {"hidden_units": [8], "non_lin": nn.Tanh}}
FLAT = Spec(
    {0: StepSpec(spaces.Dict({"observation": spaces.Box(-1, 1, (4,))}), spaces.Dict({"action": spaces.Discrete(2)}))}
)


def structured(n_agents: int = 1) -> Spec:
    """Which piece, where masks rule some out, and how to cut it, with other observations and two heads."""
    stock, mask = spaces.Box(-1, 1, (6,)), spaces.Box(0, 1, (3,), np.int8)
    pick = StepSpec(
        spaces.Dict({"stock": stock, "mask": mask}), spaces.Dict({"pick": spaces.Discrete(3)}), masks={"pick": "mask"}
    )
    heads = spaces.Dict({"rotate": spaces.Discrete(2), "at": spaces.Box(0, 1, (2,))})
    cut = StepSpec(spaces.Dict({"piece": spaces.Box(-1, 1, (2,)), "stock": stock}), heads, n_agents, n_agents)
    return Spec({0: pick, "cut": cut})


def builder(shared: list[str] | None = None) -> ConcatModelBuilder:
    return ConcatModelBuilder({"feature": FEATURE}, {"stock": "feature", "piece": "feature"}, shared)


def compose(critic: Any, spec: Spec | None = None, shared: list[str] | None = None, **policy: Any) -> TorchActorCritic:
    torch.manual_seed(0)
    composer = TemplateModelComposer(builder(shared), ProbabilisticPolicyComposer(**policy), critic)
    return composer.compose(spec or structured())


def graphs(module: nn.Module | None) -> list[InferenceBlock]:
    assert module is not None
    return [child for child in module.modules() if isinstance(child, InferenceBlock)]


def test_each_sub_step_gets_a_graph_of_the_observations_that_it_has() -> None:
    networks = compose(StepStateCriticComposer())
    assert [(graph.in_keys, graph.out_keys) for graph in graphs(networks.policy)] == [
        (["stock"], ["pick"]),
        (["piece", "stock"], ["at", "rotate"]),
    ]
    assert [(graph.in_keys, graph.out_keys) for graph in graphs(networks.critic)] == [
        (["stock"], ["value"]),
        (["piece", "stock"], ["value"]),
    ]
    assert graphs(networks.policy)[1].out_shapes() == [(4,), (2,)]


def test_a_shared_critic_sees_the_observations_of_all_sub_steps_and_which_one_it_is() -> None:
    networks = compose(SharedStateCriticComposer())
    (graph,) = graphs(networks.critic)
    assert sorted(graph.in_keys) == ["piece", "step_key", "stock"]
    observation = {"stock": torch.randn(5, 6), "mask": torch.ones(5, 3)}
    assert networks.critic is not None
    value = networks.critic.value(0, observation)
    expected = graph(
        {"stock": observation["stock"], "piece": torch.zeros(5, 2), "step_key": torch.tensor([1.0, 0.0]).expand(5, 2)}
    )
    torch.testing.assert_close(value, expected["value"].squeeze(-1))


def test_masks_are_applied_by_the_policy_and_change_nothing_else() -> None:
    policy = compose(None).policy
    observation = {"stock": torch.randn(1, 6).expand(2, 6), "mask": torch.tensor([[1, 0, 1], [1, 1, 1]])}
    logits = policy.action_logits(0, observation)["pick"]
    torch.testing.assert_close(logits[0], logits[1])
    first, second = policy.distribution(0, observation).log_prob({"pick": torch.tensor([1, 1])}).exp()
    assert first == 0.0
    assert second > 0.2


@pytest.mark.parametrize("critic", [StepStateCriticComposer, DeltaStateCriticComposer])
def test_critics_of_each_sub_step_share_the_network_of_its_policy(critic: Any) -> None:
    networks = compose(critic(), shared=["latent"])
    for own, judge in zip(graphs(networks.policy), graphs(networks.critic), strict=True):
        names = [name for name in judge.block_names if name != "value"]
        assert len(names) == len(own.in_keys) + 1
        assert all(judge.perception_blocks[name] is own.perception_blocks[name] for name in names)


def shared_blocks(networks: TorchActorCritic) -> list[list[str]]:
    """For each sub-step, the names of the blocks that critic and policy share."""
    pairs = zip(graphs(networks.policy), graphs(networks.critic), strict=True)
    found = []
    for own, judge in pairs:
        blocks = own.perception_blocks
        found.append([name for name, block in judge.perception_blocks.items() if block is blocks.get(name)])
    return found


def test_sub_steps_may_share_different_blocks() -> None:
    of_cut = ["piece_DenseBlock", "stock_DenseBlock", "concat"]
    keys: Any
    for keys, expected in (
        ({0: ["stock_DenseBlock"], "cut": ["latent"]}, [["stock_DenseBlock"], of_cut]),
        ({"0": ["latent"], "cut": []}, [["stock_DenseBlock", "concat"], []]),
        ({"cut": ["piece_DenseBlock"]}, [[], ["piece_DenseBlock"]]),
        ({}, [[], []]),
    ):
        assert shared_blocks(compose(StepStateCriticComposer(), shared=keys)) == expected
    keys = {0: ["latent"]}
    separate = {"substeps_with_separate_agent_nets": ["cut"]}
    several = compose(StepStateCriticComposer(), structured(3), keys, **separate)
    assert len(graphs(several.policy)) == 4, "agents of a sub-step that shares nothing may have separate networks"
    flat = ConcatModelBuilder({"feature": FEATURE}, {"observation": "feature"}, keys)
    alone = TemplateModelComposer(flat, ProbabilisticPolicyComposer(), SharedStateCriticComposer()).compose(FLAT)
    assert shared_blocks(alone) == [["observation_DenseBlock", "concat"]]


def test_keys_of_unknown_sub_steps_and_tensors_are_refused() -> None:
    keys: Any = {0: ["latent"], "cutt": ["latent"], 1: []}
    with pytest.raises(ValueError, match=r"names the sub-steps \['cutt', 1\]; the sub-steps are \[0, 'cut'\]"):
        compose(StepStateCriticComposer(), shared=keys)
    keys = {0: ["piece_DenseBlock"]}
    with pytest.raises(ValueError, match=r"sub-step 0 .*there is no \['piece_DenseBlock'\]"):
        compose(StepStateCriticComposer(), shared=keys)
    keys = {"cut": ["latent"]}
    with pytest.raises(ValueError, match=r"^shared critic network shares parts .* one network, not 2: use"):
        compose(SharedStateCriticComposer(), shared=keys)


@pytest.mark.parametrize(
    ("critic", "options", "n_networks"),
    [
        (SharedStateCriticComposer(), {}, 2),
        (StepStateCriticComposer(), {"substeps_with_separate_agent_nets": ["cut"]}, 3),
    ],
)
def test_sharing_without_one_network_to_share_is_refused(critic: Any, options: Any, n_networks: int) -> None:
    spec = structured(n_agents=3 if options else 1)
    where = "shared critic network" if n_networks == 2 else "critic network of sub-step 'cut'"
    with pytest.raises(ValueError, match=f"^{where} shares parts .* which must be one network, not {n_networks}: use"):
        compose(critic, spec, ["latent"], **options)
    assert compose(critic, spec, None, **options).critic is not None, "without sharing there is nothing against it"


def test_networks_of_the_users_get_the_network_of_the_policy_by_the_same_way() -> None:
    class Judge(nn.Module):
        def __init__(self, obs_shapes: Any, policy_network: nn.Module, width: int) -> None:
            super().__init__()
            self.policy_network, self.width, self.value = policy_network, width, nn.Linear(2, 1)

        def forward(self, observation: Any) -> Any:
            return {"value": self.value(self.policy_network(observation)["action"])}

    policy = ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])])
    for critic in (StateCriticComposer, StepStateCriticComposer):
        networks = CustomModelComposer(policy, critic([partial(Judge, width=3)])).compose(FLAT)
        assert networks.critic is not None
        (judge,) = (module for module in networks.critic.modules() if isinstance(module, Judge))
        assert judge.policy_network is networks.policy.networks[0][0]
        assert judge.width == 3
        with pytest.raises(ValueError, match="must be one network, not 0"):
            critic([partial(Judge, width=3)]).compose(FLAT)


def test_a_shared_value_network_is_refused_for_other_policies() -> None:
    class Other(nn.Linear):
        def __init__(self, obs_shapes: Any, action_logits_shapes: Any) -> None:
            super().__init__(4, 2)

        def forward(self, observation: Any) -> Any:
            return {"action": super().forward(observation["observation"])}

    composer = CustomModelComposer(
        ProbabilisticPolicyComposer([Other]), StateCriticComposer([FlattenConcatSharedStateValueNet])
    )
    with pytest.raises(
        ValueError, match=r"shared critic network cannot be made with .*policy_network is a Other, expec"
    ):
        composer.compose(FLAT)


def test_a_critic_may_name_networks_of_its_own() -> None:
    critic = StepStateCriticComposer([partial(FlattenConcatStateValueNet, hidden_units=[3])])
    networks = compose(critic)
    assert networks.critic is not None
    assert not graphs(networks.critic)
    assert len(graphs(networks.policy)) == 2


def test_a_policy_that_names_networks_is_refused() -> None:
    policy = ProbabilisticPolicyComposer([FlattenConcatPolicyNet])
    with pytest.raises(ValueError, match=r"its policy names some.*set networks: null, or use a Cust"):
        TemplateModelComposer(builder(), policy)


def test_composers_without_networks_need_a_template() -> None:
    with pytest.raises(ValueError, match="networks are needed: name their classes, or use a TemplateModelComposer"):
        ProbabilisticPolicyComposer().compose(FLAT)
    with pytest.raises(ValueError, match="networks are needed"):
        SharedStateCriticComposer().compose(FLAT)
    with pytest.raises(ValueError, match="networks are needed"):
        StepStateCriticComposer().compose(FLAT)


def test_composers_are_left_as_they_were_and_compose_again() -> None:
    policy, critic = ProbabilisticPolicyComposer(), StateCriticComposer()
    composer = TemplateModelComposer(builder(), policy, critic)
    first, second = composer.compose(structured()), composer.compose(structured())
    assert policy.networks is None and critic.networks is None
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}


def test_observations_must_fit_the_mapping() -> None:
    with pytest.raises(
        ValueError, match=r"observation_modality_mapping names \['piece', 'stock'\]; .* \['observation'"
    ):
        compose(None, FLAT)


def test_a_head_that_is_called_like_an_observation_is_refused() -> None:
    box = spaces.Box(-1, 1, (2,))
    spec = Spec({0: StepSpec(spaces.Dict({"stock": box, "piece": box}), spaces.Dict({"piece": spaces.Discrete(2)}))})
    with pytest.raises(
        ValueError, match=r"^policy network of sub-step 0 .*the key 'piece' is written by the blocks \['p"
    ):
        compose(None, spec)


def test_a_memory_is_that_of_the_policy_or_of_the_critic_alone() -> None:
    memory = {"block_type": "maze_pl.perception.RecurrentBlock", "block_params": {"hidden_size": 5}}

    def networks(keys: list[str] | None) -> TorchActorCritic:
        config = {"feature": FEATURE, "recurrence": memory}
        template = ConcatModelBuilder(config, {"observation": "feature"}, keys)
        return TemplateModelComposer(template, ProbabilisticPolicyComposer(), StateCriticComposer()).compose(FLAT)

    assert state_shapes(networks(["latent"]).policy) == {"latent.hidden": (1, 5), "latent.cell": (1, 5)}
    assert networks(["latent"]).critic_state_shapes == {}
    for keys in (None, ["observation_DenseBlock"]):
        assert networks(keys).critic_state_shapes == {0: {"latent.hidden": (1, 5), "latent.cell": (1, 5)}}


# ---------------------------------------------------------------------------------------------------------- acting


def double(networks: TorchActorCritic) -> TorchPolicy:
    """In double precision rounding decides nothing."""
    return copy.deepcopy(networks.policy).double().eval()


def test_template_networks_of_dense_blocks_act_in_numpy() -> None:
    config = {"feature": FEATURE, "hidden": {**FEATURE, "block_params": {"hidden_units": [16]}}, "raw": {}}
    mapping = {"stock": "feature", "piece": "raw"}
    composer = TemplateModelComposer(ConcatModelBuilder(config, mapping), ProbabilisticPolicyComposer())
    policy = double(composer.compose(structured()))
    generator = np.random.default_rng(0)
    observation = {
        "stock": generator.standard_normal((50, 6)),
        "mask": generator.integers(0, 2, (50, 3)).astype(np.int8),
        "piece": generator.standard_normal((50, 2)),
    }
    for key, names in ((0, ["stock", "mask"]), ("cut", ["stock", "piece"])):
        seen = {name: observation[name] for name in names}
        plain = policy._steps[key].plain
        assert plain is not None and plain.logits(seen) is not None, "it is left to torch"
        own, reference = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
        action = policy.act(PolicyBatch(key, seen, np.zeros(50)), generator=own).action
        tensors = {name: torch.from_numpy(array) for name, array in seen.items()}
        for head, expected in policy.distribution(key, tensors).sample(reference).items():
            np.testing.assert_allclose(action[head], expected.detach().numpy(), rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------------------- YAML

EXAMPLE = """
class_path: maze_pl.perception.TemplateModelComposer
init_args:
  distribution_mapper_config: []
  model_builder:
    class_path: maze_pl.perception.concat_model_builder.ConcatModelBuilder
    init_args:
      shared_embedding_keys: ~
      observation_modality_mapping: {observation_inventory: feature, observation_screen: image}
      modality_config:
        feature:
          block_type: maze_pl.perception.blocks.DenseBlock
          block_params: {hidden_units: [32, 32], non_lin: torch.nn.ReLU}
        image:
          block_type: maze_pl.perception.blocks.VGGConvolutionDenseBlock
          block_params: {hidden_channels: [8, 16, 32], hidden_units: [32], non_lin: torch.nn.ReLU}
        hidden:
          block_type: maze_pl.perception.blocks.DenseBlock
          block_params: {hidden_units: [128], non_lin: torch.nn.ReLU}
        recurrence: RECURRENCE
  policy:
    class_path: maze_pl.perception.ProbabilisticPolicyComposer
  critic:
    class_path: maze_pl.perception.StateCriticComposer
"""
LSTM = """
          block_type: maze_pl.perception.blocks.LSTMLastStepBlock
          block_params: {hidden_size: 32, num_layers: 1, bidirectional: False, non_lin: torch.nn.SELU}
"""


@pytest.mark.parametrize(("recurrence", "stack"), [("{}", ()), (LSTM, (3,))])
def test_the_documented_examples_are_composed_from_yaml(
    recurrence: str, stack: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(EXAMPLE.replace("RECURRENCE", recurrence), encoding="utf-8")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TemplateModelComposer, "networks")
    parsed = parser.parse_args([f"--networks={path}"])
    again = parser.parse_object(yaml.safe_load(parser.dump(parsed)))
    observed = {
        "observation_inventory": spaces.Box(-1, 1, (*stack, 16)),
        "observation_screen": spaces.Box(0, 255, (*stack, 3, 64, 64), np.uint8),
    }
    heads = {"action_move": spaces.Discrete(4), "action_use": spaces.MultiBinary(16)}
    spec = Spec({0: StepSpec(spaces.Dict(observed), spaces.Dict(heads))})
    for configuration in (parsed, again):
        networks = parser.instantiate(configuration).networks.compose(spec)
        (policy,), (critic,) = graphs(networks.policy), graphs(networks.critic)
        assert policy.block_names[-2:] == ["action_move", "action_use"]
        assert policy.block_names[:-2] == critic.block_names[:-1]
        assert ("recurrence" in policy.block_names) == bool(stack)
    rng = np.random.default_rng(0)
    observation: dict[str, Any] = {
        "observation_inventory": rng.standard_normal((2, *stack, 16), dtype=np.float32),
        "observation_screen": rng.integers(0, 256, (2, *stack, 3, 64, 64), dtype=np.uint8),
    }
    acted = networks.policy.act(PolicyBatch(0, observation, np.zeros(2)))
    assert {head: array.shape for head, array in acted.action.items()} == {"action_move": (2,), "action_use": (2, 16)}
    values = networks.critic.value(0, {name: torch.from_numpy(array) for name, array in observation.items()})
    assert values.shape == (2,)


OPTIONS = """
class_path: maze_pl.perception.TemplateModelComposer
init_args:
  distribution_mapper_config: []
  model_builder:
    class_path: maze_pl.perception.ConcatModelBuilder
    init_args:
      observation_modality_mapping: {signal: sequence, screen: image, points: set, speed: feature, units: items}
      modality_config:
        sequence:
          block_type: maze_pl.perception.StridedConvolutionDenseBlock
          block_params:
            hidden_channels: [4, 3]
            hidden_kernels: [3, [2]]
            hidden_padding: [2, 1]
            hidden_dilations: [2, [1]]
            padding_mode: reflect
            convolution_dimension: 1
            hidden_units: [5]
            non_lin: [torch.nn.SELU, torch.nn.ELU, torch.nn.Tanh]
        image:
          block_type: maze_pl.perception.VGGConvolutionGAPBlock
          block_params: {hidden_channels: [4], normalization: batch}
        set:
          block_type: maze_pl.perception.PointNetFeatureBlock
          block_params: {embedding_dim: 8, pooling_func_name: mean, use_feature_transform: true, normalization: layer}
        feature:
          block_type: maze_pl.perception.DenseBlock
          block_params: {hidden_units: [8], normalization: layer}
        items:
          block_type: maze_pl.perception.MaskedGlobalPoolingBlock
          block_params: {pooling_func: max, pooling_dim: [0, 1]}
        hidden:
          block_type: maze_pl.perception.DenseBlock
          block_params: {hidden_units: [32, 16], non_lin: [torch.nn.ReLU, torch.nn.Tanh], dropout: 0.5}
  policy:
    class_path: maze_pl.perception.ProbabilisticPolicyComposer
  critic:
    class_path: maze_pl.perception.StateCriticComposer
"""


def test_options_of_blocks_are_set_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(OPTIONS, encoding="utf-8")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TemplateModelComposer, "networks")
    shapes = {"signal": (2, 9), "points": (6, 3), "speed": (3,), "units": (3, 4, 2)}
    observed = {name: spaces.Box(-1, 1, shape) for name, shape in shapes.items()}
    observed["screen"] = spaces.Box(0, 255, (3, 8, 8), np.uint8)
    spec = Spec({0: StepSpec(spaces.Dict(observed), spaces.Dict({"action": spaces.Discrete(4)}))})
    networks = parser.instantiate(parser.parse_args([f"--networks={path}"])).networks.compose(spec)
    network = networks.policy.networks[0][0]
    blocks = network.perception_blocks
    widths = {name: block.out_shapes() for name, block in blocks.items()}
    assert widths["signal_StridedConvolutionDenseBlock"] == [(5,)] and widths["hidden"] == [(16,)]
    assert widths["units_MaskedGlobalPoolingBlock"] == [(2,)] and widths["screen_VGGConvolutionGAPBlock"] == [(4,)]
    kinds = [type(module) for module in network.modules()]
    assert {kind: kinds.count(kind) for kind in (nn.SELU, nn.ELU, nn.Tanh, nn.Dropout, nn.BatchNorm2d, nn.Conv1d)} == {
        nn.SELU: 1,
        nn.ELU: 1,
        nn.Tanh: 2,
        nn.Dropout: 2,
        nn.BatchNorm2d: 2,
        nn.Conv1d: 2,
    }
    assert kinds.count(nn.LayerNorm) == 1 + 3 + 2 + 3 + 3 + 2
    network.train()
    batch = {name: torch.rand(7, *space.shape) for name, space in observed.items()}
    first, second = network(batch)["action"], network(batch)["action"]
    assert first.shape == (7, 4) and not torch.equal(first, second)
    seen = {name: array[:1].numpy() for name, array in batch.items()}
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    acts = [networks.policy.eval().act(PolicyBatch(0, seen, np.zeros(1)), generator=one) for one in generators]
    assert acts[0].log_prob == acts[1].log_prob
