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
_ROW: Final = 0.17
"""Height of a row of a legend in inches."""
_LETTERS_PER_INCH: Final = 16
_LETTERS_OF_A_LINE: Final = 9
"""Room in a legend for the line before a name."""
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

    heights = [size[1] + _ROW * _n_rows(chart, size[0]) for chart in charts]
    figure = Figure(figsize=(size[0], sum(heights)), layout="constrained")
    all_axes = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, chart in zip(all_axes, charts, strict=True):
        _draw(axes, chart, size[0])
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


def _draw(axes: Any, chart: Chart, width: float) -> None:
    """Draw a chart with a width in inches."""
    scale = 1 / 60 if chart.x_axis == "wall_clock" else 1.0
    for index, band in enumerate(chart.bands):
        _draw_band(axes, band, scale, COLOURS[index % len(COLOURS)], _STYLES[index // len(COLOURS) % len(_STYLES)])
    title = _text(short_name(chart.statistic))
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
    if not _has_legend(chart):
        axes.set_title(title, fontsize=10, loc="left", color=_INK, parse_math=False)
        return
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "borderpad": 0.0}
    columns = {"ncols": _n_columns(chart, width), "alignment": "left"}
    legend = axes.legend(title=title, title_fontsize=10, fontsize=8, frameon=False, **place, **columns)
    for entry in (legend.get_title(), *legend.get_texts()):
        entry.set_color(_INK)
        entry.set_parse_math(False)


def _has_legend(chart: Chart) -> bool:
    """True if a chart has more than one curve, which a legend above it names."""
    return bool(chart.bands) and (len(chart.bands) > 1 or len(chart.bands[0].curves) > 1)


def _n_columns(chart: Chart, width: float) -> int:
    """Return the number of columns of a legend in a chart with a width in inches."""
    longest = max(len(_label(band)) for band in chart.bands)
    return max(1, min(len(chart.bands), int(width * _LETTERS_PER_INCH) // (longest + _LETTERS_OF_A_LINE)))


def _n_rows(chart: Chart, width: float) -> int:
    """Return the number of rows of the legend of a chart with a width in inches, 0 without one."""
    return -(-len(chart.bands) // _n_columns(chart, width)) if _has_legend(chart) else 0


def _label(band: Band) -> str:
    """Return the entry of a group in a legend, which would not show one that begins with an underscore."""
    n = len(band.curves)
    name = f" {_text(band.name)}"
    if n == 1:
        return name
    return f"{name}: IQM of {n} runs, 95% interval" if len(band.x) else f"{name}: {n} runs without a common range"


def _draw_band(axes: Any, band: Band, scale: float, colour: str, style: str) -> None:
    """Draw the curves of a group, and its interquartile mean with interval if there are several."""
    is_single = len(band.curves) == 1
    for curve in band.curves:
        marker = "o" if len(curve.x) < (_FEW_POINTS if is_single else 2) else ""
        style_of_line = {"linewidth": 1.8} if is_single else {"linewidth": 0.6, "alpha": 0.45}
        label = _label(band) if is_single else None
        marks = {"marker": marker, "markersize": 3, "label": label}
        axes.plot(curve.x * scale, curve.y, color=colour, linestyle=style, **style_of_line, **marks)
    if is_single:
        return
    if not len(band.x):
        axes.plot([], [], color=colour, linestyle=style, linewidth=0.6, label=_label(band))
        return
    axes.fill_between(band.x * scale, band.low, band.high, color=colour, alpha=0.22, linewidth=0)
    marks = {"marker": "o" if len(band.x) < _FEW_POINTS else "", "markersize": 3, "label": _label(band)}
    axes.plot(band.x * scale, band.middle, color=colour, linestyle=style, linewidth=2.0, **marks)


def _text(text: str) -> str:
    """Return a name in a line of limited length, without control characters."""
    name = printable(text).replace("\n", " ")
    return name if len(name) <= _MOST_LETTERS else f"{name[:_MOST_LETTERS]}…"
