"""The results of the study of sizes as tables, CSV files, picture and HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truthfl.files import write_file
from truthfl.reporting.plots import INK, STYLES, canvas_for, page_svg, pictures
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.size.findings import RuleFinding, SizeFinding
from truthfl.studies.size.study import LAWS, LCEME_SPREAD, WORTH, SizeStudy
from truthfl.studies.verify.regret import Estimate
from truthfl.texts import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


WORTH_STYLE, LCEME_STYLE, AUDITION_STYLE, COST_STYLE = STYLES[0], STYLES[1], STYLES[2], STYLES[6]
SHOWN_GAINS = (-1.0, 2.0)  # shares of cost; intervals may reach beyond the picture
CLIENTS_LABEL = "clients, with the same labels in all"


def drawn(study: SizeStudy, ink: str, *, narrow: bool = False) -> Canvas:
    """The picture: four panels, stacked for a narrow screen."""
    shape, size = ((4, 1), (5.2, 16.0)) if narrow else ((2, 2), (10.4, 8.6))
    with canvas_for(ink, *size) as canvas:
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
        at, [each.cost for each in sizes], color=COST_STYLE[0], linestyle=COST_STYLE[1], label="cost of this work"
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
    """The sizes at which this contract could be made, and its findings."""
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


WORTH_COLUMNS = ("clients", "labels each", "cost", "worth", "95% interval", "by the model", "jobs to tell")
RULE_COLUMNS = ("clients", "pay / cost", "risk", "regret", "95% interval", "of the cost", "95% interval", "best lie")


def worth_rows(study: SizeStudy) -> list[list[str]]:
    """One row per number of clients, with the columns `WORTH_COLUMNS`; money in the job's unit."""
    return [
        [
            f"{each.clients:,}",
            f"{each.labels_each:,}",
            amount(each.cost),
            amount(each.worth.value) if each.worth.low > 0 else f"not resolved, below {amount(each.worth.high)}",
            f"{amount(each.worth.low)} to {amount(each.worth.high)}",
            amount(each.worth_by_model),
            f"{each.jobs_to_tell:,.0f}",
        ]
        for each in study.sizes
    ]


def rule_rows(study: SizeStudy, name: str) -> list[list[str]]:
    """One row per number of clients for "lceme" or "audition", with the columns `RULE_COLUMNS`."""
    return [_rule_row(each, getattr(each, name)) for each in study.sizes]


def law_sentences(study: SizeStudy) -> list[str]:
    """The fitted laws, with the 95% intervals of their exponents."""
    return [f"{LAWS[name]}: {law.words}." for name, law in study.laws.items()]


def absence_sentences(study: SizeStudy) -> list[str]:
    """Why there is no audition for some numbers of clients."""
    return [
        f"No audition with {each.clients:,} clients: {each.no_audition}." for each in study.sizes if each.no_audition
    ]


def scope_sentence(study: SizeStudy) -> str:
    """What was trained."""
    design = study.design
    return (
        f"{design.total_labels:,} labels of {design.data.source} in all, {design.rounds} rounds, {study.trainings:,} "
        f"joint trainings; {design.pilot_draws} draws of the labels for the pilot and {design.measured_draws} on which "
        f"lies are measured, of a pool of {study.pool:,} samples."
    )


def amount(money: float) -> str:
    """Money with three significant digits."""
    if abs(money) >= 1000:
        return f"{money:,.0f}".replace("-", "−")
    return f"{money:.3g}".replace("-", "−")


def percent(share: float) -> str:
    """The share in per cent: a whole number from 10% on, otherwise with one more digit."""
    text = f"{share:.0%}" if abs(share) >= 0.0995 else f"{share:.1%}"
    return text.replace("-", "−")


def write_size_study(study: SizeStudy, folder: Path, provenance: Section) -> Path:
    """Write picture, tables and report, and return the path of the report. `provenance` is the last section."""
    png, svg = pictures(drawn(study, "black"))
    write_file(folder / FILES[0], png)
    for name, text in zip(FILES[1:], (svg, sizes_csv(study), lies_csv(study)), strict=True):
        write_file(folder / name, text)
    plot = Plot([page_svg(drawn(study, INK, narrow=True), "sizes")], CAPTION, FILES)
    laws = [Paragraph(text) for text in law_sentences(study)]
    absent = [Paragraph(text) for text in absence_sentences(study)]
    sections = [
        Section("The picture and the laws", [plot, *laws]),
        Section("What one client's work is worth", [Table(WORTH_COLUMNS, worth_rows(study)), Paragraph(WORTH_MEANING)]),
        Section("LCEME", [Table(RULE_COLUMNS, rule_rows(study, "lceme")), Paragraph(LCEME_MEANING)]),
        Section(
            "The audition", [Table(RULE_COLUMNS, rule_rows(study, "audition")), *absent, Paragraph(AUDITION_MEANING)]
        ),
        Section("What was asked", [Paragraph(scope_sentence(study)), *map(Paragraph, MEANING)]),
        provenance,
    ]
    path = folder / "report.html"
    write_file(path, page(Report("How incentives scale", " ".join(law_sentences(study)), sections)))
    return path


def sizes_csv(study: SizeStudy) -> str:
    """CSV text with all numbers of each size."""
    plain = [name for name, value in vars(study.sizes[0]).items() if isinstance(value, int | float)]
    plain += [name for name in ("solo_risk", "no_audition") if name not in plain]
    of_rule = ("pay_over_cost", "risk", "spread_over_cost", "regret", "gain_over_cost", "best_lie")
    header = [
        *plain,
        *_ends("worth"),
        *(f"{rule}_{part}" for rule in RULES for name in of_rule for part in _parts(name)),
    ]
    rows = []
    for each in study.sizes:
        row = [getattr(each, name) for name in plain] + _values(each.worth)
        for rule in RULES:
            found = getattr(each, rule)
            row += [
                value for name in of_rule for value in _values(None if found is None else getattr(found, name), name)
            ]
        rows.append(row)
    return csv_text([header, *rows])


def lies_csv(study: SizeStudy) -> str:
    """CSV text with the gain of every lie at every size, as a share of cost."""
    found = [(each.clients, rule, getattr(each, rule)) for each in study.sizes for rule in RULES]
    rows = (
        [clients, rule, lie.lie, *_values(lie.gain)]
        for clients, rule, of_rule in found
        if of_rule is not None
        for lie in of_rule.lies
    )
    return csv_text([["clients", "rule", "lie", "gain", "low", "high"], *rows])


def _rule_row(each: SizeFinding, found: RuleFinding | None) -> list[str]:
    if found is None:
        return [f"{each.clients:,}", *["–"] * (len(RULE_COLUMNS) - 1)]
    return [
        f"{each.clients:,}",
        f"{found.pay_over_cost:,.2f}",
        percent(found.risk),
        percent(found.regret.value),
        f"{percent(found.regret.low)} to {percent(found.regret.high)}",
        percent(found.gain_over_cost.value),
        f"{percent(found.gain_over_cost.low)} to {percent(found.gain_over_cost.high)}",
        found.best_lie,
    ]


def _parts(name: str) -> Sequence[str]:
    return _ends(name) if name in ESTIMATES else (name,)


def _ends(name: str) -> Sequence[str]:
    return (name, f"{name}_low", f"{name}_high")


def _values(value: object, name: str = "") -> list[object]:
    """The number, or the estimate and its interval; if it is None, the same number of empty values."""
    if value is None:
        return [None] * len(_parts(name))
    return [value.value, value.low, value.high] if isinstance(value, Estimate) else [value]


FILES = ("sizes.png", "sizes.svg", "sizes.csv", "lies.csv")
RULES = ("lceme", "audition")
ESTIMATES = ("regret", "gain_over_cost")
CAPTION = (
    "By number of clients, all with an equal part of the same labels. Points are measured in training; lines are "
    "fitted power laws with the 95% intervals of their exponents. Bars are 95% intervals over draws of the labels."
)
WORTH_MEANING = (
    "Worth: κ times the rise of the joint test loss if one client is left out and the others' weights replace theirs, "
    "measured in pairs of trainings with the same draws; by the model: κ (A/N + V/B) / (n − 1), with A from trainings "
    "with fewer labels and V from trainings with other batches of ten clients. Jobs to tell: after this many jobs the "
    "mean of their losses shows, with 95%, whether one of the clients worked, if their effect is as in the model."
)
LCEME_MEANING = (
    "The slope comes from the loss model fitted at ten clients and is the same for all sizes. The margin covers the "
    "spread of the joint loss at settlement. Gains of lies are measured in joint training. Risk is the standard "
    "deviation of one client's honest pay over its mean: the slope times the spread of the joint loss. This spread is "
    "measured over draws of the labels and computed for draws of test samples."
)
AUDITION_MEANING = (
    "Label pay depends on solo models that were trained and tested. Pay for computing is fixed, because it is less "
    "than the 1% of pay that a plan leaves unproven; so a lie's effect on the joint loss does not matter here. Risk is "
    "measured over honest clients of all draws."
)
MEANING = (
    "All sizes share the same labeled samples on each draw. The samples of one draw are cut into equal parts, so no "
    "two clients hold the same sample, and federations of all sizes have the same information. Clients are alike: an "
    "even mix of classes, equal costs. All clients together compute on the same number of samples in a round. With "
    "more clients than that, each computes on one sample and takes part in a share of the rounds.",
    "The best lie is the one in a stated list that gained most on the pilot draws. Its gain is measured on the others, "
    "as a share of honest pay (regret; of cost where that is larger) and of cost. The list is in lies.csv. "
    "truthfl verify searches more at one size.",
    "Intervals count draws. Draws of one pool overlap and share one test set. So they represent other clients with "
    "digits of this pool, not other data.",
)
