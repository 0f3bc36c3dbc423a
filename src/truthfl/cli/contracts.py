"""The option by which commands that compute pay are given a job's custom contract."""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.custom_code import in_folder


def _register(named: str | None) -> None:
    if named is not None:
        from truthfl.contracts.registry import register_named  # NumPy, for which `truthfl label` need not wait

        register_named(in_folder(named))


CustomContract = Annotated[
    str | None,
    typer.Option(
        "--contract",
        metavar="FILE.py:Class",
        help="The job's custom contract; its code is loaded only if you name it.",
        callback=_register,
    ),
]
