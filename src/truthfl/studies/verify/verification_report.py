"""The results of a verification as picture, tables and HTML report.

Imports `files`, `lie_grid`, `verdicts`, `verification` and `reporting`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truthfl.files import write_file
from truthfl.reporting.plots import INK, STYLES, page_svg, pictures
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.verify.lie_grid import KINDS
from truthfl.studies.verify.verdicts import Verdict
from truthfl.studies.verify.verification import VerificationResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHOWN = (-0.5, 1.15)  # range of the picture in shares of pay; values outside are drawn at the edge
ANSWERS = {True: "yes", False: "no", None: "undecided"}
COLUMNS = ("payment rule", "pay / cost", "effort", "regret", "95% interval", "surely", "best lie", "pays?")


def rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    """The rows of the table, one per rule, with the columns `COLUMNS`."""
    return [
        [
            verdict.rule,
            f"{verdict.pay_over_cost:,.2f}",
            f"{verdict.elicited_effort:.2f}",
            f"{verdict.regret:.1%}",
            f"{verdict.regret_low:.1%} to {verdict.regret_high:.1%}",
            f"{verdict.certain_regret:.1%}",
            f"{verdict.worst_deviation.client}: {verdict.worst_deviation.description}",
            ANSWERS[verdict.lying_pays],
        ]
        for verdict in verdicts
    ]


def drawn(verdicts: Sequence[Verdict], ink: str, *, narrow: bool = False) -> Canvas:
    """The picture: one line per rule, one mark with its interval per kind of lie."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import PercentFormatter

    width = 5.2 if narrow else 8.0  # inches; narrow for small screens
    canvas = Canvas(figsize=(width, 1.8 + 0.75 * len(verdicts)), layout="constrained")
    axes = canvas.add_subplot()
    low, high = SHOWN
    for k, (kind, (colour, _, marker)) in enumerate(zip(KINDS, STYLES, strict=False)):
        best = [next(gain for gain in verdict.by_kind if gain.kind == kind) for verdict in verdicts]
        height = [position + 0.3 * (k - 2) / 2 for position in range(len(verdicts))]
        at = [min(max(gain.regret, low), high) for gain in best]
        left = [max(x - max(gain.low, low), 0.0) for x, gain in zip(at, best, strict=True)]
        right = [max(min(gain.high, high) - x, 0.0) for x, gain in zip(at, best, strict=True)]
        axes.errorbar(
            at, height, xerr=[left, right], fmt=marker, color=colour, label=kind, capsize=2.5, markersize=5, lw=1.2
        )
    axes.axvline(0.0, color=ink, lw=0.8)
    axes.set_yticks(range(len(verdicts)), [verdict.rule for verdict in verdicts])
    axes.set_ylim(len(verdicts) - 0.5, -0.5)
    axes.set_xlim(low - 0.04, high + 0.04)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("gain of the best lie of a kind,\nas a share of honest pay (left of 0: it costs her)")
    axes.grid(axis="x", alpha=0.25)
    axes.tick_params(colors=ink)
    axes.xaxis.label.set_color(ink)
    for spine in axes.spines.values():
        spine.set_color(ink)
    legend = canvas.legend(
        loc="outside upper center", ncols=3 if narrow else len(KINDS), frameon=False, fontsize="small"
    )
    for text in legend.get_texts():
        text.set_color(ink)
    return canvas


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """CSV text with one line per rule and kind of lie."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rule", "kind of lie", "gain", "low", "high"])
    for verdict in verdicts:
        writer.writerows([verdict.rule, best.kind, best.regret, best.low, best.high] for best in verdict.by_kind)
    return text.getvalue()


def lies_csv(results: Sequence[VerificationResult]) -> str:
    """CSV text with the effect of each lie on the test loss: mean change, standard error, number of pairs of runs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["step size", "client", "labeling effort", "batch share", "report scale", "change", "error", "pairs"]
    )
    for result in results:
        for client, losses in result.losses.items():
            change = losses.loss[1:] - losses.loss[0]
            pairs = np.sum(~np.isnan(change), axis=1)
            error = np.nanstd(change, axis=1, ddof=1) / np.sqrt(pairs)
            for k, lie in enumerate(result.design.lies):
                row = [f"{result.test.training.step_size:.6g}", result.test.clients.label(client)]
                row += [f"{value:g}" for value in (lie.labeling_effort, lie.batch_share, lie.report_scale)]
                row += [f"{np.nanmean(change[k]):.6f}", f"{error[k]:.6f}", str(pairs[k])]
                writer.writerow(row)
    return text.getvalue()


def write_verification(
    results: Sequence[VerificationResult],
    absent: Mapping[str, str],
    question: str,
    folder: Path,
    provenance: Section,
) -> Path:
    """Write picture, tables and report, and return the path of the report.

    absent      reasons why rules are not shown, by name of the rule
    question    the examined lies and clients, in a sentence
    provenance  the report's last section
    """
    verdicts = [verdict for result in results for verdict in result.verdicts]
    png, svg = pictures(drawn(verdicts, "black"))
    answer = Section(
        "Does lying pay?",
        [
            Table(COLUMNS, rows(verdicts), tones=(("yes", "bad"), ("no", "good"), ("undecided", "open"))),
            Plot(
                [page_svg(drawn(verdicts, INK, narrow=True), "lying")],
                "The best lie of each kind under each rule, with its 95% interval. Marks at the edge lie beyond it.",
                ["does-lying-pay.png", "does-lying-pay.svg", "does-lying-pay.csv", "lies.csv"],
            ),
            Paragraph(f"{verdicts[0].rule}: {empty_report_sentence(verdicts[0])}"),
            *(Paragraph(f"{rule} is not shown: {why}") for rule, why in absent.items()),
        ],
    )
    meaning = Section("What was asked", [Paragraph(question), *map(Paragraph, MEANING)])
    lead = "; ".join(f"{verdict.rule}: {ANSWERS[verdict.lying_pays]}" for verdict in verdicts) + "."
    path = folder / "report.html"
    write_file(folder / "does-lying-pay.png", png)
    write_file(folder / "does-lying-pay.svg", svg)
    write_file(folder / "does-lying-pay.csv", verdicts_csv(verdicts))
    write_file(folder / "lies.csv", lies_csv(results))
    write_file(path, page(Report("Does lying pay?", lead, [answer, meaning, provenance])))
    return path


def empty_report_sentence(verdict: Verdict) -> str:
    """A sentence on the gain of an empty report if it were paid like any other."""
    share = verdict.empty_report
    change = f"gain {share:.0%}" if share > 0 else f"cost {-share:.0%}"
    return f"if empty reports were paid like others, sending one would {change} of honest pay."


MEANING = (
    "Regret is the largest gain of any lie on the grid, by any client looked at, as a share of what her honest work is "
    "paid (or of what it costs her, where it is paid less). It comes from pairs of training runs with the same draws.",
    "Surely is the largest lower end of any lie's interval: no lie is known to gain a larger share of honest pay.",
    "Lying is said to pay where the gain is known to exceed 2% of what honest work costs: a contract that pays a "
    "thousand times the cost has little regret, and still makes it worth while not to work.",
    "Elicited effort is the batch size that would really serve her best, as a share of the one she was asked for.",
    "An empty report is one she can send without any work: the model as it came. It is visible, and not paid.",
    "The contracts on the paper's bound and on the sound one are trained with the largest step size at which those "
    "bounds hold; all other rules with the step size tuned on pilot data.",
)
