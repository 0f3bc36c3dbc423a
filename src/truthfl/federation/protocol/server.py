"""The job as a protocol, from the server's side: enrol, plan, offer, accept, label, train, test, settle, receipt.

Everything it has done stands in the book, so it can be stopped anywhere and called again: it goes on where it was.
Looks at the stages (`enrolment`, `offers`, `rounds`), `audit` and the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from flwr.serverapp import Grid

from truthfl.errors import InputError, TruthflError
from truthfl.federation.protocol.ask_nodes import ask
from truthfl.federation.protocol.audit import publish_model, test_loss
from truthfl.federation.protocol.enrolment import ANSWER_WITHIN, Roster, wait_for_clients
from truthfl.federation.protocol.job_model import model_of
from truthfl.federation.protocol.messages import RECEIPT, question
from truthfl.federation.protocol.notices import tell
from truthfl.federation.protocol.offers import agree, wait_for_labels
from truthfl.federation.protocol.planned_offers import MakePlan, planned_offers
from truthfl.federation.protocol.promise import Opening
from truthfl.federation.protocol.recorder import model_digest
from truthfl.federation.protocol.rounds import Course, train_rounds
from truthfl.job import DataJob
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model, Params
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.commitment import commitment, test_set_digest
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.receipts import make_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import PrivateKey, public_line

Watch = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Operator:
    """What the operator brings to a job: her book, a folder, her key, the secret of the test draw.

    authenticated  whether her SuperLink lets in registered keys alone
    """

    book: Ledger
    folder: Path
    key: PrivateKey
    secret: str
    seed: int
    authenticated: bool = False


def job_name(book: Ledger, job: DataJob, seed: int, *, told: Callable[[str], bool] = lambda _: True) -> str:
    """The job that this is: the unfinished one with these very job_view, or else a new one.

    One that is finished but that nobody was told of (`told`) is not over either.
    """
    stem = digest({"job": job.document(), "seed": seed})[:12]
    number = 1
    while _closed(job_view(f"{stem}-{number}", book.entries(f"{stem}-{number}"))):
        if book.find(f"{stem}-{number + 1}", "job", "job") is None and not told(f"{stem}-{number}"):
            break
        number += 1
    return f"{stem}-{number}"


def conduct(grid: Grid, job: DataJob, name: str, operator: Operator, make_plan: MakePlan, watch: Watch) -> JobView:
    """The whole job, or what is left of it; what the book then says of it."""
    side = job.server_side()
    test_set = test_set_digest(side.test.images, side.test.labels)
    committed = commitment(test_set, job.server.test_samples, operator.secret)
    opening = Opening(operator.seed, committed, public_line(operator.key))
    operator.book.append(name, "job", "job", {"job": job.document(), **asdict(opening)})
    before = job_view(name, operator.book.entries(name))
    shape = side.test.images.shape[1:]
    roster = Roster(grid, operator.book, name, job.clients.name, job.server, shape, operator.authenticated)
    roster.described |= {client: entry.document for client, entry in before.enrolments.items()}
    with _its_end_told(roster):
        watch("waiting for clients", 0, 0)
        if before.offers:
            roster.look()
        else:
            wait_for_clients(roster)
        watch("planning on pilot data", 0, 0)
        agreed = agree(roster, partial(planned_offers, roster, job, make_plan, opening))
        if before.test is None:
            if not before.rounds:
                wait_for_labels(roster, agreed, lambda done: watch("labeling", done, len(agreed.offers)))
            course = Course(model_of(agreed.terms), agreed, operator.folder / "checkpoints" / name)
            params = train_rounds(roster, course, side.test, lambda done: watch("training", done, course.rounds))
            publish_model(operator.folder, name, params, side.test)
            said = tested(course.model, params, side.test, job.server.test_samples, operator.secret, test_set)
            operator.book.append(name, "test", "test", said)
        settle(operator.book, name)
        hand_out(roster, name, operator)
    return job_view(name, operator.book.entries(name))


def tested(
    model: Model, params: Params, test: LabeledImages, samples: int, secret: str, test_set: str
) -> dict[str, object]:
    """The reveal: what the server had committed itself to, and what came out."""
    loss = test_loss(model, params, test, samples, secret)
    if not np.isfinite(loss):
        raise InputError("the final model has no finite loss; such a job cannot be settled.")
    return {
        "model": model_digest(params),
        "test_set": test_set,
        "samples": samples,
        "secret": secret,
        "loss": loss,
        "accuracy": model.accuracy(params, test.images, test.labels),
    }


def hand_out(roster: Roster, name: str, operator: Operator) -> None:
    """Everybody's receipt: into the book, and to her node if it is there."""
    rows = operator.book.entries()
    found = job_view(name, [row for row in rows if row.job == name])
    questions = []
    for offer in found.agreement.offers if found.agreement is not None else ():
        paper, client = make_receipt(offer, found, rows, operator.key), offer.client.name
        said = {"client": client, "digest": digest(paper["document"]), "signature": paper["signature"]}
        operator.book.append(name, "receipt", client, said)
        if client in roster.node_of:
            questions.append(question(RECEIPT, roster.node_of[client], paper))
    ask(roster.grid, questions, timeout=ANSWER_WITHIN)


@contextmanager
def _its_end_told(roster: Roster) -> Iterator[None]:
    """If the job cannot go on, those who wait for it are told why."""
    try:
        yield
    except TruthflError as error:
        tell(roster.grid, roster.node_of.values(), f"The operator's server ended the job: {error}", over=True)
        raise


def _closed(found: JobView) -> bool:
    return found.agreement is not None and len(found.receipts) == len(found.agreement.offers)
