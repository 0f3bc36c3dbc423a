"""The results of the study as tables, CSV files, picture and HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from truthfl.files import write_file
from truthfl.reporting.plots import INK, page_svg, pictures
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.size.size_findings import RuleFinding, SizeFinding
from truthfl.studies.size.size_picture import drawn
from truthfl.studies.size.size_study import LAWS, SizeStudy
from truthfl.studies.verify.regret import Estimate
from truthfl.texts import csv_text

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
    """The laws that were fitted, with the 95% intervals of their exponents."""
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
    """The share in per cent: whole ones from 10% on, else a digit more."""
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
    """CSV text with what every lie gains at every size, as a share of cost."""
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
    """The number, or the estimate and its interval; as many empty values as it would have if it is None."""
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
    "Worth: κ times the rise of the joint test loss if one client is left out and the others' weights fill up hers, "
    "measured in pairs of trainings with the same draws; by the model: κ (A/N + V/B) / (n − 1), with A from trainings "
    "with fewer labels and V from trainings with other batches of ten clients. Jobs to tell: after so many jobs the "
    "mean of their losses tells, with 95%, whether one of the clients worked, if her effect is that of the model."
)
LCEME_MEANING = (
    "The slope is that of the loss model fitted at ten clients, the same for all sizes; the margin covers the spread "
    "of the joint loss at settlement. Gains of lies are measured in joint training. Risk is the standard deviation of "
    "one client's honest pay over its mean: the slope times the spread of the joint loss, which is measured over draws "
    "of the labels and computed for draws of test samples."
)
AUDITION_MEANING = (
    "Label pay goes by solo models that were trained and tested. Computing is paid a fixed amount, for it is less than "
    "the 1% of pay that a plan leaves unproven; so what a lie does to the joint loss does not matter here. Risk is "
    "measured over honest clients of all draws."
)
MEANING = (
    "All sizes share the same labeled samples on each draw: those of one draw are cut into equal parts, so that no two "
    "clients hold the same sample and federations of all sizes know the same. Clients are alike: an even mix of "
    "classes, equal costs. All clients together compute on the same number of samples in a round; with more clients "
    "than that, each computes on one sample and takes part in a share of the rounds.",
    "The best lie is the one of a stated list that gained most on the pilot draws; its gain is measured on the others, "
    "as a share of honest pay (regret; of cost where that is larger) and of cost. The list is in lies.csv; "
    "truthfl verify searches more at one size.",
    "Intervals count draws. Draws of one pool overlap and share one test set, so they speak of other clients with "
    "digits of this pool, not of other data.",
)
