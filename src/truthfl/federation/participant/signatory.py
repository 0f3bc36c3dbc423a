"""`Signatory`: a participant's enrolment, signed answers and receipts, independent of what they train."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truthfl.coded_text import coded, from_form, sentence_of, untranslated
from truthfl.errors import InputError
from truthfl.federation.participant.task_data import RecentEntries
from truthfl.federation.protocol.messages import PAUSED, RESUMED, STOPPED, code_key
from truthfl.home import node_state, participant_folder
from truthfl.home.record import record_fault
from truthfl.instructions import LARGEST, Example, Instructions
from truthfl.ledger.documents import final_word, offer_fault
from truthfl.ledger.signing import PrivateKey, public_line, sign
from truthfl.ledger.terms import Offer, offer_from
from truthfl.samples.example_files import keep_example, kept_example, require_sound_example
from truthfl.texts import LONGEST_NAME, is_plain, plain

LONGEST_TERM = 2000
MOST_CLASSES = 100_000


def offer_text_fault(offer: Offer) -> str | None:
    """The first text of an offer that is too long or has control characters, in words; None if there is none."""
    job = offer.job
    texts = {"name": job.name, "contract": job.contract, "currency": job.currency}
    limits = dict.fromkeys(texts, LONGEST_NAME)
    for name, text in (texts | {"formula": job.formula, "dropping_out": job.dropping_out}).items():
        if not is_plain(text, limits.get(name, LONGEST_TERM)):
            return (
                f"its {name} is no text of at most {limits.get(name, LONGEST_TERM)} letters without control characters"
            )
    if len(job.classes) > MOST_CLASSES or not all(is_plain(name, LONGEST_NAME) for name in job.classes):
        return f"its classes are not at most {MOST_CLASSES:,} names without control characters"
    return None


LONGEST_ENCODED = 4 * (max(LARGEST.values()) // 3 + 1)  # letters of one file in base64


def received_examples(files: object, instructions: Instructions) -> dict[Example, bytes]:
    """The content of each example of these instructions, from untrusted base64 files by digest.

    Raise `InputError` if one is missing, is not the one the offer names, is too large, or is dangerous to show.
    """
    return {example: _received(files, example) for example in instructions.examples}


def _received(files: object, example: Example) -> bytes:
    text = files.get(example.sha256) if isinstance(files, Mapping) else None
    if not isinstance(text, str) or len(text) > LONGEST_ENCODED:
        raise InputError(f"the example {example.sha256[:8]}… of the offer did not come, or is too long.")
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        raise InputError(f"the example {example.sha256[:8]}… of the offer came damaged.") from None
    require_sound_example(content, example)
    return content


DIGEST_LENGTH, HEX_DIGITS = 64, frozenset("0123456789abcdef")
LONGEST_JOB_NAME, LONGEST_NEWS, LONGEST_FORM = 300, 1000, 4000
OTHER_OPERATOR = coded(
    "news.other_operator",
    "An offer came that another key than the operator's has signed; it is refused. Ask the operator what happened: a "
    "new key needs a new invitation.",
)
Decide = Callable[[Offer], bool | None]


@dataclass(eq=False, kw_only=True)
class Signatory:
    """One client with a signing key and a folder of documents.

    samples                     the number of samples that the client has
    key                         signs the answers
    folder                      for offers, answers, receipts and news
    decide                      returns whether to accept an offer; None leaves the answer to the page or terminal
    labeling_cost, sample_cost  the stated costs; None states none
    operator                    the only public key whose offers are answered; "" trusts the key of a job's first offer
    code_keys                   by offer: a cache of `code_key`
    """

    name: str
    samples: int
    key: PrivateKey
    folder: Path
    decide: Decide
    labeling_cost: float | None = None
    sample_cost: float | None = None
    operator: str = ""
    code_keys: dict[str, bytes] = field(default_factory=RecentEntries)

    def describe(self) -> dict[str, Any]:
        """Return the enrolment document."""
        description: dict[str, Any] = {"name": self.name, "samples": self.samples, "public_key": public_line(self.key)}
        costs = {"labeling_cost": self.labeling_cost, "sample_cost": self.sample_cost}
        return description | {name: cost for name, cost in costs.items() if cost is not None}

    def signed_description(self, job: str, challenge: str) -> dict[str, Any]:
        """The client's description, signed for this job and the server's challenge, so nobody else can enrol them."""
        description = self.describe()
        proof = {"kind": "enrolment", "job": job, "challenge": challenge, "description": description}
        return {"document": description, "signature": sign(self.key, proof)}

    def note_job(self, job: str) -> None:
        """Write the name of the job that asks for the enrolment, so that its receipt is recognized."""
        participant_folder.put_current_job(self.folder, job[:LONGEST_JOB_NAME])

    def answer_offer(self, document: dict[str, Any]) -> dict[str, Any] | None:
        """Keep an offer; return the signed answer to it, or None if it is not decided yet."""
        offer = self._sound_offer(document)
        if participant_folder.read_offer(self.folder, offer.hash) is None:
            participant_folder.clear_news(self.folder)
        participant_folder.put_offer(self.folder, offer)
        answer = participant_folder.read_answer(self.folder, offer)
        if answer is not None:
            return answer
        accepted = self.decide(offer)
        if accepted is None:
            return None
        if accepted and self._promised_masks(offer):
            words = (
                "The new offer of this job sends reports without masks, where an earlier one promised sums of several "
                "people. It was declined for you, since nobody asked you."
            )
            participant_folder.put_news(self.folder, coded("news.bare_offer", words), over=False)
            accepted = False
        return participant_folder.put_answer(self.folder, offer, self.key, accepted=accepted)

    def lacks_examples(self, document: dict[str, Any]) -> bool:
        """Whether an offer names examples of its classes that are not in the folder; the answer waits for them."""
        instructions = offer_from(document).job.instructions
        return instructions is not None and any(
            kept_example(self.folder, example) is None for example in instructions.examples
        )

    def keep_examples(self, document: dict[str, Any]) -> None:
        """Write the examples of an offer to the folder; each must be the one that the operator signed.

        A different, too large or dangerous example is refused, and the page shows this.
        """
        envelope = document.get("offer")
        if not isinstance(envelope, dict):
            raise InputError("the message has no offer to which its examples belong.")
        offer = self._sound_offer(envelope)
        instructions = offer.job.instructions or Instructions()
        try:
            received = received_examples(document.get("examples"), instructions)
        except InputError as error:
            words, reason = "An offer came that cannot be shown: {reason}", untranslated(sentence_of(error))
            participant_folder.put_news(self.folder, coded("news.offer_refused", words, reason=reason), over=False)
            raise
        for example, content in received.items():
            keep_example(self.folder, example, content)

    def _sound_offer(self, document: dict[str, Any]) -> Offer:
        """The offer in this document; raise InputError unless it is to this client and sound."""
        offer = offer_from(document)
        if offer.client.public_key != public_line(self.key) or offer.client.name != self.name:
            raise InputError(f"the offer is to {offer.client.name}, with another key than {self.name}'s.")
        if offer.client.samples > self.samples:
            raise InputError(f"the offer asks for {offer.client.samples} samples; {self.name} has {self.samples}.")
        fault = offer_fault(offer) or offer_text_fault(offer)
        if fault is not None:
            raise InputError(f"the offer to {self.name} is refused: {fault}.")
        offer.require_payable()
        if participant_folder.read_offer(self.folder, offer.hash) is None:
            self._require_known_operator(offer)
        return offer

    def _require_known_operator(self, offer: Offer) -> None:
        """Raise InputError if an offer's key is not the operator's, or not that of the job's earlier offers."""
        if self.operator and offer.job.operator_key != self.operator:
            participant_folder.put_news(self.folder, OTHER_OPERATOR, over=False)
            raise InputError(f"the offer to {self.name} is signed by another key than the operator's; it is refused.")
        earlier = [one.job for one in participant_folder.offers(self.folder) if one.job.name == offer.job.name]
        if any(job.operator_key != offer.job.operator_key for job in earlier):
            raise InputError(f"job {offer.job.name} had offers of another operator's key; this one is refused.")

    def _promised_masks(self, offer: Offer) -> bool:
        """Whether an earlier accepted offer of this job masks reports, and this one does not."""
        return not offer.job.masked and any(
            one.job.masked and one.job.name == offer.job.name and participant_folder.has_accepted(self.folder, one)
            for one in participant_folder.offers(self.folder, {offer.hash})
        )

    def has_labels(self, offer_hash: str) -> bool:
        """Whether all labels that the offer requires are there."""
        return self.accepted_offer(offer_hash) is not None

    def labels_so_far(self, offer_hash: str) -> int | None:  # noqa: ARG002
        """How many of the required labels exist while some are missing; None if not known."""
        return None

    def accepted_offer(self, offer_hash: str) -> Offer:
        """Return the offer with this hash; raise InputError unless it was accepted."""
        offer = participant_folder.read_offer(self.folder, offer_hash)
        if offer is None or not participant_folder.has_accepted(self.folder, offer):
            raise InputError("this offer was not accepted here.")
        return offer

    def code_key(self, offer_hash: str) -> bytes:
        """The key of the codes between this client and the operator under an accepted offer."""
        if offer_hash not in self.code_keys:
            offer = self.accepted_offer(offer_hash)
            own = participant_folder.agreement_key(self.folder, offer)
            self.code_keys[offer_hash] = code_key(own, offer.job.agreement_key, offer_hash)
        return self.code_keys[offer_hash]

    def sign_final(self, offer_hash: str, model: str) -> dict[str, Any]:
        """Sign that this digest of the job's final model arrived, and keep it; another digest is refused."""
        offer = self.accepted_offer(offer_hash)
        if len(model) != DIGEST_LENGTH or not set(model) <= HEX_DIGITS:
            raise InputError("the final model's digest is no hash.")
        word = participant_folder.put_final(self.folder, offer, final_word(offer, model, self.key))
        if word["document"]["model"] != model:
            raise InputError(f"{self.name} has signed for another final model of this job.")
        return word

    def keep_news(self, document: dict[str, Any]) -> None:
        """Write the server's news to the folder."""
        about, form = plain(document.get("about", "")), document.get("message")
        sentence = from_form(
            plain(document.get("sentence", ""), LONGEST_NEWS), form if len(json.dumps(form)) <= LONGEST_FORM else None
        )
        participant_folder.put_news(self.folder, sentence, over=document.get("over") is True, about=about)
        if about not in (PAUSED, RESUMED, STOPPED):
            return
        offer = participant_folder.last_accepted_offer(self.folder)
        if offer is None or participant_folder.current_job(self.folder) not in (None, offer.job.name):
            return  # it is about a job without a contract
        if about == STOPPED:
            node_state.note_stage(self.folder, offer.hash, node_state.STOPPED)
        else:
            node_state.note_pause(self.folder, offer.hash, paused=about == PAUSED)

    def keep_receipt(self, receipt: dict[str, Any], content: bytes | None = None) -> str | None:
        """Write the signed receipt to the folder; return how it contradicts what was sent from here, or None.

        content  the receipt as it was received, if it was
        """
        document = receipt.get("document")
        if not isinstance(document, dict):
            raise InputError("the receipt is no signed document.")
        participant_folder.put_receipt(self.folder, receipt, str(document.get("job")), content)
        try:
            return record_fault(self.folder, document)
        except (LookupError, TypeError, ValueError, AttributeError, InputError):
            return "it cannot be read"
