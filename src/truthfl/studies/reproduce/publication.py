"""A reproduction as files in a folder: figures as PNG, SVG and CSV, claims as CSV, and one report of all.

Looks at `reproduction`, `plots`, `report`, `claims`, `figure`.
"""

from __future__ import annotations

from pathlib import Path

from truthfl.errors import ServiceError
from truthfl.files import write_file
from truthfl.reporting.figure import Figure, figure_csv
from truthfl.reporting.plots import figure_pictures, panel_svg
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, page
from truthfl.studies.reproduce.claims import DOES_NOT_HOLD, HOLDS, UNDECIDED, Claim, claims_csv
from truthfl.studies.reproduce.reproduction import Reproduction

TONES = ((HOLDS, "good"), (DOES_NOT_HOLD, "bad"), (UNDECIDED, "open"))


def require_writable(folder: Path, mode: int = 0o777) -> None:
    """Make the folder, with this mode, or say at once why that cannot be: before hours of work, not after."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ServiceError(f"{folder} cannot be written to ({error.strerror}); name another folder.") from None


def write_reproduction(found: Reproduction, folder: Path, made: Section) -> Path:
    """Write all files; the report's path. `made` is the report's last section."""
    for figure in found.figures:
        stem = folder / f"figure-{figure.number}"
        png, svg = figure_pictures(figure)
        write_file(stem.with_suffix(".png"), png)
        write_file(stem.with_suffix(".svg"), svg)
        write_file(stem.with_suffix(".csv"), figure_csv(figure))
    path = folder / "report.html"
    write_file(folder / "claims.csv", claims_csv(found.claims))
    write_file(path, page(report_of(found, made)))
    return path


def report_of(found: Reproduction, made: Section) -> Report:
    """The page: what became of each claim, then the figures, then how it was made."""
    figures = [Section(f"Figure {figure.number}: {figure.title}", [_plot(figure)]) for figure in found.figures]
    return Report(
        "The LCEME paper's evaluation, made again",
        f"{count(found.claims, HOLDS)} of {len(found.claims)} claims hold, {count(found.claims, DOES_NOT_HOLD)} do "
        f"not, {count(found.claims, UNDECIDED)} cannot be told from {found.paper.seeds} seeds.",
        [Section("Claimed and obtained", _claims(found)), *figures, made],
    )


def count(claims: tuple[Claim, ...], verdict: str) -> int:
    """How many claims came out so."""
    return sum(claim.verdict == verdict for claim in claims)


def _claims(found: Reproduction) -> list[Paragraph | Table | Plot]:
    rows = [(claim.figure, claim.verdict, claim.claimed, claim.obtained) for claim in found.claims]
    reasons = [(claim.figure, claim.verdict, claim.claimed, claim.reason) for claim in found.claims if claim.reason]
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
