"""Writes a reproduction to a folder: figures as PNG, SVG and CSV, claims as CSV, and an HTML report."""

from __future__ import annotations

from pathlib import Path

from truthfl.files import write_file
from truthfl.reporting.figure import Figure, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.reproduce.claims import DOES_NOT_HOLD, HOLDS, UNDECIDED, Claim, claims_csv
from truthfl.studies.reproduce.reproduction import Reproduction

TONES = ((HOLDS, "good"), (DOES_NOT_HOLD, "bad"), (UNDECIDED, "open"))


def write_reproduction(reproduction: Reproduction, folder: Path, provenance: Section) -> Path:
    """Write all files and return the path of the report. `provenance` is the report's last section."""
    for figure in reproduction.figures:
        stem = folder / f"figure-{figure.number}"
        png, svg = figure_pictures(figure)
        write_file(stem.with_suffix(".png"), png)
        write_file(stem.with_suffix(".svg"), svg)
        write_file(stem.with_suffix(".csv"), figure_csv(figure))
    path = folder / "report.html"
    write_file(folder / "claims.csv", claims_csv(reproduction.claims))
    write_file(path, page(report_of(reproduction, provenance)))
    return path


def report_of(reproduction: Reproduction, provenance: Section) -> Report:
    """The report: claims, figures, provenance."""
    claims = reproduction.claims
    figures = [Section(f"Figure {figure.number}: {figure.title}", [_plot(figure)]) for figure in reproduction.figures]
    return Report(
        "The LCEME paper's evaluation, made again",
        f"{count(claims, HOLDS)} of {len(claims)} claims hold, {count(claims, DOES_NOT_HOLD)} do not, "
        f"{count(claims, UNDECIDED)} cannot be told from {reproduction.paper.seeds} seeds.",
        [Section("Claimed and obtained", _claims(reproduction)), *figures, provenance],
    )


def count(claims: tuple[Claim, ...], verdict: str) -> int:
    """The number of claims with this verdict."""
    return sum(claim.verdict == verdict for claim in claims)


def _claims(reproduction: Reproduction) -> list[Paragraph | Table | Plot]:
    rows = [(claim.figure, claim.verdict, claim.claimed, claim.obtained) for claim in reproduction.claims]
    reasons = [
        (claim.figure, claim.verdict, claim.claimed, claim.reason) for claim in reproduction.claims if claim.reason
    ]
    parts: list[Paragraph | Table | Plot] = [
        Paragraph(
            "Numbers in brackets are 95% confidence intervals of mean differences, seed by seed, after the last round. "
            "A claim about several comparisons stands and falls with the one that speaks for it least. "
            "Claims are in our own words."
        ),
        Table(("figure", "verdict", "claimed", "obtained"), rows, TONES),
    ]
    if reasons:
        parts += [Paragraph("Why:"), Table(("figure", "verdict", "claimed", "why"), reasons, TONES)]
    return parts


def _plot(figure: Figure) -> Plot:
    svgs = [panel_svg(panel, f"f{figure.number}p{k}") for k, panel in enumerate(figure.panels)]
    return Plot(svgs, figure.caption, [f"figure-{figure.number}.{kind}" for kind in ("png", "svg", "csv")])
