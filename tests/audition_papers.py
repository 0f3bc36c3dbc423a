"""An offer with an audition to Ada, with round numbers, and receipts for it."""

from pathlib import Path

from participants import SECRET, TEST_SET, Ada, a_round, an_offer, changed
from truthfl.contracts.audition.pay import Audition
from truthfl.home import participant_folder
from truthfl.ledger.book import open_ledger
from truthfl.ledger.documents import signed_offer
from truthfl.ledger.evidence import passes
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import signed_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.terms import TriedLie

RECIPE = {"steps": 100, "batch_size": 16, "step_size": 0.5, "penalty": 0.01, "shifts": 4}
TERMS = {
    "labels": 50.0, "solo_level": 1.0, "solo_spread": 0.1, "gate": 0.4,
    "label_slope": 200.0, "label_base": 90.0, "label_cap": 151.8,
    "joint_slope": 300.0, "joint_base": 40.0, "joint_cap": 70.0,
    "joint_constant": 0.4, "joint_curve": 20.0, "total_labels": 200.0, "audition_pay": 2.0,
}  # fmt: skip
LIES = (
    TriedLie("fewer labels", "half of the labels", 0.5, 4, 1.0, 0.02, 0.005, 0.25, 0.03),
    TriedLie("random labels", "no labels, rest at random", 0.0, 4, 1.0, 0.3, 0.02, 0.9, 0.02),
    TriedLie("fabricated report", "echo × 1.4", 1.0, 0, 0.8, 0.05, 0.01),
)


def an_audition_offer(key, operator, terms=None, **changes):
    """The offer; `terms` are changes of its terms of pay."""
    offer = an_offer(
        key, operator,
        contract=Audition.kind, formula=Audition.formula, dropping_out=Audition.dropping_out,
        rounds=5, expected_loss=0.5, loss_error=0.05, recipe=RECIPE, audition_seconds=3600.0,
        samples=50, batch_size=4, labeling_cost=60.0, sample_cost=0.5, audition_cost=2.0, lies=LIES,
        pay=TERMS | (terms or {}),
    )  # fmt: skip
    return signed_offer(changed(offer, **changes), operator)


def an_audition_receipt(folder, offer, answer, operator, *, solo_loss, reason=None, loss=0.79, taken=4):
    """As the operator's book gives it; the others shift the expected solo loss by half a standard deviation."""
    job, name = offer.job, offer.client.name
    passed = passes(offer, solo_loss, 0.5)
    result = {
        "client": name, "offer": offer.hash, "model": None if solo_loss is None else "ef" * 32,
        "salt": None if solo_loss is None else "12" * 32, "solo_loss": solo_loss, "level_shift": 0.5,
        "passed": passed, "reason": reason,
    }  # fmt: skip
    tested = {
        "model": "cd" * 32, "test_set": TEST_SET, "samples": 2000, "secret": SECRET, "loss": loss, "accuracy": 0.9,
    }  # fmt: skip
    with open_ledger(Path(folder) / "ledger.db", operator) as book:
        book.append(job.name, "job", "job", {"commitment": job.commitment})
        book.append(job.name, "offer", offer.key, offer.envelope())
        book.append(job.name, "answer", offer.key, answer)
        committed = {"client": name, "offer": offer.hash, "commitment": "34" * 32}
        book.append(job.name, "commitment", name, committed)
        book.append(job.name, "audition", name, result)
        for round_ in range(job.rounds if passed else 0):
            missing = [] if round_ < taken else [name]
            book.append(job.name, "round", str(round_ + 1), a_round(offer, round_ + 1, missing))
        book.append(job.name, "test", "test", tested)
        settle(book, job.name)
        rows = book.entries()
        return signed_receipt(offer, job_view(job.name, rows), rows, operator)


class AuditionedAda(Ada):
    """Ada, who is offered an audition."""

    def gets_offer(self, **changes):
        offer = an_audition_offer(self.key, self.operator, **changes)
        participant_folder.put_offer(self.home, offer)
        return offer

    def gets_receipt(self, offer, **facts):
        answer = participant_folder.read_answer(self.home, offer)
        paper = an_audition_receipt(self.folder, offer, answer, self.operator, **facts)
        participant_folder.put_receipt(self.home, paper, offer.job.name)
        return paper
