"""Offers: the terms that are the same for all clients of a job, and the terms of one client; the operator signs both.

Pay is computed by the mechanism that the offer names, and rounded in `Offer.pay` only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.job_terms import JobTerms, job_terms_from
from truthfl.ledger.round_terms import FEWEST_MASKED, MOST_OF_ALL, weights_fault
from truthfl.ledger.solo_evidence import SoloEvidence, observation_of
from truthfl.ledger.tried_lies import TriedLie, field_values, tried_lie_from
from truthfl.mechanism import formulas

if TYPE_CHECKING:
    from truthfl.mechanism.checks import FloatArray, IntArray
    from truthfl.mechanism.mechanism import Mechanism

FORMAT = 1
MOST_LIES = 100  # in an offer


@dataclass(frozen=True)
class ClientTerms:
    """The terms of one client of a job.

    name, index      her name, and her position among the job's clients
    public_key       of the signature that accepts the offer
    samples          number of samples to label
    batch_size       D'_i
    weight           p_i, of her reports
    participation    q_i, the share of rounds in which she is asked for a report
    labeling_cost    c_l, assumed cost of labeling all samples
    sample_cost      c_p, assumed cost of one sample in one round
    pay              parameters of her pay, with the mechanism's names
    audition_cost    assumed cost of training alone once
    lies             of the lies that were tried on average the best of each kind, and what each would do if she told it
    stated           whether sample_cost is what she stated, and the terms her item of a screening menu
    """

    name: str
    index: int
    public_key: str
    samples: int
    batch_size: int
    weight: float
    participation: float
    labeling_cost: float
    sample_cost: float
    pay: Mapping[str, float]
    audition_cost: float = 0.0
    lies: tuple[TriedLie, ...] = ()
    stated: bool = False


@dataclass(frozen=True)
class Offer:
    """One client's offer: work and pay.

    original   the document that it was read from, without the signature, if any
    signature  the operator's; "" while it is not signed. `documents` makes and checks it
    """

    job: JobTerms
    client: ClientTerms
    original: Document | None = field(default=None, compare=False, repr=False)
    signature: str = field(default="", compare=False, repr=False)

    def document(self) -> dict[str, Any]:
        """The offer as JSON values: what is signed by both sides."""
        if self.original is not None:
            return dict(self.original)
        client = asdict(self.client) | {"lies": [asdict(lie) for lie in self.client.lies]}
        return {"kind": "offer", "format": FORMAT, "job": self.job.document(), "client": client}

    def envelope(self) -> dict[str, Any]:
        """The offer as it is sent and stored: the document with the operator's signature."""
        return {"document": self.document(), "signature": self.signature}

    @cached_property
    def hash(self) -> str:
        """The hash of the document; the signature is no part of it."""
        return digest(self.document())

    @cached_property
    def job_digest(self) -> str:
        """The digest of the terms that are the same for all clients of the job."""
        return digest(self.document()["job"])

    @property
    def key(self) -> str:
        """The key of its entry in the ledger."""
        return f"{self.job.version}/{self.client.name}"

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism that computes pay, with this client only."""
        from truthfl.mechanism.mechanism import require_collected
        from truthfl.mechanism.registry import find_mechanism

        kind = find_mechanism(self.job.contract)
        require_collected(kind)
        return kind.for_one(self.client.batch_size, self.client.pay)

    def require_payable(self) -> None:
        """Raise InputError unless the contract is known here and pays a finite amount at the expected loss."""
        pay = self.expected_pay
        if not math.isfinite(pay):
            raise InputError(f"the offer's expected pay is {pay}; it must be finite.")
        self.mechanism.require_sound_terms()
        if self.pays_by_solo_model != self.job.has_audition:
            raise InputError(
                f"the contract is {self.job.contract!r}; the offer must have a recipe just if it pays by one."
            )
        if self.job.has_audition and self.client.pay["labels"] != self.client.samples:
            raise InputError("the offer asks for another number of labels than its audition pays for.")

    @property
    def pays_by_solo_model(self) -> bool:
        """Whether its contract needs the test of a model that the client trains alone."""
        from truthfl.mechanism.observation import Evidence

        return Evidence.SOLO_LOSS in self.mechanism.needs

    @property
    def batch_price(self) -> float:
        """Assumed cost of one more sample in every batch, over the whole job."""
        return float(formulas.batch_price(self.job.rounds, self.client.participation, self.client.sample_cost))

    @property
    def cost(self) -> float:
        """Assumed cost of honest work, labeling and training alone included."""
        work = formulas.work_cost(self.client.labeling_cost, 1.0, self.batch_price, self.client.batch_size)
        return float(work + self.client.audition_cost)

    @property
    def expected_pay(self) -> float:
        """Pay in the job's currency if all clients are honest and all rounds are delivered."""
        return self.amount(self.job.expected_loss)

    def amount(
        self,
        test_loss: float,
        delivered: float | None = None,
        asked: int | None = None,
        evidence: SoloEvidence | None = None,
    ) -> float:
        """Pay in the job's currency, not rounded; infinite or NaN where the terms are absurd.

        delivered, asked   numbers of rounds, or the share of them and 1; by default, all rounds count as delivered
        evidence           of an audition; by default, her solo loss is the expected one and all labels take part
        """
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.mechanism.pay(observation_of(test_loss, delivered, asked, evidence))[0])

    def pay(self, test_loss: float, delivered: int, asked: int, evidence: SoloEvidence | None = None) -> int:
        """Pay in whole minor units, rounded half to even; with an audition, its evidence is needed."""
        if not math.isfinite(test_loss):
            raise InputError("the test loss is not finite; such a model cannot settle a contract.")
        if not 0 <= delivered <= asked <= self.job.rounds:
            raise InputError(
                f"{delivered} of {asked} rounds were delivered; it must be from 0 to all, of at most {self.job.rounds}."
            )
        if self.job.has_audition and evidence is None:
            raise InputError(f"the contract {self.job.contract!r} pays by an audition; its result must be given.")
        amount = self.amount(test_loss, delivered, asked, evidence)
        if not math.isfinite(amount):
            raise InputError(f"the contract {self.job.contract!r} pays {self.client.name} {amount}; it must be finite.")
        return round(amount * self.job.minor_units)


@dataclass(frozen=True)
class Agreement:
    """A job's terms and the offers that all of its clients accepted, in the clients' order."""

    terms: JobTerms
    offers: tuple[Offer, ...]

    @cached_property
    def rounds(self) -> int:
        """How many rounds these people train: none if nobody does, or masks would not hide each."""
        fewest = FEWEST_MASKED if self.terms.masked else 1
        return self.terms.rounds if len(self.offers) >= fewest and self.masks_fault is None else 0

    @property
    def masks_fault(self) -> str | None:
        """In words, why a sum of these people's reports would show one of them; None if it does not, or need not."""
        if not self.terms.masked or not self.offers:
            return None
        clients = [offer.client for offer in self.offers]
        return weights_fault([client.weight / client.participation for client in clients], MOST_OF_ALL)

    @cached_property
    def participation(self) -> tuple[FloatArray, IntArray]:
        """(offers,) The share of rounds in which each client is asked, and her position among the job's clients."""
        import numpy as np

        clients = [offer.client for offer in self.offers]
        return np.array([client.participation for client in clients]), np.array([client.index for client in clients])


def offer_from(envelope: Document) -> Offer:
    """The offer in an untrusted document, with its signature if it has one, which is not checked here."""
    parts, signature = _without_signature(envelope)
    if parts.get("kind") != "offer" or set(parts) != {"kind", "format", "job", "client"} or parts["format"] != FORMAT:
        raise InputError(f"this is no offer: it has {', '.join(map(str, sorted(parts))) or 'nothing'} in it.")
    client = dict(field_values(ClientTerms, parts["client"], "client"))
    lies = client.get("lies", ())
    if not isinstance(lies, list | tuple) or len(lies) > MOST_LIES:
        raise InputError(f"this is no offer: its lies are no list of at most {MOST_LIES}.")
    client["lies"] = tuple(tried_lie_from(lie) for lie in lies)
    if not isinstance(client["pay"], Mapping):
        raise InputError("this is no offer: its pay has no terms.")
    if type(client.get("stated", False)) is not bool:
        raise InputError("this is no offer: stated is neither true nor false.")
    return Offer(job_terms_from(parts["job"]), ClientTerms(**client), dict(parts), signature)


def _without_signature(envelope: Document) -> tuple[Document, str]:
    """The document of an offer and its signature; "" if it has none."""
    if set(envelope) != {"document", "signature"}:
        return envelope, ""
    document, signature = envelope["document"], envelope["signature"]
    if not isinstance(document, Mapping) or not isinstance(signature, str):
        raise InputError("this is no offer: it is no document with a signature.")
    return document, signature
