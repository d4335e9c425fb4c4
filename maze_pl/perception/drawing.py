"""Networks as people look at them: a graph of blocks and tensors, found by running a network once; a table; a picture.

The layout is our own, so that no system package is needed: boxes in layers below what they read, edges only between
layers, or straight through a layer in a column of their own. Matplotlib is imported when something is drawn.
"""

import io
import textwrap
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from maze_pl.agents.network_io import NetworkInput
from maze_pl.agents.torch_actor_critic import TorchActorCritic
from maze_pl.agents.torch_state_critic import StepwiseStateCritic, TorchSharedStateCritic, shared_observation_space
from maze_pl.perception.blocks.inference import InferenceBlock
from maze_pl.perception.blocks.perception_block import PerceptionBlock
from maze_pl.perception.models.network_factory import on_zeros

_SIZE, _LETTER, _LETTERS = 10.0, 0.0837, 48  # of the font, in points; width in inches; most of a name in one line
_LINE, _PADDING, _GAP, _LAYER_GAP, _STEM = 0.2, 0.12, 0.3, 0.5, 0.14  # inches
_PIXELS_PER_INCH, _MOST_PIXELS = 160, 8_000
_SWEEPS = 40  # up and down the layers
_COLUMN = 33  # most letters in a column of a table, so that it fits into 120


@dataclass(frozen=True, eq=False)
class Box:
    """A block or a tensor.

    Attributes:
        layer: One more than the greatest of those that it depends on.
        name: Path of a block in its network; key of a tensor.
        block: Class of the block; empty for a tensor.
        shape: Of the tensor, or of what a block gives that does not name its outputs; without batch dimension.
        parameters: Identity of each of the block's parameters -> its number of elements.
    """

    layer: int
    name: str = ""
    block: str = ""
    shape: tuple[int, ...] = ()
    parameters: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkGraph:
    """Which block of a network reads and writes what.

    Attributes:
        network: Class of the network.
        boxes: Blocks and tensors, in the order of execution.
        edges: From box to box; what a block feeds back to itself is left out.
        parameters: Identity of each of the network's parameters -> its number of elements.
    """

    network: str
    boxes: Sequence[Box]
    edges: Sequence[tuple[Box, Box]]
    parameters: Mapping[int, int]

    def share(self, box: Box) -> float:
        """Share of a block's parameters in those of the network."""
        return sum(box.parameters.values()) / max(1, sum(self.parameters.values()))


# --------------------------------------------------------------------------------------------------- from networks


def actor_critic_graphs(networks: TorchActorCritic) -> dict[str, NetworkGraph]:
    """The graphs of an agent's networks.

    Returns:
        `policy` and `critic`, followed by `_<step key>` where there are several sub-steps and by `_<agent>` where each
        agent has a network of its own.
    """
    critic, spec, graphs = networks.critic, networks.policy.spec, dict[str, NetworkGraph]()
    for index, (key, step) in enumerate(spec.steps.items()):
        suffix, own = f"_{key}" * (len(spec.steps) > 1), cast(Any, networks.policy.networks[index])
        found = {f"policy{suffix}" + f"_{agent}" * (len(own) > 1): network for agent, network in enumerate(own)}
        if isinstance(critic, StepwiseStateCritic):
            found[f"critic{suffix}"] = critic.networks[index]
        graphs |= {name: network_graph(network, step.observation_space) for name, network in found.items()}
    if isinstance(critic, TorchSharedStateCritic):
        graphs["critic"] = network_graph(critic.network, shared_observation_space(spec))
    return graphs


def network_graph(network: nn.Module, observation_space: spaces.Dict) -> NetworkGraph:
    """Find a network's graph by running it on zeros, in evaluation mode and without touching random generators.

    Blocks are perception blocks, those of an `InferenceBlock` one by one, and of other modules the innermost ones.

    Args:
        network: Takes a dict of observations and gives a dict of tensors.
        observation_space: What it sees.

    Example:
        >>> from maze_pl.perception import FlattenConcatStateValueNet
        >>> graph = network_graph(FlattenConcatStateValueNet({"x": (4,)}), spaces.Dict({"x": spaces.Box(-1, 1, (4,))}))
        >>> [box.block or box.name for box in graph.boxes]
        ['x', 'Linear', 'Tanh', 'Linear', 'Tanh', 'Linear', 'value']
    """
    trace, device = _Trace(), NetworkInput(network).device
    hooks = [network.register_forward_pre_hook(trace.begin)]
    hooks += [part.register_forward_hook(partial(trace.ran, name), with_kwargs=True) for name, part in _parts(network)]
    try:
        with trace, torch.random.fork_rng([device] if device.type == "cuda" else []):
            output = on_zeros(network, observation_space)
    finally:
        for hook in hooks:
            hook.remove()
    for name, tensor in output.items():
        trace.read(name, tensor, "output")
    boxes, parameters = list(trace.boxes.values()), _sizes(network)
    known = {key for box in boxes for key in box.parameters}
    if own := {key: size for key, size in parameters.items() if key not in known}:
        boxes.append(Box(0, "parameters of its own", type(network).__name__, (), own))
    return NetworkGraph(type(network).__name__, boxes, list(trace.edges), parameters)


def _parts(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """What is drawn as one box, with its path."""
    is_torchs = type(module).__module__.startswith("torch.")
    is_whole = isinstance(module, PerceptionBlock) or (is_torchs and _sizes(module, recurse=False))
    graph = module.perception_blocks if isinstance(module, InferenceBlock) else {}
    inner: Mapping[str, nn.Module] = graph or ({} if is_whole else dict(module.named_children()))
    for name, child in inner.items():
        yield from _parts(child, f"{path}.{name}" if path else name)
    if not inner:
        yield path or "network", module


def _sizes(module: nn.Module, recurse: bool = True) -> dict[int, int]:
    return {id(parameter): parameter.numel() for parameter in module.parameters(recurse)}


class _Trace(TorchFunctionMode):
    """Follows tensors through all that happens to them, from the boxes in which they arise to those that read them."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[Hashable, Box] = {}
        self.edges: dict[tuple[Box, Box], None] = {}
        self._sources: dict[int, tuple[Tensor, Sequence[Box]]] = {}  # by id; kept alive, so that none is used again

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._set(args[:1] if result is None else result, self._of((args, kwargs)))  # None of x[...] = y
        return result

    def _of(self, value: Any) -> list[Box]:
        """Boxes in which the tensors of something arise."""
        known = [self._sources[id(leaf)][1] for leaf in tree_leaves(value) if id(leaf) in self._sources]
        return list(dict.fromkeys(box for boxes in known for box in boxes))

    def _set(self, value: Any, sources: Sequence[Box]) -> None:
        self._sources |= {id(leaf): (leaf, sources) for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}

    def _add(self, identity: Hashable, sources: Sequence[Box], result: Any, *description: Any) -> Box:
        layer = max((source.layer + 1 for source in sources), default=0)
        box = self.boxes.setdefault(identity, Box(layer, *description))
        self.edges |= {(source, box): None for source in sources if source.layer < box.layer}
        self._set(result, [box])
        return box

    def begin(self, network: nn.Module, args: Any) -> None:
        """Take in what a network is about to read."""
        for key, tensor in args[0].items():
            self.read(key, tensor, "input")

    def read(self, key: str, tensor: Tensor, reader: Hashable) -> Box:
        """The box of a tensor that is read under a key, a new one if it has no such box yet."""
        sources, shape = self._of(tensor), tuple(tensor.shape[1:])
        if [(box.block, box.name, box.shape) for box in sources] == [("", key, shape)]:
            return sources[0]
        return self._add((reader, key), sources, tensor, key, "", shape)

    def ran(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        """Take in that a block has run; what it gives are tensors of their own from now on."""
        output = tree_map(lambda leaf: leaf.view_as(leaf) if isinstance(leaf, Tensor) else leaf, output)
        shape = next((tuple(leaf.shape[1:]) for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), ())
        sources, named = self._of((args, kwargs)), dict[str, Tensor]()
        if isinstance(module, PerceptionBlock):
            given = next(iter((*args, *kwargs.values())))
            keys = [key for key in (*module.in_keys, *getattr(module, "state_shapes", {})) if key in given]
            sources = [self.read(key, given[key], module) for key in keys]
            shape, named = (), output
        box = self._add(module, sources, output, name, type(module).__name__, shape, _sizes(module))
        for key, tensor in named.items():
            self._add((module, "output", key), [box], tensor, key, "", tuple(tensor.shape[1:]))
        return output


# -------------------------------------------------------------------------------------------------------- as table


def table(graphs: Mapping[str, NetworkGraph]) -> str:
    """Networks as tables `block|in|out|parameters|share`; `*` marks blocks whose parameters several networks have.

    Args:
        graphs: By name, as from `actor_critic_graphs`.
    """
    users, lines = Counter(parameter for graph in graphs.values() for parameter in graph.parameters), list[str]()
    for name, graph in graphs.items():
        rows: list[tuple[str, ...]] = [("block", "in", "out", "parameters", "share")]
        for box in (box for box in graph.boxes if box.block):
            inputs = [f"{source.name} {source.shape}" for source, target in graph.edges if target is box]
            read = [target for source, target in graph.edges if source is box and not target.block]
            outputs = [f"{target.name} {target.shape}" for target in read] or [str(box.shape)]
            number = f"{sum(box.parameters.values()):,}" + "*" * any(users[key] > 1 for key in box.parameters)
            cells = [[f"{box.name} ({box.block})"], inputs, outputs, [number], [f"{graph.share(box):.1%}"]]
            wrapped = ([part for cell in column for part in _wrapped(cell, _COLUMN)] for column in cells)
            rows += zip_longest(*wrapped, fillvalue="")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("=" * width for width in widths))
        padded = ([f"{cell:{way}{n}}" for cell, way, n in zip(row, "<<<>>", widths, strict=True)] for row in rows)
        lines += [f"{name}: {graph.network}, {_count(graph.parameters)}", *map("|".join, padded), ""]
    every = {key: size for graph in graphs.values() for key, size in graph.parameters.items()}
    shared = {key: size for key, size in every.items() if users[key] > 1}
    remark = f"; those of several networks (*) are counted once: {_count(shared)}" if shared else ""
    return "\n".join([*lines, f"{', '.join(graphs)}: {_count(every)}{remark}"])


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most a width, which end at spaces and underscores where they can."""
    return [line.replace("_ ", "_") for line in textwrap.wrap(text.replace("_", "_ "), width)]


def _count(parameters: Mapping[int, int]) -> str:
    return f"{sum(parameters.values()):,} parameters" if parameters else "no parameters"


# ------------------------------------------------------------------------------------------------------ as picture


def draw(graph: NetworkGraph, title: str) -> Any:
    """Draw a network: blocks in blue, the deeper the greater their share of the parameters, and tensors in red.

    Args:
        graph: The network.
        title: Stands above, with the class of the network and its number of parameters.

    Returns:
        A matplotlib figure of its own, not of pyplot's global state; `render` gives the content of a file.
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
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-half, half), ylim=(bottom, top))
    axes.set_axis_off()
    for route in routes:
        points = route[:1]
        for (x0, y0), (x1, y1) in pairwise(route):
            points += [(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)]
        path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, color="#666666"))
    font = {"family": "DejaVu Sans Mono", "size": _SIZE, "ha": "center", "va": "center_baseline", "color": "black"}
    for box, lines in texts.items():
        (x, y, width, height), depth = places[box], graph.share(box) ** 0.5
        blue = (0.95 - 0.57 * depth, 0.97 - 0.33 * depth, 1 - 0.07 * depth)
        fill, edge, radius = (blue, "#2f6fb3", 0.06) if box.block else ((0.99, 0.91, 0.9), "#c9504a", 0.18)
        if box is not heading:
            corner, shape = (x - width / 2, y - height / 2), f"round,pad=0,rounding_size={radius}"
            axes.add_patch(FancyBboxPatch(corner, width, height, shape, facecolor=fill, edgecolor=edge))
        for index, line in enumerate(lines, start=1):
            place, weight = (x, y + _LINE * (index - (len(lines) + 1) / 2)), "bold" if index == 1 else "normal"
            axes.text(*place, line, font, weight=weight, parse_math=False, usetex=False)
    return figure


def render(figure: Any, form: str) -> bytes:
    """The content of a file of a figure, the same for the same figure: `svg`, or `png`."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "maze_pl", "svg.fonttype": "path"}):
        figure.savefig(content, format=form, dpi="figure", metadata={"Date": None} if form == "svg" else None)
    return content.getvalue()


def _lines(graph: NetworkGraph, box: Box) -> list[str]:
    """What stands in a box."""
    name, shape = _wrapped(box.name, _LETTERS), [str(box.shape)]
    if not box.block:
        return name + shape
    share = f" ({graph.share(box):.1%})" if box.parameters else ""
    return [box.block, *name, _count(box.parameters) + share, *(shape if box.shape else [])]


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * _LETTER + 2 * _PADDING


def _layout(edges: Sequence[tuple[Box, Box]], texts: Mapping[Box, Sequence[str]]) -> tuple[dict[Box, Any], list[Any]]:
    """Centre, width and height of each box, also of stretches of edges through layers; points of each edge."""
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
    """Where each box is from left to right: as near to the mean of its neighbours as others in its row allow.

    Each row is brought into the order of these means, going up and down, so that few edges cross; when that is settled,
    edges through layers are made straight.
    """
    near: dict[tuple[Box, bool], list[Box]] = defaultdict(list)  # those above, and those below
    for above, below in pairs:
        near[below, False].append(above)
        near[above, True].append(below)
    xs = dict.fromkeys(widths, 0.0)
    for sweep in range(_SWEEPS):
        up, settled = sweep % 2 == 1, sweep >= _SWEEPS / 2
        for row in reversed(rows) if up else rows:
            means = {}
            for box in row:
                others = near[box, False] + near[box, True] * (widths[box] > 0) if settled else near[box, up]
                means[box] = sum(xs[other] for other in others or [box]) / len(others or [box])
            if not settled:
                row.sort(key=means.__getitem__)
            offsets = np.cumsum([0, *((widths[a] + widths[b]) / 2 + _GAP for a, b in pairwise(row))])
            # Isotonic regression: greatest over its beginnings of the least mean over its ends.
            sums, steps = np.cumsum([0, *([means[box] for box in row] - offsets)]), np.arange(len(row))
            stretches = (sums[1:] - sums[:-1, None]) / np.maximum(steps - steps[:, None] + 1, 1)
            least = np.minimum.accumulate(stretches[:, ::-1], 1)[:, ::-1]
            xs |= zip(row, (np.maximum.accumulate(least).diagonal() + offsets).tolist(), strict=True)
    left, right = (way * max(way * x + widths[box] / 2 for box, x in xs.items()) for way in (-1, 1))
    return {box: x - (left + right) / 2 for box, x in xs.items()}
