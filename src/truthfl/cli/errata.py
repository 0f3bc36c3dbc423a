"""`truthfl errata`: the paper's errors, computed as printed and as corrected."""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.cli.output import console, print_json, table


def errata(json: Annotated[bool, typer.Option("--json", help="One object per error.")] = False) -> None:
    """What the paper prints, what is right, and what goes wrong otherwise: computed now, both ways.

    Example: truthfl errata
    """
    from truthfl.studies.reproduce import errata as paper_errata

    errors = paper_errata.errata()
    if json:
        print_json(errors)
        return
    rows = [[str(e.number), e.where, e.quantity, f"{e.printed:.4g}", f"{e.correct:.4g}", e.consequence] for e in errors]
    columns = ["#", "where", "what", "printed", "correct", "what goes wrong"]
    console().print(table("The paper's errors", columns, rows, text=(0, 1, 2, 5)))
