"""What the commands on a ledger share: its argument, and a sentence for rows that truthfl did not write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.errors import InputError, TruthflError

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger

LedgerAddress = Annotated[
    str, typer.Argument(metavar="FILE-or-URL", help="The ledger: a file, or postgresql://user@host/db.")
]
JobName = Annotated[str | None, typer.Option("--job", help="One job of it; all of them unless given.")]


@contextmanager
def sentence_for_malformed_rows(opened_ledger: Ledger) -> Iterator[None]:
    """Turn the errors that rows cause which truthfl did not write into a sentence."""
    try:
        yield
    except TruthflError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"{opened_ledger.name} has rows that truthfl did not write ({type(error).__name__}); "
            "truthfl ledger check names the first."
        ) from None
