"""The results of a served job: table, sentences, curve, HTML report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from truthfl.contracts.registry import find_contract
from truthfl.federation.protocol.offers import left_out_of
from truthfl.files import write_file
from truthfl.ledger.entry import Entry
from truthfl.ledger.held_models import unseen_names, unseen_sentence
from truthfl.ledger.job_view import JobView, lost_in_words
from truthfl.ledger.settlement import read_settlement
from truthfl.ledger.terms import Agreement
from truthfl.reporting.figure import Figure, Panel, Series, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page

FILES = ("training.png", "training.svg", "training.csv")


def evaluations(view: JobView) -> list[dict[str, Any]]:
    """The tested starting model, if it is the mean of solo models, and the rounds after which the model was evaluated.

    Without either: the final test, as of round 0.
    """
    assert view.test is not None
    evaluated = [entry.document | {"round": 0} for entry in view.starts[:1] if "loss" in entry.document]
    evaluated += [entry.document for entry in view.rounds if "loss" in entry.document]
    return evaluated or [{"round": 0} | view.test.document]


def round_zero_sentences(view: JobView) -> list[str]:
    """What round zero gave, and the rounds after it; none if training did not start from solo models."""
    evaluated = evaluations(view)
    if len(evaluated) < 2 or evaluated[0]["round"] > 0:
        return []
    first, last = evaluated[0], evaluated[-1]
    return [
        f"Round zero, the mean of the solo models: loss {first['loss']:.4f}, {first['accuracy']:.1%} right; after "
        f"round {last['round']:,}: {last['loss']:.4f}, {last['accuracy']:.1%}."
    ]


def without_calibration(view: JobView) -> str:
    """The loss of the model as it was trained, in brackets; "" if it has no calibration."""
    assert view.test is not None
    document = view.test.document
    return f" ({document['raw_loss']:.4f} without calibration)" if "raw_loss" in document else ""


def training_figure(view: JobView) -> Figure:
    """A figure of test loss and accuracy by round."""
    evaluated = evaluations(view)
    rounds = tuple(float(one["round"]) for one in evaluated)

    def line(title: str, label: str, values: tuple[float, ...]) -> Panel:
        return Panel(title, "round", label, (Series("this job", rounds, values, values, values),))

    return Figure(
        number=1,
        title="Training",
        caption="Loss and accuracy of the common model on the test set, round by round.",
        panels=(
            line("Test loss", "loss (nats per sample)", tuple(one["loss"] for one in evaluated)),
            line("Accuracy", "share of test samples", tuple(one["accuracy"] for one in evaluated)),
        ),
    )


def write_training_plot(view: JobView, folder: Path, *more_files: str) -> Plot:
    """Write the figure to files in this folder; return it as a part of a report that links them and `more_files`."""
    figure = training_figure(view)
    png, svg = figure_pictures(figure)
    for name, content in zip(FILES, (png, svg.encode(), figure_csv(figure).encode()), strict=True):
        write_file(folder / name, content)
    panels = [panel_svg(panel, f"run{number}") for number, panel in enumerate(figure.panels)]
    return Plot(panels, figure.caption, (*FILES, *more_files))


def columns(view: JobView) -> tuple[str, ...]:
    """The columns of `client_rows`."""
    assert view.agreement is not None
    return "client", "labels", "rounds", *part_columns(view.agreement), "pay", "cost", "expected pay"


def client_rows(view: JobView) -> list[list[str]]:
    """One row of cells per client with an offer, and a row with totals. Cost is as the offer assumes it."""
    assert view.agreement is not None
    terms, words = view.agreement.terms, part_words(view.agreement)
    sums, rows = [0.0] * (len(words) + 3), []
    for offer in view.agreement.offers:
        settled = read_settlement(view.settlements[offer.client.name])
        money = [
            *(settled.parts[name] for name in words),
            settled.pay / terms.minor_units,
            offer.cost,
            offer.expected_pay,
        ]
        sums = [total + value for total, value in zip(sums, money, strict=True)]
        rounds = f"{settled.delivered} of {settled.asked}"
        rows.append([offer.client.name, str(offer.client.samples), rounds, *(f"{value:,.2f}" for value in money)])
    rows.append(["total", str(sum(offer.client.samples for offer in view.agreement.offers)), ""])
    rows[-1] += [f"{total:,.2f}" for total in sums]
    return rows


def summary_sentences(view: JobView) -> list[str]:
    """The result, money and time; who was stopped, left or was not asked; and on whom nobody decided."""
    if view.agreement is None or view.test is None:
        return [f"Job {view.name} was ended before there was a contract; nobody is paid."]
    terms = view.agreement.terms
    paid = sum(entry.document["pay"] for entry in view.settlements.values()) / terms.minor_units
    expected = sum(offer.expected_pay for offer in view.agreement.offers)
    accuracy = view.test.document["accuracy"]
    sentences = [
        f"Test loss {view.test.document['loss']:.4f}{without_calibration(view)}; {terms.expected_loss:.4f} was "
        "expected of all honest work." + ("" if accuracy is None else f" Accuracy {accuracy:.1%}."),
        *round_zero_sentences(view),
        f"You pay {paid:,.2f} {terms.currency} in all; {expected:,.2f} was expected.",
        _times(view),
    ]
    if view.ended is not None:
        rounds = f"{len(view.rounds)} of {terms.rounds} rounds"
        sentences.append(f"The job was ended after {rounds}; what was delivered is paid.")
    if view.lost_round is not None:
        sentences.append(
            f"The model is lost, for {lost_in_words(view.lost_round)}; tested is the one before it, and "
            "computing is paid as at the expected loss."
        )
    for name, entry in view.auditions.items():
        if not entry.document["passed"]:
            sentences.append(f"{name} was stopped at the audition. {entry.document['reason']}")
    sentences += [unseen_sentence(view.name, name) for name in unseen_names(view)]
    for offer in view.agreement.offers:
        name, asked = offer.client.name, view.asked[offer.client.name]
        if view.delivered[name] < asked:
            sentences.append(f"{name} delivered {view.delivered[name]} of {asked} rounds: {_last_refusal(view, name)}.")
    for name, reason in left_out_of(view.plans[-1].document).items():
        sentences.append(f"Not asked: {name}; {reason}.")
    return sentences


def write_served_report(view: JobView, folder: Path, command: str, version: str) -> Path | None:
    """Write report.html and the curve's files to the job's folder; return the report's path.

    None if there was no contract, since then there is nothing to report.
    """
    if view.agreement is None or view.test is None:
        return None
    place = folder / "reports" / view.name
    sentences = summary_sentences(view)
    report = Report(
        f"Job {view.name}",
        sentences[0],
        [
            Section("Work and pay", [Table(columns(view), client_rows(view)), *map(Paragraph, sentences[1:])]),
            Section("Training", [write_training_plot(view, place)]),
            Section("How this was made", [Table(("what", "value"), [("command", command), ("truthfl", version)])]),
        ],
    )
    write_file(place / "report.html", page(report))
    return place / "report.html"


def part_columns(agreement: Agreement) -> list[str]:
    """The columns of the parts of pay: "for labels", "computing"."""
    words = list(part_words(agreement).values())
    return [f"for {first}" for first in words[:1]] + words[1:]


def part_words(agreement: Agreement) -> Mapping[str, str]:
    """The parts of pay by name, in words that follow "for"."""

    return find_contract(agreement.terms.contract).part_words


def _times(view: JobView) -> str:
    """When it began and ended, and how long the rounds took."""
    assert view.job is not None and view.test is not None  # noqa: PT018
    begun, over = _time(view.job), _time(view.test)
    sentence = f"Begun {_local(begun)}, tested {_local(over)}, {_duration((over - begun).total_seconds())} in all"
    if view.rounds and view.starts:
        rounds = (_time(view.rounds[-1]) - _time(view.starts[0])).total_seconds()
        sentence += f", of which {_duration(rounds)} for {len(view.rounds)} rounds"
    return f"{sentence}."


def _last_refusal(view: JobView, name: str) -> str:
    reasons = [reason for (client, _), reason in view.round_refusals.items() if client == name]
    return reasons[-1] if reasons else "they were not there"


def _time(entry: Entry) -> datetime:
    return datetime.fromisoformat(entry.at)


def _local(time: datetime) -> str:
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60.0)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {rest:.0f} s"
    return f"{rest:.1f} s" if rest >= 1.0 else f"{rest:.2f} s"
