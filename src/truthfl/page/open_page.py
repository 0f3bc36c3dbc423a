"""Serve the participant's page in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.serving import OpenPage, opened
from truthfl.samples.label_store import FILE_NAME, LabelStore
from truthfl.samples.sample import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from truthfl.instructions import Instructions
    from truthfl.learning.second_opinion import OpinionSource
    from truthfl.ledger.signing import PrivateKey
    from truthfl.page.open_phone_page import PhoneAccess
    from truthfl.page.work import ExistingLabels, Work

__all__ = ["OpenPage", "open_page"]


@contextmanager
def open_page(
    home: Path,
    samples: Source,
    classes: Sequence[str],
    key: PrivateKey | None = None,
    *,
    existing_labels: ExistingLabels | None = None,
    instructions: Instructions | None = None,
    several: bool = False,
    port: int = 0,
    phone: PhoneAccess | None = None,
    make_opinion: Callable[[], OpinionSource] | None = None,
) -> Iterator[OpenPage]:
    """Serve the page until the context ends.

    home             the participant's folder, with her documents and labels.db
    classes          names of the classes, if there is no offer; none if it has to say them
    key              signs answers to offers
    existing_labels  labels in the sample file itself, indices or names of classes; they are shown, and not changed
    instructions     about the classes, if there is no offer; their examples are in the folder
    several          whether a sample may have several classes, if there is no offer
    port             0 for any free one
    phone            serves it to her phone, too; both work on the same labels
    make_opinion     gives a model to ask about her labels in the review; called when the review is opened
    """
    store = LabelStore(home / FILE_NAME)
    try:
        one_at_a_time = threading.Lock()

        @cache
        def shared_work() -> Work:
            from truthfl.page.work import Work

            return Work(home, samples, classes, store, existing_labels, instructions, several)

        def application(access: AccessSecrets) -> ASGIApp:
            from truthfl.page.application import page

            with one_at_a_time:  # the page and the phone's start at the same time
                work = shared_work()
            return page(work, key, access, make_opinion)

        with opened(application, port, "labeling page") as page_open:
            if phone is None:
                yield page_open
                return
            from truthfl.page.open_phone_page import open_phone_page

            with open_phone_page(application, home, phone) as phone_page:
                yield replace(page_open, phone=phone_page)
    finally:
        store.close()
