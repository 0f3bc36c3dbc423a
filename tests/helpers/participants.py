"""A participant's pictures, offer and receipt; changed replies; another user of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord
from PIL import Image

from truthfl.contracts.lceme.contract import LCEME
from truthfl.federation.protocol.messages import (
    CODE,
    MODEL,
    PARTICIPANT,
    ROUND,
    array_bytes_digest,
    code_key,
    with_code,
)
from truthfl.home import participant_folder
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import commitment, secret_from_seed
from truthfl.ledger.documents import signed_offer
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import signed_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import AgreementKey, agreement_line, new_key, public_line
from truthfl.ledger.terms import ClientTerms, JobTerms, Offer, TriedLie
from truthfl.page import catalogue as numbers

NOBODY = 65534
PYTHON = "/usr/bin/python3"  # one that every user may start
OPEN = "import sys\nfor path in sys.argv[1:]:\n    open(path, 'rb')"


def can_be_another_user():
    return os.getuid() == 0 and shutil.which(PYTHON) is not None


def another_user_can_open(path):
    """Whether another user can open this file, if all folders above the operator's folder let them through."""
    return _as_nobody(OPEN, str(Path(path).resolve())).returncode == 0


def _as_nobody(code, *arguments):
    command = [PYTHON, "-I", "-c", code, *arguments]
    return subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60
    )


SECRET = secret_from_seed(7)
TEST_SET = "ab" * 32
AGREEMENT_KEY = agreement_line(AgreementKey.generate())


def draw_pictures(folder, count, size=28):
    """Different pictures whose pixels show their number."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = np.zeros((size, size), np.uint8)
        pixels[:2, :8] = [255 * (number >> bit & 1) for bit in range(8)]
        pixels[2:4, :8] = [255 * (number >> (8 + bit) & 1) for bit in range(8)]
        pixels[8:-4, 8:-8] = 200
        Image.fromarray(pixels).save(folder / f"{number:05d}.png")
    return folder


def an_offer(key, operator, **changes):
    """An offer to Ada, signed by the operator; changes are to fields of the job's terms or of Ada's."""
    job = JobTerms(
        name="digits-1",
        version=1,
        contract=LCEME.kind,
        formula=LCEME.formula,
        dropping_out=LCEME.dropping_out,
        operator_key=public_line(operator),
        model={"kind": "softmax", "penalty": 0.001, "filters": 8},
        image_shape=(28, 28, 1),
        classes=tuple("0123456789"),
        rounds=3,
        local_steps=1,
        step_size=0.5,
        seed=0,
        expected_loss=1.0806,
        loss_error=0.0271,
        commitment=commitment(TEST_SET, 2000, SECRET),
        test_samples=2000,
        label_seconds=604800.0,
        round_seconds=600.0,
        currency="cent",
        minor_units=1,
        agreement_key=AGREEMENT_KEY,
        lies_tried=32,
    )
    client = ClientTerms(
        name="Ada",
        index=0,
        public_key=public_line(key),
        samples=120,
        batch_size=13,
        weight=1.0,
        participation=1.0,
        labeling_cost=120.0,
        sample_cost=0.5,
        pay={"base": 4319.6556, "slope": 3821.8232, "labeling_cost": 120.0},
        lies=(
            TriedLie("labels by machine", "no labels, rest by the common model", 0.0, 13, 1.0, 0.004, 0.001),
            TriedLie("fabricated report", "echo × 1.4", 0.0, 0, 2 / 3, 0.012, 0.002),
            TriedLie("other batch", "batch × 0.46", 1.0, 6, 1.0, 0.006, 0.001),
        ),
    )
    return signed_offer(changed(Offer(job, client), **changes), operator)


def changed(offer, **changes):
    """The same offer with other terms, not signed; `client` renames the client and `job` the job."""
    renamed = {"client": ("client", "name"), "job": ("job", "name")}
    parts = {"job": {}, "client": {}}
    for name, value in changes.items():
        part, field = renamed.get(name, ("job" if name in JobTerms.__dataclass_fields__ else "client", name))
        parts[part][field] = value
    return Offer(replace(offer.job, **parts["job"]), replace(offer.client, **parts["client"]))


def a_round(offer, number, missing=()):
    """The row of a round; the models form a sequence, and the last is tested."""
    models = [*(f"{k:064x}" for k in range(offer.job.rounds)), "cd" * 32]
    return {"round": number, "missing": list(missing), "previous": models[number - 1], "model": models[number]}


def a_receipt(folder, offer, answer, operator, loss=1.1, accuracy=0.9):
    """A receipt from the operator's book, with all rounds delivered."""
    tested = {
        "model": "cd" * 32,
        "test_set": TEST_SET,
        "samples": 2000,
        "secret": SECRET,
        "loss": loss,
        "accuracy": accuracy,
    }
    with open_ledger(Path(folder) / "ledger.db", operator) as book:
        book.append(offer.job.name, "job", "job", {"commitment": offer.job.commitment})
        book.append(offer.job.name, "offer", offer.key, offer.envelope())
        book.append(offer.job.name, "answer", offer.key, answer)
        for round_ in range(offer.job.rounds):
            book.append(offer.job.name, "round", str(round_ + 1), a_round(offer, round_ + 1))
        book.append(offer.job.name, "test", "test", tested)
        settle(book, offer.job.name)
        rows = book.entries()
        return signed_receipt(offer, job_view(offer.job.name, rows), rows, operator)


class Ada:
    """A participant's home and key, and their operator."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        self.key, self.operator = new_key(), new_key()

    def gets_offer(self, **changes):
        offer = an_offer(self.key, self.operator, **changes)
        participant_folder.put_offer(self.home, offer)
        return offer

    def accepts(self, offer):
        return participant_folder.put_answer(self.home, offer, self.key, accepted=True)

    def gets_receipt(self, offer, **facts):
        paper = a_receipt(self.folder, offer, participant_folder.read_answer(self.home, offer), self.operator, **facts)
        participant_folder.put_receipt(self.home, paper, offer.job.name)
        return paper


def written(step):
    """The numbers and the result of a step in a receipt's calculation, as the page writes them in English."""
    terms = [
        term if isinstance(term, str) else numbers.number(term["number"], term["places"])
        for term in [*step["numbers"], step["result"]]
    ]
    return " ".join(terms[:-1]), terms[-1]


def recoded(home, reply, offer_home=None):
    """The same reply with the code of the participant with this folder; unchanged if it has no round or no arrays.

    offer_home  the folder that has the offer; by default the same
    """
    fields, arrays = reply.content.config_records.get(ROUND), reply.content.array_records.get(MODEL)
    if fields is not None and arrays is not None:
        offer = participant_folder.read_offer(offer_home or home, str(fields["offer"]))
        own = offer if offer_home is None else participant_folder.offers(home)[0]
        key = code_key(participant_folder.agreement_key(home, own), offer.job.agreement_key, offer.hash)
        others = {name: value for name, value in fields.items() if name != CODE}
        reply.content[ROUND] = ConfigRecord(with_code(key, PARTICIPANT, others, array_bytes_digest(arrays)))
    return reply
