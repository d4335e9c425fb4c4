"""Template networks: blocks and names, numbers, weights, what is shared, and what is refused."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    BaseModelBuilder,
    ConcatModelBuilder,
    DenseBlock,
    InferenceBlock,
    PerceptionBlock,
    builders,
)

FEATURE = {"block_type": "maze_pl.perception.DenseBlock", "block_params": {"hidden_units": [32, 32]}}
IMAGE = {
    "block_type": "maze_pl.perception.blocks.VGGConvolutionDenseBlock",
    "block_params": {"hidden_channels": [8, 16, 32], "hidden_units": [32], "non_lin": "torch.nn.ReLU"},
}
HIDDEN = {"block_type": DenseBlock, "block_params": {"hidden_units": [128], "non_lin": nn.ReLU}}
RECURRENCE = {
    "block_type": "maze_pl.perception.LSTMLastStepBlock",
    "block_params": {"hidden_size": 32, "num_layers": 1, "bidirectional": False, "non_lin": "torch.nn.SELU"},
}
MAPPING = {"observation_inventory": "feature", "observation_screen": "image"}
SHAPES = {"observation_inventory": (16,), "observation_screen": (3, 64, 64)}
HEADS = {"action_move": (4,), "action_use": (16,)}


def two_modalities(shared: list[str] | None = None, **config: Any) -> ConcatModelBuilder:
    defaults = {"feature": FEATURE, "image": IMAGE, "hidden": HIDDEN, "recurrence": {}}
    return ConcatModelBuilder({**defaults, **config}, MAPPING, shared)


def tensors(network: InferenceBlock) -> list[str]:
    return [key for block in network.perception_blocks.values() for key in block.out_keys]


def test_the_example_of_the_documents_has_its_blocks_and_tensors() -> None:
    network = two_modalities().policy_network(SHAPES, HEADS)
    embeddings = ["observation_inventory_DenseBlock", "observation_screen_VGGConvolutionDenseBlock"]
    assert network.block_names == [*embeddings, "concat", "hidden", "action_move", "action_use"]
    assert tensors(network) == [*embeddings, "concat", "latent", "action_move", "action_use"]
    shapes = [shape for block in network.perception_blocks.values() for shape in block.out_shapes()]
    assert shapes == [(32,), (32,), (64,), (128,), (4,), (16,)]
    critic = two_modalities().critic_network(SHAPES)
    assert tensors(critic) == [*embeddings, "concat", "latent", "value"]


@pytest.mark.parametrize("leading", [(), (2,), (3, 2)])
def test_recurrence_over_a_stack_gives_one_output_for_each_stack(leading: tuple[int, ...]) -> None:
    shapes = {name: (4, *shape) for name, shape in SHAPES.items()}
    network = two_modalities(recurrence=RECURRENCE).policy_network(shapes, HEADS)
    assert network.block_names[2:5] == ["concat", "hidden", "recurrence"]
    assert tensors(network)[2:5] == ["concat", "hidden", "latent"]
    assert network.perception_blocks["hidden"].out_shapes() == [(4, 128)]
    output = network({name: torch.randn(*leading, *shape) for name, shape in shapes.items()})
    assert {head: tuple(tensor.shape) for head, tensor in output.items()} == {
        head: (*leading, *shape) for head, shape in HEADS.items()
    }


@pytest.mark.parametrize("nothing", [{}, None])
def test_a_single_observation_passes_the_concatenation_as_it_is(nothing: Any) -> None:
    config = {"feature": FEATURE, "hidden": nothing, "recurrence": nothing}
    network = ConcatModelBuilder(config, {"observation": "feature"}).policy_network({"observation": (4,)}, {"a": (2,)})
    assert tensors(network) == ["observation_DenseBlock", "latent", "a"]
    given = torch.randn(5, 4)
    embedding, head = network.perception_blocks["observation_DenseBlock"], network.perception_blocks["a"]
    latent = embedding({"observation": given})["observation_DenseBlock"]
    assert torch.equal(network({"observation": given})["a"], head({"latent": latent})["a"])


def test_observations_whose_modality_has_no_block_are_joined_as_they_are() -> None:
    config = {"raw": None, "feature": FEATURE}
    network = ConcatModelBuilder(config, {"a": "raw", "b": "feature"}).critic_network({"a": (3,), "b": (4,)})
    assert network.perception_blocks["concat"].in_keys == ["a", "b_DenseBlock"]
    assert network.perception_blocks["value"].in_shapes == [(35,)]


def test_the_sub_step_that_a_shared_critic_judges_is_joined_as_it_is_unless_it_has_a_modality() -> None:
    shapes = {"a": (4,), "step_key": (2,)}
    as_it_is = ConcatModelBuilder({"feature": FEATURE}, {"a": "feature"}).critic_network(shapes)
    assert as_it_is.perception_blocks["concat"].in_keys == ["a_DenseBlock", "step_key"]
    mapping = {"a": "feature", "step_key": "feature"}
    embedded = ConcatModelBuilder({"feature": FEATURE}, mapping).critic_network(shapes)
    assert embedded.perception_blocks["concat"].in_keys == ["a_DenseBlock", "step_key_DenseBlock"]


def test_weights_have_norm_one_but_for_the_heads_of_policies() -> None:
    for network, norm in (
        (two_modalities().policy_network(SHAPES, HEADS), 0.01),
        (two_modalities().critic_network(SHAPES), 1.0),
    ):
        for name, block in network.perception_blocks.items():
            for module in block.modules():
                if isinstance(module, nn.Linear | nn.Conv2d):
                    norms = module.weight.flatten(1).norm(dim=1)
                    expected = norm if name in network.out_keys else 1.0
                    torch.testing.assert_close(norms, torch.full_like(norms, expected))
                    assert not module.bias.any()


@pytest.mark.parametrize("has_transform", [False, True])
def test_transforms_of_points_start_as_the_identity_and_other_weights_as_always(has_transform: bool) -> None:
    entry = {
        "block_type": "maze_pl.perception.PointNetFeatureBlock",
        "block_params": {"embedding_dim": 8, "use_feature_transform": has_transform},
    }
    network = ConcatModelBuilder({"points": entry}, {"p": "points"}).policy_network({"p": (5, 3)}, HEADS)
    block = network.perception_blocks["p_PointNetFeatureBlock"]
    starts = {"matrix.4"} | ({"feature_matrix.4"} if has_transform else set())
    found = set()
    for name, module in block.named_modules():
        if isinstance(module, nn.Linear):
            norms = module.weight.norm(dim=1)
            torch.testing.assert_close(norms, torch.full_like(norms, float(name not in starts)))
            assert not module.bias.any()
            found.add(name)
    assert starts <= found
    points = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    embedded = block.embed(points).amax(-2)  # without a transform
    torch.testing.assert_close(block({"p": points})["p_PointNetFeatureBlock"], embedded)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (
            ["latent"],
            ["observation_inventory_DenseBlock", "observation_screen_VGGConvolutionDenseBlock", "concat", "hidden"],
        ),
        (["observation_screen_VGGConvolutionDenseBlock"], ["observation_screen_VGGConvolutionDenseBlock"]),
        (["concat"], ["observation_inventory_DenseBlock", "observation_screen_VGGConvolutionDenseBlock", "concat"]),
        ([], []),
        (None, []),
    ],
)
def test_blocks_up_to_the_shared_keys_are_those_of_the_policy(keys: list[str] | None, names: list[str]) -> None:
    builder = two_modalities(keys)
    policy = builder.policy_network(SHAPES, HEADS)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    critic = builder.critic_network(SHAPES, policy)
    blocks = policy.perception_blocks
    assert [name for name, block in critic.perception_blocks.items() if block is blocks.get(name)] == names
    assert len(critic.block_names) == 5
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())


def test_unknown_shared_keys_and_networks_without_a_template_are_refused() -> None:
    policy = two_modalities().policy_network(SHAPES, HEADS)
    with pytest.raises(ValueError, match=r"shared_embedding_keys: there is no \['latnt'\]; .* 'concat', 'latent'\]"):
        two_modalities(["latnt"]).critic_network(SHAPES, policy)
    with pytest.raises(ValueError, match=r"there is no \['action_move'\]"):
        two_modalities(["action_move"]).critic_network(SHAPES, policy)
    with pytest.raises(ValueError, match="the policy's Linear is not made from a template"):
        two_modalities(["latent"]).critic_network(SHAPES, nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"block_type": "maze_pl.perception.DenseBlok"}, "nothing named DenseBlok|no attribute 'DenseBlok'"),
        ({"block_type": "torch.nn.Linear"}, r"'feature' needs block_type, a PerceptionBlock, and .* got .*Linear"),
        ({"block_params": {"hidden_units": [3]}}, "'feature' needs block_type"),
        ("DenseBlock", "'feature' needs block_type, a PerceptionBlock, and block_params; got DenseBlock"),
        ({**FEATURE, "params": {}}, "'feature' needs block_type, a PerceptionBlock, and block_params; got .*'params'"),
    ],
)
def test_entries_that_name_no_block_are_refused(entry: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConcatModelBuilder({"feature": entry}, {"observation": "feature"})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"hidden_unit": [3]}, r"'feature' cannot be made for 'x' of shape \(4,\): TypeError: .*'hidden_unit'"),
        (
            {},
            "'feature' cannot be made for 'x' .*: TypeError: .*missing 1 required positional argument: 'hidden_units'",
        ),
        ({"hidden_units": []}, "'feature' cannot be made for 'x' .*: ValueError: DenseBlock from 'x' .*hidden_units"),
        ({"hidden_units": [3], "non_lin": "torch.nn.Tan"}, r"'feature' cannot be made for 'x'.*torch\.nn\.Tan"),
    ],
)
def test_wrong_parameters_of_blocks_are_refused(entry: dict[str, Any], message: str) -> None:
    config = {"feature": {"block_type": DenseBlock, "block_params": entry}}
    with pytest.raises(ValueError, match=message):
        ConcatModelBuilder(config, {"x": "feature"}).policy_network({"x": (4,)}, {"a": (2,)})


class FailingBlock(PerceptionBlock):
    def __init__(self, in_keys: str, out_keys: str, in_shapes: tuple[int, ...], gives: Any) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.gives = gives

    def forward(self, block_input: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given: dict[str, Tensor] = self.gives(block_input)
        return given


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (lambda tensors: tensors["picture"], "KeyError: 'picture'"),
        (lambda tensors: {"y": tensors["x"]}, r"FailingBlock from 'x' \(4,\) .* a dict with \['x_FailingBlock'\]"),
        (lambda tensors: (tensors["x"],), r"FailingBlock from 'x' \(4,\) .* a dict with \['x_FailingBlock'\]"),
    ],
)
def test_blocks_that_fail_are_named(gives: Any, message: str) -> None:
    config = {"feature": {"block_type": FailingBlock, "block_params": {"gives": gives}}}
    with pytest.raises(ValueError, match=f"'feature' cannot be made for 'x' .*{message}"):
        ConcatModelBuilder(config, {"x": "feature"}).policy_network({"x": (4,)}, {"a": (2,)})


def test_shapes_that_cannot_be_joined_are_refused() -> None:
    shapes = {"observation_inventory": (16,), "observation_screen": (4, 3, 64, 64)}
    with pytest.raises(
        ValueError, match=r"ConcatenationBlock from 'observation_inventory_DenseBlock' \(32,\), .*Dense"
    ):
        two_modalities().policy_network(shapes, HEADS)


def test_an_unknown_modality_is_refused() -> None:
    with pytest.raises(ValueError, match=r"observation 'x' has the modality 'image', expected one of \['feature'\]"):
        ConcatModelBuilder({"feature": FEATURE}, {"x": "image"})


def spec(**masks: str) -> Spec:
    box = spaces.Box(-1.0, 1.0, (2,))
    observed = {"stock": box, "mask": spaces.Box(0, 1, (2,), np.int8)}
    pick = StepSpec(spaces.Dict(observed), spaces.Dict({"pick": spaces.Discrete(2)}), masks=masks)
    return Spec({0: pick, "cut": StepSpec(spaces.Dict({"piece": box}), spaces.Dict({"cut": spaces.Discrete(2)}))})


@pytest.mark.parametrize(
    ("mapping", "masks", "message"),
    [
        (["stock", "piece"], {}, r"observations \['mask'\] of sub-step 0: observation_modality_mapping lacks them"),
        (
            ["stock"],
            {"pick": "mask"},
            r"observations \['piece'\] of sub-step 'cut': observation_modality_mapping lacks",
        ),
        (
            ["stock", "piece", "order"],
            {"pick": "mask"},
            r"names \['order'\]; the observations are \['mask', 'piece', 'stock'\]$",
        ),
        (["piece"], {"pick": "mask"}, r"observations \['stock'\] of sub-step 0"),
        (["stock", "piece"], {"pick": "mask"}, None),
        (["stock", "piece", "mask"], {"pick": "mask"}, None),
        (["stock", "piece", "mask", "step_key"], {}, None),
    ],
)
def test_all_observations_but_masks_need_a_modality(mapping: list[str], masks: Any, message: str | None) -> None:
    builder = ConcatModelBuilder({"feature": FEATURE}, dict.fromkeys(mapping, "feature"))
    if message is None:
        builder.check(spec(**masks))
    else:
        with pytest.raises(ValueError, match=message):
            builder.check(spec(**masks))


def test_a_sub_step_needs_more_than_masks() -> None:
    masked = spec(pick="mask").steps[0]
    alone = StepSpec(spaces.Dict({"mask": masked.observation_space["mask"]}), masked.action_space, masks=masked.masks)
    with pytest.raises(ValueError, match="leaves sub-step 0 without any observation"):
        ConcatModelBuilder({"feature": FEATURE}, {}).check(Spec({0: alone}))


def test_masks_go_into_the_network_only_where_they_have_a_modality() -> None:
    shapes = {"stock": (2,), "mask": (2,)}
    for mapping, seen in (({"stock": "feature"}, ["stock"]), ({"stock": "feature", "mask": "feature"}, [*shapes])):
        assert ConcatModelBuilder({"feature": FEATURE}, mapping).policy_network(shapes, {"pick": (2,)}).in_keys == seen


class Sum(BaseModelBuilder):
    """Another architecture: one block for the only observation."""

    def latent_blocks(self, obs_shapes: Any) -> dict[str, PerceptionBlock]:
        ((name, shape),) = obs_shapes.items()
        return {"only": self.block(self.observation_modality_mapping[name], name, "latent", shape)}


def test_users_can_write_other_architectures() -> None:
    builder = Sum({"feature": FEATURE}, {"x": "feature"}, ["latent"])
    policy = builder.policy_network({"x": (4,)}, {"a": (2,)})
    critic = builder.critic_network({"x": (4,)}, policy)
    assert policy.block_names == ["only", "a"]
    assert critic.perception_blocks["only"] is policy.perception_blocks["only"]


def test_the_example_runs() -> None:
    assert doctest.testmod(builders).failed == 0


@pytest.mark.parametrize("head", ["concat", "latent", "observation_DenseBlock"])
def test_heads_do_not_take_the_names_of_the_templates_blocks(head: str) -> None:
    builder = ConcatModelBuilder({"feature": FEATURE}, {"observation": "feature"})
    with pytest.raises(ValueError, match=rf"the heads \['{head}'\] have names of the template's blocks, .* rename"):
        builder.policy_network({"observation": (4,)}, {head: (2,)})


# ------------------------------------------------------------------------------------- several inputs of one modality

POINTS = {"block_type": "maze_pl.perception.PointNetFeatureBlock", "block_params": {"embedding_dim": 8}}
GRAPH: list[dict[str, Any]] = [
    {"block_type": "maze_pl.perception.GraphConvBlock", "block_params": {"hidden_features": [5]}},
    {
        "block_type": "maze_pl.perception.GraphConvBlock",
        "block_params": {"hidden_features": [6]},
        "further_inputs": ["edges", "exists"],
    },
    {
        "block_type": "maze_pl.perception.MaskedGlobalPoolingBlock",
        "block_params": {"pooling_func": "mean", "pooling_dim": -2},
        "further_inputs": ["exists"],
    },
]
SITES = {"sites": (4, 3), "roads": (4, 4), "is_site": (4,), "orders": (5, 2), "is_order": (5,), "time": (1,)}
FURTHER = {"sites": {"edges": "roads", "exists": "is_site"}, "orders": {"mask": "is_order"}}


def sites(further: Any = None, **config: Any) -> ConcatModelBuilder:
    defaults = {"graph": GRAPH, "set": POINTS, "raw": None}
    mapping = {"sites": "graph", "orders": "set", "time": "raw"}
    return ConcatModelBuilder({**defaults, **config}, mapping, ["latent"], FURTHER if further is None else further)


def sites_observation(n: int = 7) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    observation = {name: torch.randn(n, *shape, generator=generator) for name, shape in SITES.items()}
    for name in ("roads", "is_site", "is_order"):
        observation[name] = (observation[name] > 0).to(torch.int8)
    return observation


def test_blocks_of_a_modality_read_further_inputs_and_each_other() -> None:
    network = sites().policy_network(SITES, {"a": (2,)})
    read = {name: block.in_keys for name, block in network.perception_blocks.items()}
    first, second = "sites_GraphConvBlock", "sites_GraphConvBlock_2"
    assert read == {
        first: ["sites", "roads", "is_site"],
        second: [first, "roads", "is_site"],
        "sites_MaskedGlobalPoolingBlock": [second, "is_site"],
        "orders_PointNetFeatureBlock": ["orders", "is_order"],
        "concat": ["sites_MaskedGlobalPoolingBlock", "orders_PointNetFeatureBlock", "time"],
        "a": ["latent"],
    }
    assert set(network.in_keys) == set(SITES)
    critic = sites().critic_network(SITES, network)
    assert all(critic.perception_blocks[name] is network.perception_blocks[name] for name in list(read)[:-1])


def test_a_set_with_its_mask_and_a_graph_in_a_template_are_those_of_their_blocks() -> None:
    network = sites().policy_network(SITES, {"a": (2,)})
    observation = sites_observation()
    blocks = network.perception_blocks
    tensors: dict[str, Tensor] = dict(observation)
    nodes, edges, exists = (observation[name] for name in ("sites", "roads", "is_site"))
    for name in ("sites_GraphConvBlock", "sites_GraphConvBlock_2"):
        layer = blocks[name].layers[0]  # type: ignore[union-attr]
        among = edges * exists[:, None] * exists[:, :, None] + torch.eye(4)
        degree = among.sum(-1).rsqrt()
        assert isinstance(layer, nn.Linear)
        nodes = (degree[:, :, None] * among * degree[:, None] @ (nodes * exists[..., None]) @ layer.weight.T).relu()
    mean = (nodes * exists[..., None]).sum(1) / exists.sum(1, keepdim=True).clamp(min=1)
    tensors |= blocks["orders_PointNetFeatureBlock"](tensors)
    latent = torch.cat([mean, tensors["orders_PointNetFeatureBlock"], observation["time"]], -1)
    torch.testing.assert_close(network(observation), blocks["a"]({"latent": latent}))
    hidden = {**observation, "orders": observation["orders"] + 9.0 * (1 - observation["is_order"])[..., None]}
    hidden["sites"] = observation["sites"] + 9.0 * (1 - exists)[..., None]
    torch.testing.assert_close(network(hidden), network(observation))
    shown = {**observation, "is_order": torch.ones_like(observation["is_order"])}
    assert not torch.allclose(network(shown)["a"], network(observation)["a"])


@pytest.mark.parametrize(
    ("further", "config", "message"),
    [
        ({"order": {"mask": "is_order"}}, {}, "the observation 'order' needs a modality in observation_modality_map"),
        (
            {"orders": {"mask": "is_order"}},
            {},
            r"further_inputs of the observation 'sites' are \[\], but the blocks of its modality 'graph' read "
            r"\['edges', 'exists'\]",
        ),
        ({**FURTHER, "time": {"clock": "is_order"}}, {}, r"'time' are \['clock'\], but .* 'raw' read \[\]"),
        (FURTHER, {"graph": [{**GRAPH[1], "further_inputs": ["edges"]}]}, r"'sites' are \['edges', 'exists'\], but"),
        (FURTHER, {"graph": [*GRAPH, {"block_params": {}}]}, "'graph' needs block_type, a PerceptionBlock, and"),
    ],
)
def test_further_inputs_that_do_not_fit_the_blocks_are_refused(further: Any, config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sites(further, **config)


def test_further_inputs_must_be_observed_in_the_same_sub_step_and_fit() -> None:
    box = {name: spaces.Box(-1.0, 1.0, shape) for name, shape in SITES.items()}
    act = spaces.Dict({"a": spaces.Discrete(2)})
    whole = StepSpec(spaces.Dict(box), act)
    sites().check(Spec({0: whole}))
    part = StepSpec(spaces.Dict({"orders": box["orders"], "is_site": box["is_site"]}), act)
    with pytest.raises(
        ValueError, match=r"'orders': \['is_order'\] are not observations of sub-step 1, which are \['is"
    ):
        sites().check(Spec({0: whole, 1: part}))
    with pytest.raises(
        ValueError, match=r"further_inputs of 'orders': \['is_ordre'\] are not observations of sub-step 0, which are \["
    ):
        sites({**FURTHER, "orders": {"mask": "is_ordre"}}).check(Spec({0: whole}))
    shapes = {**SITES, "is_order": (3,)}
    with pytest.raises(
        ValueError, match=r"'set' cannot be made for 'orders' of shape \(5, 2\), 'is_order' of shape \(3,\): ValueError"
    ):
        sites().policy_network(shapes, {"a": (2,)})
    with pytest.raises(ValueError, match="'hidden' can have only one block, got 3"):
        sites(hidden=GRAPH).policy_network(SITES, {"a": (2,)})
