"""Reports as one self-contained HTML file with text, tables and figures, for light and dark mode and all widths.

Make a `Report` and write `page(report)` to a file. All texts are escaped; the SVGs of plots are inserted unchanged.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from truthfl.errors import InputError

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --shade: #f6f8fa;
  --good: #0b6b3a; --bad: #a1260d; --open: #7a5200;
  --face: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3a424c; --paper: #0f1419;
  --shade: #182028; --good: #5fd38d; --bad: #ff9b80; --open: #e8b64c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 var(--face); }
main { max-width: 76rem; margin: 0 auto; padding: 1.25rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.5rem 0 0.5rem; padding-top: 0.75rem;
  border-top: 1px solid var(--line); }
p, figcaption { max-width: 46rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 0.5rem; }
.panels { display: flex; flex-wrap: wrap; gap: 0.75rem; }
.panels svg { flex: 1 1 26rem; min-width: 0; max-width: 36rem; width: 100%; height: auto; }
.panels svg text { font-family: var(--face) !important; }
.wide { overflow-x: auto; margin: 1rem 0; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.7rem; border-bottom: 1px solid var(--line);
  min-width: 4.5rem; }
td.long { min-width: 15rem; }
th { background: var(--shade); }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.good { color: var(--good); font-weight: 600; }
td.bad { color: var(--bad); font-weight: 600; }
td.open { color: var(--open); font-weight: 600; }
a { color: inherit; }
""".strip()
LONG_CELL = 24  # cells with more letters get a minimum width


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of text; columns of numbers and empty cells are aligned to the right.

    tones   pairs (text, CSS class): cells with exactly this text are coloured as "good", "bad" or "open"
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    tones: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(f"row {number} has {len(row)} cells; the table has {len(self.columns)} columns.")


@dataclass(frozen=True)
class Plot:
    """SVGs of one figure with a caption, and names of files with the same content."""

    svgs: Sequence[str]
    caption: str
    files: Sequence[str] = ()


Part = Paragraph | Table | Plot


@dataclass(frozen=True)
class Section:
    """A heading and its content."""

    heading: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Report:
    """A title, an opening paragraph with the main result, and sections."""

    title: str
    lead: str
    sections: Sequence[Section]


def page(report: Report) -> str:
    """The HTML file."""
    body = "\n".join(_section(section) for section in report.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(report.title)}</h1>\n<p>{escape(report.lead)}</p>\n{body}\n</main>\n</body>\n</html>\n"
    )


def how_made(*, version: str, command: str, seeds: str, engine: str, seconds: float, more: str = "") -> Section:
    """The last section of every report: command, versions and machine, to reproduce the report."""

    rows = [
        ("command", command),
        ("seeds", seeds),
        ("truthfl", version),
        ("Python, NumPy", f"{platform.python_version()}, {np.__version__}"),
        ("trained by", engine),
        ("machine", f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"),
        ("took", _duration(seconds)),
    ]
    parts: list[Part] = [Table(("what", "value"), rows)]
    return Section("How this was made", [*parts, Paragraph(more)] if more else parts)


def _section(section: Section) -> str:
    return f"<section>\n<h2>{escape(section.heading)}</h2>\n" + "\n".join(map(_part, section.parts)) + "\n</section>"


def _part(part: Part) -> str:
    if isinstance(part, Paragraph):
        return f"<p>{escape(part.text)}</p>"
    if isinstance(part, Table):
        return _table(part)
    files = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in part.files)
    caption = escape(part.caption) + (f" Files: {files}." if files else "")
    pictures = "\n".join(part.svgs)
    return f'<figure>\n<div class="panels">\n{pictures}\n</div>\n<figcaption>{caption}</figcaption>\n</figure>'


def _table(table: Table) -> str:
    tones = dict(table.tones)
    numeric = [any(cells) and all(map(_is_number, filter(None, cells))) for cells in zip(*table.rows, strict=True)]
    classes = [' class="number"' if is_numeric else "" for is_numeric in numeric] or [""] * len(table.columns)
    head = "".join(
        f'<th scope="col"{css}>{escape(column)}</th>' for column, css in zip(table.columns, classes, strict=True)
    )
    rows = "\n".join(
        "<tr>" + "".join(_cell(*pair, tones) for pair in zip(row, numeric, strict=True)) + "</tr>" for row in table.rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="table">\n<table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def _cell(cell: str, numeric: bool, tones: dict[str, str]) -> str:
    if cell in tones:
        css = f' class="{escape(tones[cell])}"'
    elif numeric:
        css = ' class="number"'
    else:
        css = ' class="long"' if len(cell) > LONG_CELL else ""
    return f"<td{css}>{escape(cell)}</td>"


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "").replace("−", "-").removesuffix("%"))
    except ValueError:
        return False
    return True


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
