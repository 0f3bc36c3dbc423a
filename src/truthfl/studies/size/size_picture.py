"""The picture of the study: worth, spread of pay, pay and gain of the best lie by number of clients, with the laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from truthfl.reporting.plots import STYLES, plot_settings
from truthfl.studies.size.size_findings import RuleFinding, SizeFinding
from truthfl.studies.size.size_study import LCEME_SPREAD, WORTH, SizeStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WORTH_STYLE, LCEME_STYLE, AUDITION_STYLE, COST_STYLE = STYLES[0], STYLES[1], STYLES[2], STYLES[6]
SHOWN_GAINS = (-1.0, 2.0)  # shares of cost; intervals may reach beyond the picture
CLIENTS_LABEL = "clients, with the same labels in all"


def drawn(study: SizeStudy, ink: str, *, narrow: bool = False) -> Canvas:
    """The picture: four panels, one below the other if it is for a narrow screen."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as NewCanvas

    shape, size = ((4, 1), (5.2, 16.0)) if narrow else ((2, 2), (10.4, 8.6))
    with mpl.rc_context(plot_settings(ink)):
        canvas = NewCanvas(figsize=size, layout="constrained")
        worth, spread, pay, gain = np.ravel(canvas.subplots(*shape))
        _draw_worth(worth, study)
        _draw_spread(spread, study)
        _draw_pay(pay, study, ink)
        _draw_gain(gain, study, ink)
        for axes in (worth, spread, pay, gain):
            _finish(axes, study, ink)
    return canvas


def _draw_worth(axes: Axes, study: SizeStudy) -> None:
    sizes = study.sizes
    resolved = [each for each in sizes if each.worth.low > 0]
    _points(axes, resolved, [each.worth for each in resolved], WORTH_STYLE, "worth of one client's work")
    open_ones = [each for each in sizes if each.worth.low <= 0 < each.worth.high]
    if open_ones:
        axes.plot(
            [each.clients for each in open_ones],
            [each.worth.high for each in open_ones],
            linestyle="none",
            marker=r"$\downarrow$",
            markersize=11,
            color=WORTH_STYLE[0],
            label="worth not resolved: at most",
        )
    _law(axes, study, WORTH, WORTH_STYLE)
    at = [each.clients for each in sizes]
    axes.plot(
        at, [each.cost for each in sizes], color=COST_STYLE[0], linestyle=COST_STYLE[1], label="what it costs her"
    )
    axes.set_yscale("log")
    axes.set_title("What one client's work is worth", loc="left")
    axes.set_ylabel("cents")


def _draw_spread(axes: Axes, study: SizeStudy) -> None:
    for name, style in (("lceme", LCEME_STYLE), ("audition", AUDITION_STYLE)):
        sizes, found = _of_rule(study, name)
        at, values = [each.clients for each in sizes], [each.spread_over_cost for each in found]
        dashes = "none" if name == "lceme" else style[1]
        axes.plot(at, values, linestyle=dashes, marker=style[2], color=style[0], label=WORDS[name])
    _law(axes, study, LCEME_SPREAD, LCEME_STYLE)
    axes.set_yscale("log")
    axes.set_title("Spread of one client's honest pay", loc="left")
    axes.set_ylabel("standard deviation of pay / cost of the work")


def _draw_pay(axes: Axes, study: SizeStudy, ink: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for name, style in (("lceme", LCEME_STYLE), ("audition", AUDITION_STYLE)):
        sizes, found = _of_rule(study, name)
        at, values = [each.clients for each in sizes], [each.pay_over_cost for each in found]
        axes.plot(at, values, linestyle=style[1], marker=style[2], color=style[0], label=WORDS[name])
    axes.axhline(1.0, color=ink, linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.set_title("Honest pay, with the margin for its spread", loc="left")
    axes.set_ylabel("pay / cost of the work")


def _draw_gain(axes: Axes, study: SizeStudy, ink: str) -> None:
    from matplotlib.ticker import PercentFormatter

    for name, style in (("lceme", LCEME_STYLE), ("audition", AUDITION_STYLE)):
        sizes, found = _of_rule(study, name)
        _points(axes, sizes, [each.gain_over_cost for each in found], style, WORDS[name])
    axes.axhline(0.0, color=ink, linewidth=0.8)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, SHOWN_GAINS[0]), min(high, SHOWN_GAINS[1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Gain of the best lie over honest work", loc="left")
    axes.set_ylabel("gain, as a share of the cost of the work")


def _of_rule(study: SizeStudy, name: str) -> tuple[list[SizeFinding], list[RuleFinding]]:
    """The sizes at which this contract could be made, and what was found of it."""
    pairs = [(each, getattr(each, name)) for each in study.sizes]
    made = [(each, found) for each, found in pairs if found is not None]
    return [each for each, _ in made], [found for _, found in made]


def _points(axes: Axes, sizes: Sequence[SizeFinding], values: Sequence[Any], style: Any, name: str) -> None:
    """Points with their 95% intervals."""
    if not sizes:
        return
    middle, low, high = (np.array([getattr(each, end) for each in values]) for end in ("value", "low", "high"))
    colour, _, marker = style
    axes.errorbar(
        [each.clients for each in sizes],
        middle,
        yerr=[middle - low, high - middle],
        fmt=marker,
        color=colour,
        capsize=3,
        markersize=5,
        linewidth=1.2,
        label=f"{name}, 95% interval",
    )


def _law(axes: Axes, study: SizeStudy, name: str, style: Any) -> None:
    law = study.laws.get(name)
    if law is None:
        return
    sizes = np.array([each.clients for each in study.sizes], dtype=float)
    axes.plot(sizes, law.at(sizes), color=style[0], linewidth=1.0, alpha=0.7, label=f"fit: {law.words}")


def _finish(axes: Axes, study: SizeStudy, ink: str) -> None:
    from matplotlib.ticker import NullLocator

    sizes = [each.clients for each in study.sizes]
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(CLIENTS_LABEL)
    axes.grid(color=ink, alpha=0.15, linewidth=0.6)
    axes.legend(frameon=False, fontsize=8.5)


WORDS = {"lceme": "LCEME", "audition": "audition"}
