"""Serve the operator's page in a thread of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.federation.protocol.job_watch import job_watch, ledger_address_of
from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.serving import OpenPage, opened

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from truthfl.ledger.signing import PrivateKey


@contextmanager
def open_operator_page(
    folder: Path, ledger_address: str | None, job: str | None, key: PrivateKey | None, port: int = 0
) -> Iterator[OpenPage]:
    """Serve the page on loopback until the context ends. Whoever has its URL acts with the operator's key.

    folder          the operator's
    ledger_address  the folder's own if None; who gives it with a job may watch one that has not begun
    job             the last of the folder if None
    key             signs commands; None for a page that only shows
    port            0 for any free one
    """
    address = ledger_address or ledger_address_of(folder)
    with job_watch(folder, ledger_address, job) as watched:

        def application(access: AccessSecrets) -> ASGIApp:
            from truthfl.console.application import operator_page

            return operator_page(watched, address, key, access)

        with opened(application, port, "operator's page") as page:
            yield page
