"""Plots of figures: PNG and SVG on white for files, and one SVG per panel in the colours of an HTML page.

Matplotlib is imported when the first plot is drawn. It is used without pyplot, so there is no global state and no need
for a display.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from truthfl.reporting.figure import Figure, Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#123457"  # placeholder that is replaced by the page's text colour
# colour, line style, marker; the colours of Okabe and Ito that are visible on white and on black, and that of text
STYLES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    ("#E69F00", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#56B4E9", (0, (1, 1)), "P"),
    ("#7F7F7F", (0, (3, 1, 1, 1)), "X"),
    (INK, (0, (2, 2)), "*"),
)
PANEL_SIZE = (4.9, 4.3)  # inches
DPI = 150
MAX_MARKERS, MAX_TICKS = 12, 12
HASH_SALT = "truthfl"  # fixed, so that the same figure gives the same SVG


def figure_pictures(figure: Figure) -> tuple[bytes, str]:
    """PNG and SVG with all panels side by side, on white. The SVG has text as outlines, so fonts do not matter."""
    return pictures(_drawn(figure.panels, "black"))


def pictures(canvas: Canvas) -> tuple[bytes, str]:
    """PNG and SVG of a Matplotlib figure that was drawn in black."""
    png = io.BytesIO()
    canvas.savefig(png, format="png", dpi=DPI, facecolor="white")
    canvas.set_layout_engine("none")  # the SVG gets the layout of the PNG
    return png.getvalue(), _svg(canvas, facecolor="white", text_as_text=False)


def panel_svg(panel: Panel, prefix: str) -> str:
    """SVG of one panel for an HTML page: transparent, with text and axes in the page's text colour.

    prefix   put before every id in the SVG, so that ids on one page are unique
    """
    return page_svg(_drawn((panel,), INK), prefix)


def styles(ink: str) -> list[tuple[str, Any, str]]:
    """`STYLES` for a picture whose text has this colour."""
    return [(ink if colour == INK else colour, dashes, marker) for colour, dashes, marker in STYLES]


def page_svg(canvas: Canvas, prefix: str) -> str:
    """SVG for an HTML page, from a Matplotlib figure that was drawn in `INK`."""
    text = _svg(canvas, facecolor="none", text_as_text=True)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(INK, "currentColor", text, flags=re.IGNORECASE)
    return re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1))


@contextmanager
def canvas_for(ink: str, width: float, height: float) -> Iterator[Canvas]:
    """An empty Matplotlib figure to draw on, in inches; its text and axes have this colour."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(_settings(ink)):
        yield Canvas(figsize=(width, height), layout="constrained")


def _drawn(panels: Sequence[Panel], ink: str) -> Canvas:
    with canvas_for(ink, PANEL_SIZE[0] * len(panels), PANEL_SIZE[1]) as canvas:
        for axes, panel in zip(np.ravel(canvas.subplots(1, len(panels))), panels, strict=True):
            _draw(axes, panel, ink)
    return canvas


def _svg(canvas: Canvas, *, facecolor: str, text_as_text: bool) -> str:
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none" if text_as_text else "path", "svg.hashsalt": HASH_SALT}):
        canvas.savefig(out, format="svg", facecolor=facecolor, metadata={"Date": None})
    return out.getvalue()


def _settings(ink: str) -> Any:  # Any, since matplotlib's stubs require literal keys
    """Matplotlib's settings for a picture whose text and axes have this colour, on the page's background."""
    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    return dict.fromkeys(coloured, ink) | {
        "axes.titlecolor": ink,
        "font.family": "sans-serif",
        "font.size": 10.0,
        "axes.titlesize": 11.0,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def _draw(axes: Axes, panel: Panel, ink: str) -> None:
    if panel.level is not None:
        axes.axhline(panel.level, color=ink, linewidth=0.8)
    if panel.mark_x is not None:
        axes.axvline(panel.mark_x, color=ink, linewidth=0.8, linestyle=(0, (2, 3)))
    for line, style in zip(panel.series, cycle(styles(ink)), strict=False):
        _draw_line(axes, line, *style)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.grid(color=ink, alpha=0.15, linewidth=0.6)
    _set_axes(axes, panel)
    columns = 1 if max(len(line.name) for line in panel.series) > 22 else 2
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=columns, frameon=False, handlelength=3.4, fontsize=9.0
    )


def _set_axes(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    x_values = sorted({x for line in panel.series for x in line.x})
    if len(x_values) <= MAX_TICKS:
        axes.set_xticks(x_values)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(*_limits(panel))
    if max(abs(end) for end in axes.get_ylim()) >= 1000:
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}".replace("-", "−"))
    else:
        axes.yaxis.set_major_formatter(lambda value, _position: f"{value:.4g}".replace("-", "−"))


def _limits(panel: Panel) -> tuple[float, float]:
    """Limits of the y axis: all means, and the bands up to 0.7 times the means' range beyond it."""
    scale, unscale = (np.log, np.exp) if panel.log_y else (np.asarray, np.asarray)
    low, mean, high = (
        np.array([value for line in panel.series for value in getattr(line, name)], dtype=float)
        for name in ("low", "mean", "high")
    )
    drawable = np.isfinite(mean) & ((mean > 0) | (not panel.log_y))
    levels = np.array([] if panel.level is None else [panel.level])
    values = scale(np.append(mean[drawable], levels) if drawable.any() else np.ones(1))
    bottom, top = float(values.min()), float(values.max())
    extent = (top - bottom) or abs(top) or 1.0
    with_band = drawable & np.isfinite(low) & np.isfinite(high)
    lowest = scale(low[with_band & ((low > 0) | (not panel.log_y))])
    bottom = max(min(bottom, lowest.min(initial=np.inf)), bottom - 0.7 * extent)
    top = min(max(top, scale(high[with_band]).max(initial=-np.inf)), top + 0.7 * extent)
    margin = 0.04 * ((top - bottom) or extent)
    return float(unscale(bottom - margin)), float(unscale(top + margin))


def _draw_line(axes: Axes, line: Series, colour: str, dashes: Any, marker: str) -> None:
    x, mean, low, high = (np.asarray(values, dtype=float) for values in (line.x, line.mean, line.low, line.high))
    finite = np.isfinite(mean) & np.isfinite(low) & np.isfinite(high)
    if line.has_band:
        axes.fill_between(x[finite], low[finite], high[finite], color=colour, alpha=0.18, linewidth=0)
    axes.plot(
        x[finite],
        mean[finite],
        color=colour,
        linestyle=dashes,
        marker=marker,
        markersize=4.5,
        markevery=max(1, -(-int(finite.sum()) // MAX_MARKERS)),
        linewidth=1.7,
        label=line.name,
    )
