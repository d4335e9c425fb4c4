"""Views of networks: a table, and a picture.

The layout is computed here, so that no system package is needed: each box is in a layer below its
inputs, and edges run between layers, or straight through a layer in a separate column. Matplotlib
is imported on drawing.
"""

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest
from statistics import fmean
from typing import Any, NamedTuple

from maze_pl.perception.network_graph import NetworkBox, NetworkGraph

_SIZE = 10.0  # font size in points
_LETTER = 0.0837  # width of a letter in inches
_LETTERS = 48  # maximum letters in a line of a box
_LINE = 0.2  # inches, as all of the following lengths
_PADDING = 0.12
_GAP = 0.3
_LAYER_GAP = 0.5
_STEM = 0.14
_PIXELS_PER_INCH = 160
_MOST_PIXELS = 8_000
_SWEEPS = 10  # through the layers
_COLUMN = 33  # maximum letters in a table column, for lines within 120


# ------------------------------------------------------------------------------------ as table


class _Row(NamedTuple):
    """A line of a table; a cell of a block may take several lines."""

    block: str
    inputs: str
    outputs: str
    parameters: str
    share: str


def table(graphs: Mapping[str, NetworkGraph]) -> str:
    """Return tables `block|in|out|parameters|share`; the total counts shared parameters once.

    Args:
        graphs: Name -> graph, as from `actor_critic_graphs`.
    """
    lines: list[str] = []
    parameters: dict[int, int] = {}
    for name, graph in graphs.items():
        parameters |= graph.parameters
        rows = [_Row("block", "in", "out", "parameters", "share")]
        for box in graph.boxes:
            if box.block:
                rows += _rows(graph, box)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, _Row(*("=" * width for width in widths)))
        lines.append(f"{name}: {graph.network}, {_count(graph.parameters)}")
        lines += [_line(row, widths) for row in rows]
        lines.append("")
    return "\n".join([*lines, f"{', '.join(graphs)}: {_count(parameters)}"])


def _rows(graph: NetworkGraph, box: NetworkBox) -> list[_Row]:
    """Lines of a block in a table."""
    inputs: list[str] = []
    outputs: list[str] = []
    for source, target in graph.edges:
        if target is box:
            inputs += _wrapped(f"{source.name} {source.shape}", _COLUMN)
        if source is box:
            outputs += _wrapped(f"{target.name} {target.shape}", _COLUMN)
    cells = zip_longest(
        _wrapped(f"{box.name} ({box.block})", _COLUMN),
        inputs,
        outputs,
        [f"{sum(box.parameters.values()):,}"],
        [f"{graph.share(box):.1%}"],
        fillvalue="",
    )
    return [_Row(*texts) for texts in cells]


def _line(row: _Row, widths: Sequence[int]) -> str:
    """Pad the cells of a row: texts to the right, numbers to the left."""
    cells = [text.ljust(width) for text, width in zip(row[:3], widths[:3], strict=True)]
    cells += [text.rjust(width) for text, width in zip(row[3:], widths[3:], strict=True)]
    return "|".join(cells)


def _wrapped(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width`, at spaces and underscores if possible."""
    return [line.replace("_ ", "_") for line in textwrap.wrap(text.replace("_", "_ "), width)]


def _count(parameters: Mapping[int, int]) -> str:
    return f"{sum(parameters.values()):,} parameters" if parameters else "no parameters"


# ---------------------------------------------------------------------------------- as picture


class _Place(NamedTuple):
    """Centre, width and height of a box, in inches."""

    x: float
    y: float
    width: float
    height: float


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

    texts = {box: _lines(graph, box) for box in graph.boxes}
    places, routes = _layout(graph.edges, texts)
    heading = NetworkBox(-1)
    texts[heading] = [title, f"{graph.network}, {_count(graph.parameters)}"]
    places[heading] = _Place(0.0, -2.2 * _LINE, _width(texts[heading]), 2 * _LINE)
    half = max(abs(place.x) + place.width / 2 for place in places.values()) + _GAP
    top = -4 * _LINE
    bottom = max(place.y + place.height / 2 for place in places.values()) + _GAP
    dpi = min(_PIXELS_PER_INCH, _MOST_PIXELS / max(2 * half, bottom - top))
    figure = Figure((2 * half, bottom - top), dpi, facecolor="white")
    axes = figure.add_axes(
        (0, 0, 1, 1),
        xlim=(-half, half),
        ylim=(bottom, top),
        frame_on=False,
        xticks=[],
        yticks=[],
    )
    for route in routes:
        _draw_arrow(axes, route)
    for box, lines in texts.items():
        if box is not heading:
            _draw_frame(axes, places[box], _style(graph, box))
        _draw_text(axes, places[box], lines)
    return figure


def _draw_arrow(axes: Any, route: list[tuple[float, float]]) -> None:
    """Draw a curve through points, which is vertical at each of them."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    points = route[:1]
    for (x0, y0), (x1, y1) in pairwise(route):
        middle = (y0 + y1) / 2
        points += [(x0, middle), (x1, middle), (x1, y1)]
    path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, color="#666666"))


def _draw_frame(axes: Any, place: _Place, style: dict[str, Any]) -> None:
    """Draw the frame of a box."""
    from matplotlib.patches import FancyBboxPatch

    corner = (place.x - place.width / 2, place.y - place.height / 2)
    axes.add_patch(FancyBboxPatch(corner, place.width, place.height, **style))


def _draw_text(axes: Any, place: _Place, lines: Sequence[str]) -> None:
    """Write lines around the centre of a box, the first one in bold."""
    font = {
        "family": "DejaVu Sans Mono",
        "size": _SIZE,
        "ha": "center",
        "va": "center_baseline",
        "color": "black",
    }
    first = place.y - _LINE * (len(lines) - 1) / 2
    for index, line in enumerate(lines):
        weight = "normal" if index else "bold"
        axes.text(place.x, first + _LINE * index, line, font, weight=weight, parse_math=False, usetex=False)


def render(figure: Any, form: str) -> bytes:
    """Return a figure as the content of an `svg` or `png` file."""
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi="figure")
    return content.getvalue()


def _style(graph: NetworkGraph, box: NetworkBox) -> dict[str, Any]:
    """Shape and colours of a box: blue for blocks, darker for more parameters, red for tensors."""
    fill = (0.99, 0.91, 0.9)
    edge = "#c9504a"
    radius = 0.18
    if box.block:
        depth = graph.share(box) ** 0.5
        fill = (0.95 - 0.57 * depth, 0.97 - 0.33 * depth, 1 - 0.07 * depth)
        edge = "#2f6fb3"
        radius = 0.06
    shape = f"round,pad=0,rounding_size={radius}"
    return {"boxstyle": shape, "facecolor": fill, "edgecolor": edge}


def _lines(graph: NetworkGraph, box: NetworkBox) -> list[str]:
    """Lines of text in a box."""
    name = _wrapped(box.name, _LETTERS)
    if not box.block:
        return [*name, str(box.shape)]
    share = f" ({graph.share(box):.1%})" if box.parameters else ""
    return [box.block, *name, _count(box.parameters) + share]


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * _LETTER + 2 * _PADDING


def _layout(
    edges: Sequence[tuple[NetworkBox, NetworkBox]], texts: Mapping[NetworkBox, Sequence[str]]
) -> tuple[dict[NetworkBox, _Place], list[list[tuple[float, float]]]]:
    """Place boxes in layers.

    Args:
        edges: Pairs (source, target) of boxes.
        texts: Lines of text in each box.

    Returns:
        The place of each box and of the segments in which edges pass through layers, and the points
        of each edge.
    """
    layers = _layers(edges, texts)
    last = max(layers.values())
    widths = {box: _width(lines) for box, lines in texts.items()}
    chains: list[list[NetworkBox]] = []  # boxes and segments along each edge
    for source, target in edges:
        segments = [NetworkBox(layer) for layer in range(layers[source] + 1, layers[target])]
        chains.append([source, *segments, target])
        for segment in segments:
            layers[segment] = segment.layer
            widths[segment] = 0.0
    rows: list[list[NetworkBox]] = [[] for _ in range(last + 1)]
    for box, layer in layers.items():
        rows[layer].append(box)
    pairs: list[tuple[NetworkBox, NetworkBox]] = []
    for chain in chains:
        pairs += pairwise(chain)
    xs = _columns(rows, pairs, widths)
    heights = []
    for row in rows:
        n_lines = max(len(texts.get(box, ())) for box in row)
        heights.append(_LINE * n_lines + _PADDING)
    tops = [sum(heights[:layer]) + layer * _LAYER_GAP for layer in range(last + 1)]
    places = {}
    for box, layer in layers.items():
        middle = tops[layer] + heights[layer] / 2
        places[box] = _Place(xs[box], middle, widths[box], heights[layer])
    routes = []
    for chain in chains:  # curves between layers, straight through them
        points = []
        for box in chain:
            top = tops[layers[box]]
            bottom = top + heights[layers[box]]
            points += [(xs[box], top - _STEM), (xs[box], bottom)]
        end = (xs[chain[-1]], tops[layers[chain[-1]]])
        routes.append([*points[1:-1], end])  # from below the source to the top of the target
    return places, routes


def _layers(edges: Sequence[tuple[NetworkBox, NetworkBox]], boxes: Iterable[NetworkBox]) -> dict[NetworkBox, int]:
    """Layer of each box; those that nothing reads, the outputs, are in the last one."""
    layers = {box: box.layer for box in boxes}
    last = max(layers.values())
    read = {source for source, _ in edges}
    for box in layers:
        if box.layer > 0 and box not in read:
            layers[box] = last
    return layers


def _columns(
    rows: list[list[NetworkBox]],
    pairs: Sequence[tuple[NetworkBox, NetworkBox]],
    widths: Mapping[NetworkBox, float],
) -> dict[NetworkBox, float]:
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
        for box, end in zip(row, ends, strict=True):
            xs[box] = end - (widths[box] + _GAP + ends[-1]) / 2
    return xs
