"""The results of a verification as table, picture, CSV files and HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.adversary.strategy import KINDS, LiePoint
from truthfl.files import write_file
from truthfl.reporting.plots import INK, canvas_for, page_svg, pictures, styles
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.verify.job_verification import JobVerification
from truthfl.studies.verify.verdicts import Verdict, best_in_hindsight, measured_lie, summary_rows
from truthfl.texts import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

SHOWN = (-0.75, 1.35)  # range of the picture in shares of cost; values outside are drawn at the edge
ANSWERS = {True: "yes", False: "no", None: "open"}
COLUMNS = (
    "payment rule",
    "pay / cost",
    "labels",
    "batch",
    "regret",
    "95% interval",
    "of the cost",
    "ex post",
    "best lie",
    "pays?",
)
SHORT_COLUMNS = ("payment rule, best lie", "pay/cost", "labels", "batch", "regret", "±", "of cost", "ex post", "pays?")
HINDSIGHT_COLUMNS = ("best lie in hindsight", "times", "mean gain")
CLIENT_COLUMNS = ("client", "worth", "± (95%)", "cost", "their best lie", "gain", "± (95%)")


def rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    """The rows of the table, one per rule, with the columns `COLUMNS`."""
    return [
        [
            verdict.rule,
            f"{verdict.pay_over_cost:,.2f}",
            f"{verdict.elicited_labels:.2f}",
            f"{verdict.elicited_batch:.2f}",
            _percent(verdict.regret),
            f"{_percent(verdict.regret_low)} to {_percent(verdict.regret_high)}",
            _percent(verdict.gain_over_cost),
            _percent_or_dash(verdict.ex_post_regret),
            str(verdict.best_lie["words"]),
            ANSWERS[verdict.lying_pays],
        ]
        for verdict in verdicts
    ]


def short_rows(verdicts: Sequence[Verdict]) -> list[list[str]]:
    """The rows of the table for a terminal, with the columns `SHORT_COLUMNS`; ± is half the 95% interval."""
    return [
        [
            f"{verdict.rule}\n  {verdict.best_lie['words']}",
            f"{verdict.pay_over_cost:,.2f}" if verdict.pay_over_cost < 100 else f"{verdict.pay_over_cost:,.0f}",
            f"{verdict.elicited_labels:.2f}",
            f"{verdict.elicited_batch:.2f}",
            _percent(verdict.regret),
            _percent((verdict.regret_high - verdict.regret_low) / 2),
            _percent(verdict.gain_over_cost),
            _percent_or_dash(verdict.ex_post_regret),
            ANSWERS[verdict.lying_pays],
        ]
        for verdict in verdicts
    ]


def _percent(share: float) -> str:
    """The share in per cent: a whole number from 10% on, otherwise with one more digit."""
    return f"{share:.0%}" if abs(share) >= 0.0995 else f"{share:.1%}" if abs(share) >= 0.00095 else f"{share:.2%}"


def _percent_or_dash(share: float | None) -> str:
    return "–" if share is None else _percent(share)


def client_rows(verdict: Verdict) -> list[list[str]]:
    """One row per client, with the columns `CLIENT_COLUMNS`."""
    return [
        [
            client.client,
            f"{client.worth:,.0f}",
            "–" if client.worth_high is None else f"{client.worth_high - client.worth:,.0f}",
            f"{client.cost:,.0f}",
            client.best_lie,
            f"{client.gain:.0%}",
            "–" if client.gain_high is None else f"{client.gain_high - client.gain:.0%}",
        ]
        for client in verdict.clients
    ]


def worth_sentence(verdict: Verdict) -> str:
    """How many clients' work is worth less than it costs."""
    below = sum(client.worth_high is not None and client.worth_high < client.cost for client in verdict.clients)
    above = sum(client.worth_low is not None and client.worth_low >= client.cost for client in verdict.clients)
    count = len(verdict.clients)
    unclear = count - below - above
    text = f"The work of {below} of {count} clients is worth less to the server than it costs"
    return f"{text}; of {unclear} it is open." if unclear else f"{text}."


def coalition_sentence(verdict: Verdict) -> str:
    """What two clients gain together if one labels and both report; empty if it was not measured."""
    gain = (verdict.coalition, verdict.coalition_low, verdict.coalition_high)
    texts = [_percent(share) for share in gain if share is not None]
    if not texts:
        return ""
    return (
        f"{verdict.rule}: two clients of whom one labels and both train on those samples gain {texts[0]} ({texts[1]} "
        f"to {texts[2]}) of their honest pay."
    )


def drawn(verdicts: Sequence[Verdict], ink: str, *, narrow: bool = False) -> Canvas:
    """The picture: one line per rule, one mark with its interval per kind of lie."""
    with canvas_for(ink, 5.2 if narrow else 8.0, 1.9 + 0.9 * len(verdicts)) as canvas:  # narrow for small screens
        _draw(canvas.add_subplot(), verdicts, ink)
        canvas.legend(loc="outside upper center", ncols=3 if narrow else 4, frameon=False, fontsize="small")
    return canvas


def _draw(axes: Axes, verdicts: Sequence[Verdict], ink: str) -> None:
    from matplotlib.ticker import PercentFormatter

    low, high = SHOWN
    for k, (kind, (colour, _, marker)) in enumerate(zip(KINDS, styles(ink)[: len(KINDS)], strict=True)):
        best = [
            (at, [share * max(verdict.pay_over_cost, 1.0) for share in (lie.gain, lie.low, lie.high)])
            for at, verdict in enumerate(verdicts)
            for lie in verdict.by_kind
            if lie.kind == kind
        ]
        if not best:
            continue
        height = [position + 0.72 * (k / (len(KINDS) - 1) - 0.5) for position, _ in best]
        at = [min(max(gain, low), high) for _, (gain, _, _) in best]
        left = [max(x - max(least, low), 0.0) for x, (_, (_, least, _)) in zip(at, best, strict=True)]
        right = [max(min(most, high) - x, 0.0) for x, (_, (_, _, most)) in zip(at, best, strict=True)]
        axes.errorbar(
            at, height, xerr=[left, right], fmt=marker, color=colour, label=kind, capsize=2.5, markersize=5, lw=1.2
        )
    axes.axvline(0.0, color=ink, lw=0.8)
    for between in range(1, len(verdicts)):
        axes.axhline(between - 0.5, color=ink, lw=0.4, alpha=0.4)
    axes.set_yticks(range(len(verdicts)), [verdict.rule for verdict in verdicts])
    axes.set_ylim(len(verdicts) - 0.5, -0.5)
    axes.set_xlim(low - 0.04, high + 0.04)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(
        "gain of the best lie of a kind, ex ante, as a share\nof what honest work costs (left of 0: a loss)"
    )
    axes.grid(axis="x", color=ink, alpha=0.15, linewidth=0.6)


def lies_csv(verification: JobVerification) -> str:
    """CSV text with every measured lie under every rule: numbers of the point, gain ex ante and its interval."""
    header = ["rule", "kind", "lie", *LiePoint().document(), "gain", "low", "high"]
    return csv_text([header, *_lie_rows(verification)])


def _lie_rows(verification: JobVerification) -> Iterable[list[object]]:
    for measurement, verdicts in verification.results:
        for verdict, gains in zip(verdicts, measurement.gains, strict=True):
            for point, of_point in zip(measurement.points, gains.gain, strict=True):
                lie = measured_lie(point, of_point, gains.unit, measurement.cluster)
                numbers = (round(value, 6) for value in (lie.gain, lie.low, lie.high))
                yield [verdict.rule, lie.kind, lie.words, *lie.point.values(), *numbers]


def clients_csv(verdict: Verdict) -> str:
    """CSV text with one line per client: worth and cost of their work, and their best lie."""
    return _csv_of(verdict.clients)


def _csv_of(records: Sequence[object]) -> str:
    """CSV text with one line per object of a dataclass."""
    return csv_text([list(vars(records[0])), *(vars(each).values() for each in records)])


def write_verification(verification: JobVerification, scope: str, folder: Path, provenance: Section) -> Path:
    """Write picture, tables and report, and return the path of the report.

    scope       a sentence on what was searched and measured
    provenance  the report's last section
    """
    verdicts = verification.verdicts
    own = verdicts[0]
    png, svg = pictures(drawn(verdicts, "black"))
    answer = Section(
        "Does lying pay?",
        [
            Table(COLUMNS, rows(verdicts), tones=(("yes", "bad"), ("no", "good"), ("open", "open"))),
            Plot(
                [page_svg(drawn(verdicts, INK, narrow=True), "lying")],
                "The best lie of each kind under each rule, with its 95% interval, as a share of what honest work "
                "costs. Marks at the edge lie beyond it.",
                ["does-lying-pay.png", "does-lying-pay.svg", "lies.csv"],
            ),
            *(Paragraph(text) for verdict in verdicts if (text := coalition_sentence(verdict))),
            *(Paragraph(f"{rule} is not shown: {why}") for rule, why in verification.absent.items()),
            *(Paragraph(f"A draw of the data was left out: {why}") for why in verification.skipped),
        ],
    )
    worth = Section(
        "What the work is worth",
        [
            Paragraph(f"{worth_sentence(own)} {WORTH}"),
            Table(CLIENT_COLUMNS, client_rows(own)),
            Paragraph(f"The best lie for each client is the one under {own.rule}. In a file: clients.csv."),
        ],
    )
    in_hindsight = best_in_hindsight(verification.results[0][0], 0)
    ex_post = Section(
        "Ex post: the best lie of each split",
        [
            Paragraph(f"Under {own.rule}, for {len(in_hindsight)} pairs of client and split. {MEANING_EX_POST}"),
            Table(HINDSIGHT_COLUMNS, summary_rows(in_hindsight)),
            Paragraph("One by one in ex_post.csv."),
        ],
    )
    meaning = Section("What was asked", [Paragraph(scope), *map(Paragraph, MEANING)])
    lead = "; ".join(f"{verdict.rule}: {ANSWERS[verdict.lying_pays]}" for verdict in verdicts) + "."
    path = folder / "report.html"
    write_file(folder / "does-lying-pay.png", png)
    write_file(folder / "does-lying-pay.svg", svg)
    write_file(folder / "lies.csv", lies_csv(verification))
    write_file(folder / "clients.csv", clients_csv(own))
    write_file(folder / "ex_post.csv", _csv_of(in_hindsight))
    write_file(path, page(Report("Does lying pay?", lead, [answer, worth, ex_post, meaning, provenance])))
    return path


WORTH = (
    "A client's work is worth κ times the rise of the test loss without them. Pay by the joint loss with slope κ "
    "rewards the work by just that. Where this is less than the cost, not working pays."
)
MEANING_EX_POST = (
    "What the best of the measured lies would have gained there. It is larger than the regret ex ante, by selection: "
    "nobody could have known in advance which lie it would be."
)
MEANING = (
    "A lie is a point of a family: the share of labels made by hand; the rest left out, drawn at random, labeled by "
    "the common model, by the liar's own model or by nearest neighbour; the batch, from one sample to all; the report, "
    "scaled (constant or falling over the rounds), an echo of the common model's last change with or without noise, "
    "garbage, or the received model with its last bit changed. The search is successive halving: random points "
    "first, then neighbours of the best, on ever more cases; all points of a rung share clients, splits and draws.",
    "Regret ex ante: the gain of the lie that the search found best, averaged over splits and clients that the search "
    "has not seen, as a share of honest pay (or of its cost, where that is larger). This is what incentives are "
    "about: the liar knows neither the others' data nor the draws. The interval counts splits, not runs.",
    "Ex post: the gain of the lie that was best for a client on a split in hindsight, on average over both. It is "
    "larger, by selection.",
    "Labels and batch: what would serve a client best, as a share of the number asked for, fitted to real pay.",
    "Lying pays, in this report, where the gain is known to exceed 2% of the cost of honest work. A contract that pays "
    "a thousand times the cost has little regret, and still makes it worth while not to work.",
    "The contracts on the paper's bound and on the sound one are trained with the largest step size at which those "
    "bounds hold; all other rules with the step size tuned on pilot data.",
)
