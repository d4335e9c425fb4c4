"""Views of networks: a graph of blocks and tensors, a table, and a picture.

The layout is computed here, so that no system package is needed: each box is in a layer below its
inputs, and edges run between layers, or straight through a layer in a separate column. Matplotlib
is imported on drawing.
"""

import copy
import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, zip_longest
from statistics import fmean
from typing import Any, cast

import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents.network_io import NetworkInput, state_shapes
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_action_critic import TorchStateActionCritic
from maze_pl.agents.torch_state_critic import StepwiseStateCritic, TorchSharedStateCritic
from maze_pl.core.actor_id import StepKey
from maze_pl.perception.blocks.composed import InferenceBlock
from maze_pl.perception.blocks.perception_block import PerceptionBlock
from maze_pl.perception.network_construction import on_zeros

_SIZE, _LETTER, _LETTERS = (
    10.0,
    0.0837,
    48,
)  # font size in points; letter width in inches; letters per line
_LINE, _PADDING, _GAP, _LAYER_GAP, _STEM = 0.2, 0.12, 0.3, 0.5, 0.14  # inches
_PIXELS_PER_INCH, _MOST_PIXELS = 160, 8_000
_SWEEPS, _COLUMN = (
    10,
    33,
)  # sweeps through the layers; maximum letters in a table column, for lines within 120


@dataclass(frozen=True, eq=False)
class Box:
    """A block or a tensor.

    Attributes:
        layer: One more than the greatest layer among its inputs; 0 without inputs.
        name: Path of a block in its network; key of a tensor.
        block: Class of the block; empty for a tensor.
        shape: Shape of the tensor, without batch dimension.
        parameters: Identity of each of the block's parameters -> its number of elements.
    """

    layer: int
    name: str = ""
    block: str = ""
    shape: tuple[int, ...] = ()
    parameters: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkGraph:
    """Graph of a network's blocks and the tensors that they read and write.

    Attributes:
        network: Class of the network.
        parameters: Identity of each of the network's parameters -> its number of elements.
        boxes: Blocks and tensors, in the order of execution.
        edges: Pairs (source, target) of boxes.
    """

    network: str
    parameters: Mapping[int, int]
    boxes: list[Box] = field(default_factory=list)
    edges: list[tuple[Box, Box]] = field(default_factory=list)

    def share(self, box: Box) -> float:
        """Fraction of the network's parameters that belong to a block."""
        return sum(box.parameters.values()) / max(1, sum(self.parameters.values()))

    def add(self, sources: Sequence[Box], *description: Any) -> Box:
        """Add a box that depends on others."""
        box = Box(max((source.layer + 1 for source in sources), default=0), *description)
        self.boxes.append(box)
        self.edges.extend((source, box) for source in sources)
        return box

    def add_blocks(self, module: nn.Module, path: str, tensors: dict[str, Box]) -> None:
        """Add a module's blocks, inputs and outputs; an `InferenceBlock` is added block by block.

        Args:
            module: A block or any other module.
            path: Path of the module in the network: names, each followed by a dot.
            tensors: Key -> box of each tensor that blocks may read; their outputs are added to it.
        """
        if isinstance(module, InferenceBlock):
            inner = dict(tensors)
            for name, block in module.perception_blocks.items():
                self.add_blocks(block, f"{path}{name}.", inner)
            tensors |= {key: inner[key] for key in (*module.out_keys, *module.state_shapes)}
        elif isinstance(module, PerceptionBlock):
            state = getattr(module, "state_shapes", {})
            read = dict(zip(module.in_keys, module.in_shapes, strict=True)) | state
            written = dict(zip(module.out_keys, module.out_shapes(), strict=True)) | state
            for key in [key for key in read if key not in tensors]:  # computed outside of the blocks
                tensors[key] = self.add((), key, "", read[key])
            box = self.add(
                [tensors[key] for key in read],
                path[:-1] or "network",
                type(module).__name__,
                (),
                _sizes(module),
            )
            tensors |= {key: self.add([box], key, "", shape) for key, shape in written.items()}
        else:
            for name, child in module.named_children():
                self.add_blocks(child, f"{path}{name}.", tensors)


# --------------------------------------------------------------------------------------------------- from networks


def actor_critic_graphs(networks: TorchActorCritic) -> dict[str, NetworkGraph]:
    """Return the graphs of an agent's networks.

    Returns:
        Name -> graph. Names are `policy` and `critic`, followed by `_<step key>` if there are
        several sub-steps and by `_<agent>` if agents have separate networks. For twin Q-networks,
        which differ only in weights, the graph shows the first.
    """
    critic, spec, graphs = networks.critic, networks.policy.spec, dict[str, NetworkGraph]()
    inner = next((part for part in networks.policy.modules() if isinstance(part, TorchPolicy)), None)
    for index, (key, step) in enumerate(spec.steps.items() if inner is not None else ()):  # policy may be wrapped
        name, own = "policy" + f"_{key}" * (len(spec.steps) > 1), cast(Any, inner).networks[index]
        for agent, network in enumerate(own):
            graphs[name + f"_{agent}" * (len(own) > 1)] = network_graph(network, step.observation_space)
    seen, parts = dict[StepKey, spaces.Dict](), list[nn.Module]()
    if isinstance(critic, TorchStateActionCritic):
        parts = [_first_twin(part) for part in critic.parts]
        critic_inputs = critic.critic_inputs(spec).items()
        seen = {
            key: spaces.Dict({**one.observation_space.spaces, **one.action_space.spaces}) for key, one in critic_inputs
        }
    elif isinstance(critic, TorchSharedStateCritic | StepwiseStateCritic):
        parts, seen = [*critic.parts], critic.critic_inputs(spec)
    for (key, space), network in zip(seen.items(), parts, strict=True):
        graphs["critic" + f"_{key}" * (len(seen) > 1)] = network_graph(network, space)
    return graphs


def _first_twin(both: nn.Module) -> nn.Module:
    """The first of two networks whose parameters are stacked [2, ...]."""
    tensors = [*both.parameters(), *both.buffers()]
    return copy.deepcopy(both, {id(tensor): tensor.detach()[0] for tensor in tensors})


def network_graph(network: nn.Module, observation_space: spaces.Dict) -> NetworkGraph:
    """Return the graph of a network's blocks; everything outside of blocks is one box.

    The network runs once on zeros, in evaluation mode, without changing random generators.

    Args:
        network: Takes a dict of observations and returns a dict of tensors.
        observation_space: Its observations.

    Example:
        >>> from maze_pl.perception import FlattenConcatStateValueNet
        >>> graph = network_graph(FlattenConcatStateValueNet({"x": (4,)}), spaces.Dict({"x": spaces.Box(-1, 1, (4,))}))
        >>> [box.block or box.name for box in graph.boxes]
        ['x', 'FlattenConcatStateValueNet', 'value']
    """
    device = NetworkInput(network).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        output = on_zeros(network, observation_space)
    graph = NetworkGraph(type(network).__name__, _sizes(network))
    seen = {name: space.shape or () for name, space in observation_space.items()} | state_shapes(network)
    tensors = {key: graph.add((), key, "", shape) for key, shape in seen.items()}
    graph.add_blocks(network, "", tensors)
    in_blocks = {key for box in graph.boxes for key in box.parameters}
    others = {key: size for key, size in graph.parameters.items() if key not in in_blocks}
    missing = [key for key in output if key not in tensors or tensors[key].layer == 0]
    if others or missing:
        read = {source for source, _ in graph.edges}
        unread = [box for key, box in tensors.items() if box not in read and (key in missing or key not in output)]
        box = graph.add(
            unread,
            "network" if others == graph.parameters else "all else",
            graph.network,
            (),
            others,
        )
        for key in missing:
            graph.add([box], key, "", tuple(output[key].shape[1:]))
    return graph


def _sizes(module: nn.Module) -> dict[int, int]:
    return {id(parameter): parameter.numel() for parameter in module.parameters()}


# -------------------------------------------------------------------------------------------------------- as table


def table(graphs: Mapping[str, NetworkGraph]) -> str:
    """Return tables `block|in|out|parameters|share`; the total counts shared parameters once.

    Args:
        graphs: Name -> graph, as from `actor_critic_graphs`.
    """
    lines = list[str]()
    for name, graph in graphs.items():
        rows: list[tuple[str, ...]] = [("block", "in", "out", "parameters", "share")]
        for box in (box for box in graph.boxes if box.block):
            inputs = [f"{source.name} {source.shape}" for source, target in graph.edges if target is box]
            outputs = [f"{target.name} {target.shape}" for source, target in graph.edges if source is box]
            numbers = [f"{sum(box.parameters.values()):,}"], [f"{graph.share(box):.1%}"]
            cells = [[f"{box.name} ({box.block})"], inputs, outputs, *numbers]
            wrapped = ([part for cell in column for part in _wrapped(cell, _COLUMN)] for column in cells)
            rows += zip_longest(*wrapped, fillvalue="")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("=" * width for width in widths))
        padded = ([f"{cell:{way}{n}}" for cell, way, n in zip(row, "<<<>>", widths, strict=True)] for row in rows)
        lines += [
            f"{name}: {graph.network}, {_count(graph.parameters)}",
            *map("|".join, padded),
            "",
        ]
    every = {key: size for graph in graphs.values() for key, size in graph.parameters.items()}
    return "\n".join([*lines, f"{', '.join(graphs)}: {_count(every)}"])


def _wrapped(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width`, at spaces and underscores if possible."""
    return [line.replace("_ ", "_") for line in textwrap.wrap(text.replace("_", "_ "), width)]


def _count(parameters: Mapping[int, int]) -> str:
    return f"{sum(parameters.values()):,} parameters" if parameters else "no parameters"


# ------------------------------------------------------------------------------------------------------ as picture


def draw(graph: NetworkGraph, title: str) -> Any:
    """Draw a network: blocks in blue, darker for a greater share of parameters, and tensors in red.

    Args:
        graph: The network.
        title: Shown at the top, with the class of the network and its number of parameters.

    Returns:
        A matplotlib figure that is not in pyplot's global state; `render` returns the content of a
        file.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    from matplotlib.path import Path

    texts = {box: _lines(graph, box) for box in graph.boxes}
    places, routes = _layout(graph.edges, texts)
    texts[heading := Box(-1)] = [title, f"{graph.network}, {_count(graph.parameters)}"]
    places[heading] = 0.0, -2.2 * _LINE, _width(texts[heading]), 2 * _LINE
    half = max(abs(x) + width / 2 for x, _, width, _ in places.values()) + _GAP
    top, bottom = -4 * _LINE, max(y + height / 2 for _, y, _, height in places.values()) + _GAP
    dpi = min(_PIXELS_PER_INCH, _MOST_PIXELS / max(2 * half, bottom - top))
    figure = Figure((2 * half, bottom - top), dpi, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-half, half), ylim=(bottom, top), frame_on=False, xticks=[], yticks=[])
    for route in routes:
        points = route[:1]
        for (x0, y0), (x1, y1) in pairwise(route):
            points += [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
        path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, color="#666666"))
    font = {
        "family": "DejaVu Sans Mono",
        "size": _SIZE,
        "ha": "center",
        "va": "center_baseline",
        "color": "black",
    }
    for box, lines in texts.items():
        (x, y, width, height), depth = places[box], graph.share(box) ** 0.5
        blue = (0.95 - 0.57 * depth, 0.97 - 0.33 * depth, 1 - 0.07 * depth)
        fill, edge, radius = (blue, "#2f6fb3", 0.06) if box.block else ((0.99, 0.91, 0.9), "#c9504a", 0.18)
        if box is not heading:
            corner, shape = (x - width / 2, y - height / 2), f"round,pad=0,rounding_size={radius}"
            axes.add_patch(FancyBboxPatch(corner, width, height, shape, facecolor=fill, edgecolor=edge))
        for index, line in enumerate(lines, start=1):
            place, weight = (
                (x, y + _LINE * (index - (len(lines) + 1) / 2)),
                "bold" if index == 1 else "normal",
            )
            axes.text(*place, line, font, weight=weight, parse_math=False, usetex=False)
    return figure


def render(figure: Any, form: str) -> bytes:
    """Return a figure as the content of an `svg` or `png` file."""
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi="figure")
    return content.getvalue()


def _lines(graph: NetworkGraph, box: Box) -> list[str]:
    """Lines of text in a box."""
    name, share = (
        _wrapped(box.name, _LETTERS),
        f" ({graph.share(box):.1%})" if box.parameters else "",
    )
    return [box.block, *name, _count(box.parameters) + share] if box.block else [*name, str(box.shape)]


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * _LETTER + 2 * _PADDING


def _layout(edges: Sequence[tuple[Box, Box]], texts: Mapping[Box, Sequence[str]]) -> tuple[dict[Box, Any], list[Any]]:
    """Centre, width and height of each box and of edges' segments in layers; points of each edge."""
    last, read = max(box.layer for box in texts), {source for source, _ in edges}
    layers = {box: box.layer if box in read or not box.layer else last for box in texts}  # outputs at the bottom
    widths, chains = {box: _width(lines) for box, lines in texts.items()}, []
    for source, target in edges:
        passed = [Box(layer) for layer in range(layers[source] + 1, layers[target])]
        chains.append([source, *passed, target])
        layers |= {box: box.layer for box in passed}
        widths |= dict.fromkeys(passed, 0.0)
    rows = [[box for box, layer in layers.items() if layer == index] for index in range(last + 1)]
    xs = _columns(rows, [pair for chain in chains for pair in pairwise(chain)], widths)
    heights = [_LINE * max(len(texts.get(box, ())) for box in row) + _PADDING for row in rows]
    tops = [sum(heights[:index]) + index * _LAYER_GAP for index in range(last + 1)]
    places = {box: (xs[box], tops[i] + heights[i] / 2, widths[box], heights[i]) for box, i in layers.items()}
    routes = []
    for chain in chains:  # curves between layers, straight through them
        ends = [(xs[box], tops[layers[box]] + y) for box in chain for y in (-_STEM, heights[layers[box]])]
        routes.append([*ends[1:-1], (ends[-1][0], tops[layers[chain[-1]]])])
    return places, routes


def _columns(rows: list[list[Box]], pairs: Sequence[tuple[Box, Box]], widths: Mapping[Box, float]) -> dict[Box, float]:
    """Horizontal centre of each box: boxes side by side, with the middle of each row at 0.

    Sweeps down and up sort each row by the mean position of each box's neighbours, so that few
    edges cross.
    """
    near = {box: [box] for box in widths}
    for above, below in pairs:
        near[below].append(above)
        near[above].append(below)
    xs = dict.fromkeys(widths, 0.0)
    for row in [*rows, *reversed(rows)] * _SWEEPS:
        row.sort(key=lambda box: fmean(xs[other] for other in near[box]))
        ends = list(accumulate(widths[box] + _GAP for box in row))
        xs |= {box: end - (widths[box] + _GAP + ends[-1]) / 2 for box, end in zip(row, ends, strict=True)}
    return xs
