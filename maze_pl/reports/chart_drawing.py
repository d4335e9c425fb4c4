"""Drawing of charts with matplotlib, which is imported here only."""

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any, Final

from maze_pl.reports.curves import Band, Chart, short_name
from maze_pl.reports.plain_text import printable

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00")
"""Colours that differ with every kind of colour vision: Okabe and Ito 2008, the yellow darkened."""
_STYLES: Final = ("-", "--", "-.", ":")
_INK: Final = "#1a1a19"
_INCHES: Final = (6.4, 3.6)
_MOST_LETTERS: Final = 70
_FEW_POINTS: Final = 30
_SETTINGS: Final[dict[Any, Any]] = {"svg.fonttype": "none", "svg.hashsalt": "maze_pl"}


def draw_charts(charts: Sequence[Chart], size: tuple[float, float] = _INCHES) -> Any:
    """Draw charts below each other.

    Args:
        charts: At least one chart.
        size: Width and height of a chart in inches; texts have the same size in all of them.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0], size[1] * len(charts)), layout="constrained")
    all_axes = figure.subplots(len(charts), 1, squeeze=False)[:, 0]
    for axes, chart in zip(all_axes, charts, strict=True):
        _draw(axes, chart)
    return figure


def rendered(figure: Any, form: str) -> bytes:
    """Return a figure as the content of an `svg` or `png` file, the same for the same figure."""
    import matplotlib

    content = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font does not have
        figure.savefig(content, format=form, dpi=160, metadata=metadata)
    return content.getvalue()


def inline_svg(figure: Any, label: str) -> str:
    """Return a figure as an element of an HTML page, with lines and texts in the page's colour.

    Args:
        figure: A figure of `draw_charts`.
        label: Description for screen readers, escaped for HTML.
    """
    figure.patch.set_alpha(0.0)
    for axes in figure.axes:
        axes.patch.set_alpha(0.0)
    text = rendered(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for size in ("width", "height"):  # the page decides
        text = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return text.replace(_INK, "currentColor")


def write_thousands(axis: Any) -> None:
    """Write the numbers of an axis with separators of thousands, if it reaches 1,000.

    Args:
        axis: An axis of matplotlib, after everything was drawn.
    """
    if max(abs(end) for end in axis.get_view_interval()) >= 1000:
        axis.set_major_formatter(lambda value, _: f"{value:,.12g}".replace("-", "\N{MINUS SIGN}"))


def _draw(axes: Any, chart: Chart) -> None:
    """Draw a chart."""
    scale = 1 / 60 if chart.x_axis == "wall_clock" else 1.0
    for index, band in enumerate(chart.bands):
        _draw_band(axes, band, scale, COLOURS[index % len(COLOURS)], _STYLES[index // len(COLOURS) % len(_STYLES)])
    axes.set_title(_text(short_name(chart.statistic)), fontsize=10, loc="left", color=_INK, parse_math=False)
    label = chart.step_unit if chart.x_axis == "env_steps" else "wall clock (minutes)"
    axes.set_xlabel(label, color=_INK)
    axes.tick_params(colors=_INK)
    axes.grid(visible=True, alpha=0.25, color=_INK, linewidth=0.5)
    for side, spine in axes.spines.items():
        spine.set_color(_INK)
        spine.set_visible(side in ("left", "bottom"))
    if chart.x_axis == "env_steps":
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(left=0.0)
    axes.ticklabel_format(axis="y", useOffset=False)
    write_thousands(axes.yaxis)
    if chart.bands and (len(chart.bands) > 1 or len(chart.bands[0].curves) > 1):
        legend = axes.legend(fontsize=8, frameon=False)
        for entry in legend.get_texts():
            entry.set_color(_INK)
            entry.set_parse_math(False)


def _draw_band(axes: Any, band: Band, scale: float, colour: str, style: str) -> None:
    """Draw the curves of a group, and its interquartile mean with interval if there are several."""
    n = len(band.curves)
    is_single = n == 1
    for curve in band.curves:
        marker = "o" if len(curve.x) < (_FEW_POINTS if is_single else 2) else ""
        style_of_line = {"linewidth": 1.8} if is_single else {"linewidth": 0.6, "alpha": 0.45}
        label = f" {_text(band.name)}" if is_single else None
        marks = {"marker": marker, "markersize": 3, "label": label}
        axes.plot(curve.x * scale, curve.y, color=colour, linestyle=style, **style_of_line, **marks)
    if is_single:
        return
    if not len(band.x):
        label = f" {_text(band.name)}: {n} runs without a common range"
        axes.plot([], [], color=colour, linestyle=style, linewidth=0.6, label=label)
        return
    axes.fill_between(band.x * scale, band.low, band.high, color=colour, alpha=0.22, linewidth=0)
    label = f" {_text(band.name)}: IQM of {n} runs, 95% interval"  # labels that begin with _ are not shown
    marks = {"marker": "o" if len(band.x) < _FEW_POINTS else "", "markersize": 3, "label": label}
    axes.plot(band.x * scale, band.middle, color=colour, linestyle=style, linewidth=2.0, **marks)


def _text(text: str) -> str:
    """Return a name in a line of limited length, without control characters."""
    name = printable(text).replace("\n", " ")
    return name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}…"
