"""A participant's things: pictures in a folder, an offer on her desk, a receipt for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from truthfl.ledger import participant_folder
from truthfl.ledger.book import open_ledger
from truthfl.ledger.commitment import commitment, secret_of
from truthfl.ledger.documents import LossShare, Offer
from truthfl.ledger.job_view import job_view, offer_key
from truthfl.ledger.receipts import make_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import new_key, public_line
from truthfl.ledger.terms import DROPPING_OUT, FORMULA, Terms

SECRET = secret_of(7)
TEST_SET = "ab" * 32


def draw_pictures(folder, count, size=28):
    """Different pictures, whose number can be read off their pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = np.zeros((size, size), np.uint8)
        pixels[:2, :8] = [255 * (number >> bit & 1) for bit in range(8)]
        pixels[2:4, :8] = [255 * (number >> (8 + bit) & 1) for bit in range(8)]
        pixels[8:-4, 8:-8] = 200
        Image.fromarray(pixels).save(folder / f"{number:05d}.png")
    return folder


def an_offer(key, operator, **changes):
    offer = Offer(
        job="digits-1",
        version=1,
        client="Ada",
        index=0,
        public_key=public_line(key),
        operator_key=public_line(operator),
        samples=120,
        classes=tuple("0123456789"),
        batch_size=13,
        rounds=3,
        local_steps=1,
        step_size=0.5,
        seed=0,
        model={"kind": "softmax", "penalty": 0.001, "filters": 8},
        image_shape=(28, 28, 1),
        weight=1.0,
        participation=1.0,
        terms=Terms(base=4319.6556, slope=3821.8232, labeling_cost=120.0),
        sample_cost=0.5,
        expected_loss=1.0806,
        loss_error=0.0271,
        loss_share=LossShare(0.0663, 0.2408, 0.0273, 0.0, 0.0),
        commitment=commitment(TEST_SET, 2000, SECRET),
        test_samples=2000,
        label_seconds=604800.0,
        round_seconds=600.0,
        currency="cent",
        formula=FORMULA,
        dropping_out=DROPPING_OUT,
    )
    return replace(offer, **changes)


def a_receipt(folder, offer, answer, operator, loss=1.1, accuracy=0.9):
    """As the operator's book gives it, all rounds delivered."""
    tested = {
        "model": "cd" * 32,
        "test_set": TEST_SET,
        "samples": 2000,
        "secret": SECRET,
        "loss": loss,
        "accuracy": accuracy,
    }
    with open_ledger(Path(folder) / "ledger.db") as book:
        book.append(offer.job, "job", "job", {"commitment": offer.commitment})
        book.append(offer.job, "offer", offer_key(offer), offer.document())
        book.append(offer.job, "answer", offer_key(offer), answer)
        for round_ in range(offer.rounds):
            book.append(offer.job, "round", str(round_), {"taken": [offer.client]})
        book.append(offer.job, "test", "test", tested)
        settle(book, offer.job)
        rows = book.entries()
        return make_receipt(offer, job_view(offer.job, rows), rows, operator)


class Ada:
    """Her home, her key, and the operator who deals with her."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        self.key, self.operator = new_key(), new_key()

    def gets_offer(self, **changes):
        offer = an_offer(self.key, self.operator, **changes)
        participant_folder.put_offer(self.home, offer)
        return offer

    def accepts(self, offer):
        return participant_folder.give_answer(self.home, offer, self.key, accepted=True)

    def gets_receipt(self, offer, **facts):
        paper = a_receipt(self.folder, offer, participant_folder.read_answer(self.home, offer), self.operator, **facts)
        participant_folder.put_receipt(self.home, paper, offer.job)
        return paper
