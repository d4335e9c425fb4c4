"""Graphs of networks, and what people look at: the picture's boxes, texts and edges, and the table."""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor, nn

from maze_pl.agents import (
    TorchActorCritic,
    TorchPolicy,
    TorchSharedStateActionCritic,
    TorchSharedStateCritic,
    TorchStepStateActionCritic,
    TorchStepStateCritic,
)
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.perception import (
    ConcatenationBlock,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    InferenceBlock,
    LinearOutputBlock,
    PerceptionBlock,
    RecurrentBlock,
    VGGConvolutionDenseBlock,
    drawing,
)
from maze_pl.perception.drawing import draw, render, table
from maze_pl.perception.network_graph import NetworkGraph, actor_critic_graphs, network_graph

pytest.importorskip("matplotlib")

LONG = "observation_of_everything_that_the_warehouse_holds_at_present"


def graph_of(network: nn.Module, **shapes: tuple[int, ...]) -> NetworkGraph:
    return network_graph(network, spaces.Dict({name: spaces.Box(-1, 1, shape) for name, shape in shapes.items()}))


def two_modalities() -> InferenceBlock:
    blocks: dict[str, PerceptionBlock] = {
        "inventory": DenseBlock("observation_inventory", "inventory_latent", [16], hidden_units=[32, 32]),
        "screen": VGGConvolutionDenseBlock(
            "observation_screen", "screen_latent", [3, 64, 64], hidden_channels=[8, 16, 32], hidden_units=[32]
        ),
        "concat": ConcatenationBlock(["inventory_latent", "screen_latent"], "concat", [[32], [32]]),
        "hidden": DenseBlock("concat", "latent", [64], hidden_units=[64]),
        "move": LinearOutputBlock("latent", "action_move", [64], output_units=4),
        "use": LinearOutputBlock("latent", "action_use", [64], output_units=16),
    }
    observations = ["observation_inventory", "observation_screen"]
    return InferenceBlock(observations, ["action_move", "action_use"], [[16], [3, 64, 64]], blocks)


TWO = {"observation_inventory": (16,), "observation_screen": (3, 64, 64)}


def six_observations() -> InferenceBlock:
    names = ["position", "velocity", "orders", "stock", "time_left", LONG]
    blocks: dict[str, PerceptionBlock] = {
        name: DenseBlock(name, f"{name}_latent", [4], hidden_units=[8 * size]) for size, name in enumerate(names, 1)
    }
    widths = [block.out_shapes()[0] for block in blocks.values()]
    blocks["concat"] = ConcatenationBlock([f"{name}_latent" for name in names], "joined", widths)
    blocks["early"] = LinearOutputBlock("velocity_latent", "early_output", [16], output_units=3)
    blocks["late"] = ConcatenationBlock(["joined", "time_left", "position"], "late_output", [(168,), (4,), (4,)])
    return InferenceBlock(names, ["early_output", "late_output"], [[4]] * 6, blocks)


class Custom(nn.Module):
    """Plain PyTorch around a graph of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.perception_net = two_modalities()
        self.first, self.second, self.drop = nn.Linear(20, 20), nn.Linear(20, 20), nn.Dropout()
        self.norm, self.value = nn.BatchNorm1d(20), nn.Linear(20, 1)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        outputs = self.perception_net(observation)
        joined = torch.zeros(len(outputs["action_use"]), 20)
        joined[:, :4] = outputs["action_move"]
        joined[:, 4:] = outputs["action_use"] + 0 * torch.rand(16)
        changed = self.second(input=self.first(joined).relu())
        return {"value": self.value(self.norm(self.drop(changed) + joined)) * self.scale.mean()}


def memory() -> InferenceBlock:
    blocks = {
        "recurrence": RecurrentBlock("observation", "latent", [4], hidden_size=8),
        "action": LinearOutputBlock("latent", "action", [8], output_units=2),
    }
    return InferenceBlock("observation", "action", [4], blocks)


def deep() -> nn.Module:
    return FlattenConcatPolicyNet({"x": (4,), LONG: (3, 2)}, {f"head_{i}": (i + 1,) for i in range(7)})


GRAPHS = {
    "two_modalities": lambda: graph_of(two_modalities(), **TWO),
    "six_observations": lambda: graph_of(six_observations(), **dict.fromkeys(six_observations().in_keys, (4,))),
    "custom": lambda: graph_of(Custom(), **TWO),
    "memory": lambda: graph_of(memory(), observation=(4,)),
    "flatten_concat": lambda: graph_of(deep(), x=(4,), unused=(1,), **{LONG: (3, 2)}),
    "alone": lambda: graph_of(DenseBlock("x", "y", [4], [2]), x=(4,)),
}


def reads(graph: NetworkGraph) -> dict[str, set[str]]:
    """By name, the names of what a box depends on; outputs are marked where an input has the same name."""
    return {
        box.name + "'" * (not box.block and box.layer > 0): {source.name for source, to in graph.edges if to is box}
        for box in graph.boxes
    }


# ----------------------------------------------------------------------------------------------------------- graphs


def test_each_block_and_each_tensor_has_exactly_one_box() -> None:
    graph = graph_of(two_modalities(), **TWO)
    blocks = {box.name: (box.block, sum(box.parameters.values())) for box in graph.boxes if box.block}
    assert blocks == {
        "inventory": ("DenseBlock", 16 * 32 + 32 + 32 * 32 + 32),
        "screen": ("VGGConvolutionDenseBlock", sum(p.numel() for p in two_modalities().blocks[1].parameters())),
        "concat": ("ConcatenationBlock", 0),
        "hidden": ("DenseBlock", 64 * 64 + 64),
        "move": ("LinearOutputBlock", 64 * 4 + 4),
        "use": ("LinearOutputBlock", 64 * 16 + 16),
    }
    tensors = [(box.name, box.shape) for box in graph.boxes if not box.block]
    assert Counter(tensors) == Counter(
        [
            *TWO.items(),
            *(("inventory_latent", (32,)), ("screen_latent", (32,)), ("concat", (64,)), ("latent", (64,))),
            *(("action_move", (4,)), ("action_use", (16,))),
        ]
    )
    assert sum(map(graph.share, graph.boxes)) == pytest.approx(1.0)
    assert reads(graph)["concat"] == {"inventory_latent", "screen_latent"}
    assert reads(graph)["action_use'"] == {"use"}


def test_what_is_not_in_blocks_is_one_box_that_reads_what_they_give() -> None:
    graph = graph_of(Custom(), **TWO)
    depends = reads(graph)
    assert depends["perception_net.hidden"] == {"concat"}
    assert depends["all else"] == {"action_move", "action_use"}
    assert depends["value'"] == {"all else"}
    own = sum(p.numel() for name, p in Custom().named_parameters() if not name.startswith("perception_net"))
    assert [sum(box.parameters.values()) for box in graph.boxes if box.block == "Custom"] == [own]
    assert sum(map(graph.share, graph.boxes)) == pytest.approx(1.0)


def test_plain_pytorch_is_one_box() -> None:
    graph = graph_of(policy_network(), x=(4,))
    assert [(box.name, box.block) for box in graph.boxes] == [
        ("x", ""),
        ("network", "FlattenConcatPolicyNet"),
        ("action", ""),
    ]
    assert graph.share(graph.boxes[1]) == 1.0


def test_graphs_in_graphs_are_shown_block_by_block_and_keep_their_tensors_to_themselves() -> None:
    inner = {"body": DenseBlock("x", "latent", [4], [3]), "head": DenseBlock("latent", "seen", [3], [2])}
    outer: dict[str, PerceptionBlock] = {
        "first": DenseBlock("x", "latent", [4], [5]),
        "graph": InferenceBlock("x", "seen", [4], inner),
        "last": ConcatenationBlock(["latent", "seen"], "action", [[5], [2]]),
    }
    graph = graph_of(InferenceBlock("x", "action", [4], outer), x=(4,))
    assert [box.name for box in graph.boxes if box.block] == ["first", "graph.body", "graph.head", "last"]
    (last,) = (box for box in graph.boxes if box.name == "last")
    assert {(box.name, box.shape) for box, to in graph.edges if to is last} == {("latent", (5,)), ("seen", (2,))}


def test_state_is_read_at_the_top_and_given_at_the_bottom() -> None:
    graph = graph_of(memory(), observation=(4,))
    states = [box for box in graph.boxes if "." in box.name]
    assert len(states) == 4
    assert Counter(box.layer for box in states) == Counter({0: 2, 2: 2})
    assert len(reads(graph)["recurrence"]) == 3


def test_looking_at_a_network_changes_nothing() -> None:
    network = Custom()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(3)
    graph_of(network, **TWO)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert drawn == torch.rand(1)
    assert network.norm.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


def spec(*keys: Any) -> Spec:
    box, choice = spaces.Box(-1, 1, (4,)), spaces.Discrete(2)
    return Spec({key: StepSpec(spaces.Dict(x=box), spaces.Dict(action=choice), 2, 2) for key in keys})


def policy_network() -> nn.Module:
    return FlattenConcatPolicyNet({"x": (4,)}, {"action": (2,)}, hidden_units=[3])


def value_network(width: int = 4) -> nn.Module:
    shapes = {"x": (4,), **({"step_key": (2,)} if width > 4 else {})}
    return FlattenConcatStateValueNet(shapes, hidden_units=[3])


def test_networks_are_named_by_step_and_agent_where_there_are_several() -> None:
    flat = spec("only")
    assert list(actor_critic_graphs(TorchActorCritic(TorchPolicy([policy_network()], flat)))) == ["policy"]
    both = spec("plan", "work")
    own = TorchPolicy([policy_network(), [policy_network(), policy_network()]], both, None, ["work"])
    names = actor_critic_graphs(TorchActorCritic(own, TorchSharedStateCritic([value_network(6)], both)))
    assert set(names) == {"policy_plan", "policy_work_0", "policy_work_1", "critic"}
    stepwise = TorchStepStateCritic([value_network(), value_network()], both)
    assert set(actor_critic_graphs(TorchActorCritic(own, stepwise))) >= {"critic_plan", "critic_work"}


@pytest.mark.parametrize(("kind", "n_learned"), [("state_independent", 2), ("gsde", 5 * 2), ("state_dependent", 0)])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_standard_deviations_that_are_parameters_are_counted_and_drawn(
    kind: str, n_learned: int, in_blocks: bool
) -> None:
    push = spaces.Dict(push=spaces.Box(-1, 1, (2,)))
    one = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (4,))), push, 1, 1)})
    n_outputs = 4 if kind == "state_dependent" else 2
    network: nn.Module = FlattenConcatPolicyNet({"x": (4,)}, {"push": (n_outputs,)}, hidden_units=[5])
    if in_blocks:
        blocks: dict[str, PerceptionBlock] = {
            "body": DenseBlock("x", "latent", [4], [5]),
            "head": LinearOutputBlock("latent", "push", [5], n_outputs),
        }
        network = InferenceBlock(["x"], ["push"], [[4]], blocks)
    config = [
        {
            "action_head": "push",
            "distribution": "maze_pl.distributions.DiagonalGaussianProbabilityDistribution",
            "exploration": {"type": kind},
        }
    ]
    policy = TorchPolicy([network], one, config)
    graphs = actor_critic_graphs(TorchActorCritic(policy))
    graph = graphs["policy"]
    total = sum(parameter.numel() for parameter in policy.parameters())
    assert sum(graph.parameters.values()) == total == sum(p.numel() for p in network.parameters()) + n_learned
    assert table(graphs).endswith(f"policy: {total} parameters")
    assert sum(map(graph.share, graph.boxes)) == pytest.approx(1.0)
    found = [box for box in graph.boxes if box.block == "GaussianExploration"]
    assert [sum(box.parameters.values()) for box in found] == ([n_learned] if n_learned else [])
    if found:
        read = {source.name for source, target in graph.edges if target is found[0]}
        assert read == ({"push", "latent"} if kind == "gsde" else {"push"})
        assert [(target.name, target.shape) for source, target in graph.edges if source is found[0]] == [("push", (4,))]
    assert not any(box.name == "all else" for box in graph.boxes)
    assert render(draw(graph, "policy"), "svg")


def test_agents_with_separate_networks_share_a_tensor_of_standard_deviations_that_counts_once() -> None:
    push = spaces.Dict(push=spaces.Box(-1, 1, (2,)))
    work = Spec({"work": StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (4,))), push, 2, 2)})
    networks = [FlattenConcatPolicyNet({"x": (4,)}, {"push": (2,)}, hidden_units=[5]) for _ in range(2)]
    config = [
        {
            "action_space": spaces.Box,
            "distribution": "maze_pl.distributions.SquashedGaussianProbabilityDistribution",
            "exploration": {"type": "state_independent"},
        }
    ]
    policy = TorchPolicy([networks], work, config, ["work"])
    text = table(actor_critic_graphs(TorchActorCritic(policy)))
    assert text.endswith(f": {sum(parameter.numel() for parameter in policy.parameters())} parameters")


def twins(obs: dict[str, tuple[int, ...]], action: dict[str, tuple[int, ...]], q: dict[str, tuple[int, ...]]) -> Any:
    return [FlattenConcatStateActionValueNet(obs, action, q, hidden_units=[3]) for _ in range(2)]


def two_kinds_of_heads(*keys: str) -> Spec:
    box = spaces.Box(-1, 1, (2,))
    heads = spaces.Dict(choice=spaces.Discrete(3), push=box)
    return Spec({key: StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (4,))), heads, 1, 1) for key in keys})


def policy_for(one: Spec) -> TorchPolicy:
    net = FlattenConcatPolicyNet
    return TorchPolicy([net({"x": (4,)}, {"choice": (3,), "push": (4,)}, hidden_units=[3]) for _ in one.steps], one)


def test_a_critic_of_actions_sees_continuous_heads_and_gives_each_option_of_the_others() -> None:
    flat = two_kinds_of_heads("only")
    critic = TorchSharedStateActionCritic([twins({"x": (4,)}, {"push": (2,)}, {"choice": (3,)})], flat)
    graphs = actor_critic_graphs(TorchActorCritic(policy_for(flat), critic))
    assert list(graphs) == ["policy", "critic"]
    graph = graphs["critic"]
    assert reads(graph) == {"x": set(), "push": set(), "network": {"x", "push"}, "choice'": {"network"}}
    assert {box.name: box.shape for box in graph.boxes if not box.block} == {"x": (4,), "push": (2,), "choice": (3,)}
    assert sum(graph.parameters.values()) == (6 * 3 + 3) + (3 * 3 + 3)  # one of the two
    assert graph.share(graph.boxes[2]) == 1.0
    assert "critic: FlattenConcatStateActionValueNet, 33 parameters" in table(graphs)
    assert render(draw(graph, "critic"), "svg")


def test_critics_of_actions_of_several_sub_steps_are_one_network_or_one_each() -> None:
    both = two_kinds_of_heads("plan", "work")
    of_step = [twins({"x": (4,)}, {"push": (2,)}, {"choice": (3,)}) for _ in both.steps]
    graphs = actor_critic_graphs(TorchActorCritic(policy_for(both), TorchStepStateActionCritic(of_step, both)))
    assert [*graphs] == ["policy_plan", "policy_work", "critic_plan", "critic_work"]
    shared = twins({"x": (4,), "step_key": (2,)}, {"push": (2,)}, {"plan/choice": (3,), "work/choice": (3,)})
    critic = TorchSharedStateActionCritic([shared], both)
    graph = actor_critic_graphs(TorchActorCritic(policy_for(both), critic))["critic"]
    assert reads(graph)["network"] == {"x", "step_key", "push"}
    assert {box.name for box in graph.boxes if box.layer == 2} == {"plan/choice", "work/choice"}


def test_blocks_of_a_critic_of_actions_are_drawn_one_by_one() -> None:
    def judge() -> InferenceBlock:
        blocks: dict[str, PerceptionBlock] = {
            "body": DenseBlock("x", "latent", [4], [5]),
            "joined": ConcatenationBlock(["latent", "push"], "all", [[5], [2]]),
            "head": LinearOutputBlock("all", "q_value", [7], 1),
        }
        return InferenceBlock(["x", "push"], "q_value", [[4], [2]], blocks)

    push = spaces.Dict(push=spaces.Box(-1, 1, (2,)))
    flat = Spec({0: StepSpec(spaces.Dict(x=spaces.Box(-1, 1, (4,))), push, 1, 1)})
    policy = TorchPolicy([FlattenConcatPolicyNet({"x": (4,)}, {"push": (4,)})], flat)
    critic = TorchSharedStateActionCritic([[judge(), judge()]], flat)
    graph = actor_critic_graphs(TorchActorCritic(policy, critic))["critic"]
    sizes = {box.name: sum(box.parameters.values()) for box in graph.boxes if box.block}
    assert sizes == {"body": 25, "joined": 0, "head": 8}
    assert sum(map(graph.share, graph.boxes)) == pytest.approx(1.0)


# --------------------------------------------------------------------------------------------------------- pictures


def contents(graph: NetworkGraph) -> tuple[Any, list[Any], list[Any], list[np.ndarray]]:
    """The figure, extents of its boxes and texts in pixels, and points along its edges."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    figure = draw(graph, "a title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    patches = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    boxes = [patch.get_window_extent(canvas.get_renderer()) for patch in patches]
    texts = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    edges = []
    for arrow in (patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)):
        curves = [curve for curve, _ in arrow._path_original.iter_bezier()]
        edges.append(axes.transData.transform(np.concatenate([curve(np.linspace(0, 1, 30)) for curve in curves])))
    return figure, boxes, texts, edges


def inside(inner: Any, outer: Any) -> bool:
    return outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_overlaps_and_everything_is_where_it_belongs(name: str) -> None:
    graph = GRAPHS[name]()
    figure, boxes, texts, edges = contents(graph)
    assert len(boxes) == len(graph.boxes)
    assert len(edges) == len(graph.edges)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for one, other in itertools.combinations(texts, 2):
        assert not one.shrunk(0.98, 0.7).overlaps(other.shrunk(0.98, 0.7))
    homes = [[place for place, box in enumerate(boxes) if inside(text, box)] for text in texts]
    assert all(len(home) == 1 for home in homes[:-2])
    assert homes[-2:] == [[], []]  # the heading
    for extent in (*boxes, *texts):
        assert inside(extent, figure.bbox)
    for points in edges:
        for box in boxes:
            within = (points > (box.x0 + 1, box.y0 + 1)) & (points < (box.x1 - 1, box.y1 - 1))
            assert not within.all(axis=1).any(), "an edge runs through a box"
    heights = {box: places.y0 for box, places in zip(graph.boxes, boxes, strict=True)}
    assert all(heights[source] > heights[target] for source, target in graph.edges)
    given = [box for box in graph.boxes if not box.block and box.layer and box not in dict(graph.edges)]
    assert {heights[box] for box in given} == {min(heights.values())}, "outputs are not at the bottom"


def test_letters_are_legible_and_pictures_are_of_a_sensible_size() -> None:
    figure, _, texts, _ = contents(graph_of(two_modalities(), **TWO))
    with Image.open(io.BytesIO(render(figure, "png"))) as picture:
        assert 700 < picture.width < 1600 <= picture.height < 1800
    assert min(text.height for text in texts) > 14


@pytest.mark.slow
def test_a_network_of_very_many_layers_can_still_be_drawn() -> None:
    keys = [f"x_{index}" for index in range(81)]
    blocks = {key: DenseBlock(before, key, [1], [1]) for before, key in itertools.pairwise(keys)}
    chain = InferenceBlock(keys[0], keys[-1], [1], blocks)
    with Image.open(io.BytesIO(render(draw(graph_of(chain, x_0=(1,)), "chain"), "png"))) as picture:
        assert max(picture.size) <= 8000


def test_the_greater_its_share_of_the_parameters_the_deeper_the_blue_of_a_block() -> None:
    from matplotlib.patches import FancyBboxPatch

    graph = GRAPHS["two_modalities"]()
    patches = [patch for patch in draw(graph, "").axes[0].patches if isinstance(patch, FancyBboxPatch)]
    colours = [np.array(patch.get_facecolor()[:3]) for patch in patches]
    pairs = list(zip(graph.boxes, colours, strict=True))
    blocks = sorted((graph.share(box), colour.sum()) for box, colour in pairs if box.block)
    assert all(deep < light for (_, light), (_, deep) in itertools.pairwise(blocks))
    for box, (red, _, blue) in pairs:
        assert blue > red if box.block else red > blue
    assert min(colour.sum() for colour in colours) > 1.5  # or black letters could not be read


@pytest.mark.parametrize("name", ["two_modalities", "custom"])
def test_the_svg_is_xml_that_holds_all_names_shapes_and_numbers(name: str) -> None:
    graph = GRAPHS[name]()
    content = render(draw(graph, "policy"), "svg")
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    comments = {element.text.strip() for element in ElementTree.fromstring(content, parser).iter() if element.text}
    for box in graph.boxes:
        assert {box.name, box.block or str(box.shape)} <= comments
    assert "policy" in comments
    assert f"{graph.network}, {sum(graph.parameters.values()):,} parameters" in comments
    assert "83,752 parameters (92.2%)" in comments or name == "custom"


def test_names_are_drawn_as_they_are_whatever_letters_they_have() -> None:
    names = {"$x_1$": (2,), "a & b <c>": (3,), "two\nlines": (1,)}
    graph = graph_of(FlattenConcatPolicyNet(names, {r"\frac{1}{2}": (2,)}, hidden_units=[3]), **names)
    content = render(draw(graph, "$policy$"), "svg").decode()
    assert all(text in content for text in ("<!-- $x_1$ -->", "<!-- two lines -->", r"\frac{1}{2}", "$policy$"))
    ElementTree.fromstring(content)


# ------------------------------------------------------------------------------------------------------------ tables


def test_the_table_of_two_modalities_fits_into_120_columns_and_adds_up() -> None:
    text = table({"policy": graph_of(two_modalities(), **TWO)})
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0] == "policy: InferenceBlock, 90,812 parameters"
    assert [cell.strip() for cell in lines[1].split("|")] == ["block", "in", "out", "parameters", "share"]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[3:-2]]
    assert rows[1] == [
        *("screen (VGGConvolutionDenseBlock)", "observation_screen (3, 64, 64)", "screen_latent (32,)"),
        *("83,752", "92.2%"),
    ]
    assert rows[2:4] == [
        ["concat (ConcatenationBlock)", "inventory_latent (32,)", "concat (64,)", "0", "0.0%"],
        ["", "screen_latent (32,)", "", "", ""],
    ]
    assert sum(int(row[3].replace(",", "")) for row in rows if row[3]) == 90_812
    assert lines[-1] == "policy: 90,812 parameters"


@pytest.mark.parametrize("name", GRAPHS)
def test_tables_stay_narrow_however_long_names_are(name: str) -> None:
    assert max(map(len, table({name: GRAPHS[name]()}).splitlines())) <= 120


def test_shared_parameters_are_counted_once() -> None:
    body = DenseBlock("x", "latent", [4], hidden_units=[8])
    heads = {key: LinearOutputBlock("latent", key, [8], output_units=n) for key, n in {"action": 3, "value": 1}.items()}
    graphs = {
        name: graph_of(InferenceBlock("x", head, [4], {"body": body, head: heads[head]}), x=(4,))
        for name, head in {"policy": "action", "critic": "value"}.items()
    }
    text = table(graphs)
    assert "policy: InferenceBlock, 67 parameters" in text
    assert text.endswith("policy, critic: 76 parameters")


def test_matplotlib_is_imported_only_when_something_is_drawn() -> None:
    statements = ast.parse(inspect.getsource(drawing)).body
    assert not [line for line in map(ast.unparse, statements) if re.match(r"(import|from) matplotlib", line)]


def test_examples_run() -> None:
    for module in (drawing, inspect.getmodule(network_graph)):
        assert doctest.testmod(module).failed == 0
