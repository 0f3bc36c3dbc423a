"""Serve the participant's page in a thread of this process.

Imports `serving`, `work`, `samples`; `application` in the thread; `ledger` for types only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.serving import OpenPage, opened
from truthfl.page.work import Work
from truthfl.samples.label_store import FILE_NAME, LabelStore
from truthfl.samples.sample import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from truthfl.ledger.signing import PrivateKey

__all__ = ["OpenPage", "open_page"]


@contextmanager
def open_page(
    home: Path,
    samples: Source,
    classes: Sequence[str],
    key: PrivateKey | None = None,
    *,
    existing_labels: Sequence[int | str] | None = None,
    port: int = 0,
) -> Iterator[OpenPage]:
    """Serve the page until the context ends.

    home             the participant's folder, with her documents and labels.db
    classes          names of the classes, if there is no offer
    key              signs answers to offers
    existing_labels  labels in the sample file itself, indices or names of classes; they are shown, and not changed
    port             0 for any free one
    """
    store = LabelStore(home / FILE_NAME)
    try:
        work = Work(home, samples, classes, store, existing_labels)

        def application(access: AccessSecrets) -> ASGIApp:
            from truthfl.page.application import page

            return page(work, key, access)

        with opened(application, port, "labeling page") as page_open:
            yield page_open
    finally:
        store.close()
