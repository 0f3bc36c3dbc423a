"""What server and client hand each other: the offer and her answer. Plain values, signed where it matters.

A signed paper is `{"document": …, "signature": …}`; its document says whose key signed it. Looks at `canonical`,
`signing`, `terms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.signing import PrivateKey, public_line, sign, signed_by
from truthfl.ledger.terms import Terms


@dataclass(frozen=True)
class LossShare:
    """The client's own terms of the loss model: what small batches, random labels and scaled reports do to the loss.

    sampling v_i, labeling b_i, reporting g_i, reporting_sampling v'_i, reporting_labeling b'_i (docs/mechanism.md, 2)
    """

    sampling: float
    labeling: float
    reporting: float
    reporting_sampling: float
    reporting_labeling: float

    def gap(self, labeling_effort: float, batch_size: float, report_scale: float) -> float:
        """Her part of the expected loss if she does this."""
        idle, scaled = 1.0 - labeling_effort, (report_scale - 1.0) ** 2
        honest = self.sampling / batch_size + self.labeling * idle
        return honest + scaled * (
            self.reporting + self.reporting_sampling / batch_size + self.reporting_labeling * idle
        )


@dataclass(frozen=True)
class Offer:
    """What one client is asked to do and what she is paid, with every number of it.

    job, version      which job, and which offer to her in it (declined offers are followed by new ones)
    client, index     her name, and her place among the contract's clients
    public_key        whose signature accepts this offer
    operator_key      whose signature the receipt will have
    samples           how many of her pictures she labels
    classes           into which classes
    batch_size        D'_i
    rounds, local_steps, step_size, seed, model, image_shape    how is trained, and what
    weight            p_i, of her reports
    participation     q_i, the share of rounds she is asked in
    terms             of her reward
    sample_cost       c_p, what one sample in one round is taken to cost her
    expected_loss     with everybody honest; loss_error is its standard deviation
    loss_share        what she alone can do to the loss
    commitment        hash of (test set, number of draws, secret); test_samples is that number
    label_seconds, round_seconds    how long the server waits for labels, and for one report
    currency, formula, dropping_out    in words
    """

    job: str
    version: int
    client: str
    index: int
    public_key: str
    operator_key: str
    samples: int
    classes: tuple[str, ...]
    batch_size: int
    rounds: int
    local_steps: int
    step_size: float
    seed: int
    model: Mapping[str, Any]
    image_shape: tuple[int, ...]
    weight: float
    participation: float
    terms: Terms
    sample_cost: float
    expected_loss: float
    loss_error: float
    loss_share: LossShare
    commitment: str
    test_samples: int
    label_seconds: float
    round_seconds: float
    currency: str
    formula: str
    dropping_out: str

    def document(self) -> dict[str, Any]:
        """As it travels."""
        plain = asdict(self) | {"classes": list(self.classes), "image_shape": list(self.image_shape)}
        return {"kind": "offer"} | plain

    @cached_property
    def hash(self) -> str:
        return digest(self.document())

    @property
    def cost(self) -> float:
        """What honest work is taken to cost her, labeling included."""
        return self.terms.labeling_cost + self.rounds * self.participation * self.sample_cost * self.batch_size

    @property
    def expected_pay(self) -> float:
        """In the job's money, with everybody honest."""
        return self.terms.reward(self.expected_loss)


def offer_from(document: Document) -> Offer:
    """The offer that this document is; a sentence where it is none."""
    wanted = {field.name for field in fields(Offer)}
    if document.get("kind") != "offer" or set(document) != wanted | {"kind"}:
        missing, extra = sorted(wanted - set(document)), sorted(set(document) - wanted - {"kind"})
        lacks, knows_not = ", ".join(missing) or "nothing", ", ".join(extra) or "nothing"
        raise InputError(f"this is no offer: it lacks {lacks}, and {knows_not} is unknown.")
    values = {name: document[name] for name in wanted}
    try:
        values["terms"] = Terms(**values["terms"])
        values["loss_share"] = LossShare(**values["loss_share"])
        values["classes"], values["image_shape"] = tuple(values["classes"]), tuple(values["image_shape"])
    except TypeError as error:
        raise InputError(f"this is no offer: {error}.") from None
    return Offer(**values)


def signed(key: PrivateKey, document: Document) -> dict[str, Any]:
    return {"document": dict(document), "signature": sign(key, document)}


def answer(offer: Offer, key: PrivateKey, *, accepted: bool) -> dict[str, Any]:
    """Her signed answer to an offer."""
    said = "acceptance" if accepted else "refusal"
    document = {"kind": said, "job": offer.job, "client": offer.client, "offer": offer.hash}
    return signed(key, document | {"public_key": public_line(key)})


def answer_fault(paper: Document, offer: Offer) -> str | None:
    """What is wrong with an answer to this offer; None if nothing is."""
    document = paper.get("document")
    if set(paper) != {"document", "signature"} or not isinstance(document, Mapping):
        return "it is no signed paper"
    wanted = {"job": offer.job, "client": offer.client, "offer": offer.hash, "public_key": offer.public_key}
    if document.get("kind") not in ("acceptance", "refusal"):
        return "it neither accepts nor refuses"
    if set(document) != {"kind", *wanted}:
        return "it does not have the parts of an answer"
    for part, value in wanted.items():
        if document.get(part) != value:
            return f"its {part} is not the offer's"
    if not signed_by(offer.public_key, document, str(paper["signature"])):
        return "its signature is not of the offer's public key"
    return None
