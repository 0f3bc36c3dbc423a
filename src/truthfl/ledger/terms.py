"""The terms of a job: what all clients share, what concerns one client, and the offer that holds both.

An offer is a document of plain values, known by its hash. Pay is computed by the mechanism that the offer names and
rounded here, once. Imports `canonical`, `flat_offers` (the first format), and the mechanism when pay is computed: a
page that only lists offers starts without NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.flat_offers import is_flat, nested
from truthfl.mechanism import formulas

if TYPE_CHECKING:
    from truthfl.mechanism.mechanism import Mechanism

FORMAT = 2


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
        return float(
            formulas.own_gap(
                *vars(self).values(), labeling_effort=labeling_effort, batch_size=batch_size, report_scale=report_scale
            )
        )


@dataclass(frozen=True)
class JobTerms:
    """What is the same for all clients of a job.

    name, version     which job, and which version of its offers (declined offers are followed by new ones)
    contract          the kind of the mechanism that pays; formula and dropping_out say it in words
    operator_key      whose signature receipts have
    model, image_shape, classes, rounds, local_steps, step_size, seed    what is trained, and how
    expected_loss     with everybody honest; loss_error is its standard deviation
    commitment        hash of (test set, number of draws, secret); test_samples is that number
    label_seconds, round_seconds    how long the server waits for labels, and for one report
    currency          what the money is called; minor_units of the ledger make one unit of it
    """

    name: str
    version: int
    contract: str
    formula: str
    dropping_out: str
    operator_key: str
    model: Mapping[str, Any]
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    rounds: int
    local_steps: int
    step_size: float
    seed: int
    expected_loss: float
    loss_error: float
    commitment: str
    test_samples: int
    label_seconds: float
    round_seconds: float
    currency: str
    minor_units: int

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"image_shape": list(self.image_shape), "classes": list(self.classes)}


@dataclass(frozen=True)
class ClientTerms:
    """What concerns one client of a job.

    name, index      her name, and her place among the job's clients
    public_key       whose signature accepts the offer
    samples          how many of her samples she labels
    batch_size       D'_i
    weight           p_i, of her reports
    participation    q_i, the share of rounds she is asked in
    labeling_cost    c_l, what labeling all of them is taken to cost her
    sample_cost      c_p, what one sample in one round is taken to cost her
    pay              the terms of her pay, as the job's mechanism names them
    loss_share       what she alone can do to the loss
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
    loss_share: LossShare


@dataclass(frozen=True)
class Offer:
    """What one client is asked to do and what she is paid; `original` is the document it was read from, if any."""

    job: JobTerms
    client: ClientTerms
    original: Document | None = field(default=None, compare=False, repr=False)

    def document(self) -> dict[str, Any]:
        """As it travels, is signed and is kept."""
        if self.original is not None:
            return dict(self.original)
        return {"kind": "offer", "format": FORMAT, "job": self.job.document(), "client": asdict(self.client)}

    @cached_property
    def hash(self) -> str:
        return digest(self.document())

    @property
    def key(self) -> str:
        """What the ledger knows it by, in its job."""
        return f"{self.job.version}/{self.client.name}"

    @property
    def is_flat(self) -> bool:
        """Whether it was written in the first format."""
        return self.original is not None and is_flat(self.original)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism that pays, with this client as its only one."""
        from truthfl.mechanism.registry import find_mechanism

        return find_mechanism(self.job.contract).for_one(self.client.batch_size, self.client.pay)

    @property
    def batch_price(self) -> float:
        """What one more sample in every batch is taken to cost her over the job."""
        return float(formulas.batch_price(self.job.rounds, self.client.participation, self.client.sample_cost))

    @property
    def cost(self) -> float:
        """What honest work is taken to cost her, labeling included."""
        return float(formulas.work_cost(self.client.labeling_cost, 1.0, self.batch_price, self.client.batch_size))

    @property
    def expected_pay(self) -> float:
        """In the job's money, with everybody honest and all rounds delivered."""
        return self.amount(self.job.expected_loss)

    def amount(self, test_loss: float, delivered: int | None = None, asked: int | None = None) -> float:
        """What she gets in the job's money, before it is rounded; for all rounds unless it is said how many."""
        from truthfl.mechanism.observation import Observation

        return float(self.mechanism.pay(Observation(test_loss, delivered=delivered, asked=asked))[0])

    def pay(self, test_loss: float, delivered: int, asked: int) -> int:
        """What she gets in whole minor units; half a unit goes to the even neighbour."""
        if not math.isfinite(test_loss):
            raise InputError("the test loss is not finite; such a model cannot settle a contract.")
        if not 0 <= delivered <= asked <= self.job.rounds:
            raise InputError(
                f"{delivered} of {asked} rounds were delivered; it must be from 0 to all, of at most {self.job.rounds}."
            )
        amount = self.amount(test_loss, delivered, asked)
        if not math.isfinite(amount):
            raise InputError(f"the contract {self.job.contract!r} pays {self.client.name} {amount}; it must be finite.")
        return round(amount * self.job.minor_units)


@dataclass(frozen=True)
class Agreement:
    """A job's terms and the offers that all of its clients accepted, in the clients' order."""

    terms: JobTerms
    offers: tuple[Offer, ...]


def offer_from(document: Document) -> Offer:
    """The offer that this document is, in either format; a sentence where it is none."""
    parts = nested(document) if is_flat(document) else document
    if parts.get("kind") != "offer" or set(parts) != {"kind", "format", "job", "client"} or parts["format"] != FORMAT:
        raise InputError(f"this is no offer: it has {', '.join(map(str, sorted(parts))) or 'nothing'} in it.")
    client = dict(_parts(ClientTerms, parts["client"], "client"))
    client["loss_share"] = LossShare(**_parts(LossShare, client["loss_share"], "loss_share"))
    if not isinstance(client["pay"], Mapping):
        raise InputError("this is no offer: its pay has no terms.")
    return Offer(job_terms_from(parts["job"]), ClientTerms(**client), dict(document))


def job_terms_from(document: object) -> JobTerms:
    """The terms that this part of an offer or of a plan is."""
    job = dict(_parts(JobTerms, document, "job"))
    try:
        job["image_shape"], job["classes"] = tuple(job["image_shape"]), tuple(job["classes"])
    except TypeError as error:
        raise InputError(f"this is no offer: {error}.") from None
    return JobTerms(**job)


def _parts(made: type, values: object, where: str) -> Mapping[str, Any]:
    """Exactly the fields of this class."""
    wanted = {one.name for one in fields(made)}
    if not isinstance(values, Mapping) or set(values) != wanted:
        there = set(map(str, values)) if isinstance(values, Mapping) else set()
        lacks, unknown = ", ".join(sorted(wanted - there)) or "nothing", ", ".join(sorted(there - wanted)) or "nothing"
        raise InputError(f"this is no offer: its {where} lacks {lacks}, and {unknown} is unknown.")
    return values
