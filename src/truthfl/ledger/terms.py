"""Offers: the terms that all participants of a job share, the terms of its rounds, and one participant's terms.

Pay is computed by the contract that the offer names. It is rounded only in `Offer.pay`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from truthfl.contracts import formulas
from truthfl.contracts.formulas import COMMON, SOLO_MEAN
from truthfl.errors import InputError
from truthfl.instructions import Instructions, instructions_from
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.evidence import SoloEvidence, observation_of
from truthfl.texts import LONGEST_PAYMENT_NOTE, is_plain

if TYPE_CHECKING:
    from truthfl.contracts.contract import Contract
    from truthfl.contracts.setting import FloatArray, IntArray, Training


LONGEST_LIE = 500  # letters


@dataclass(frozen=True)
class TriedLie:
    """A lie that the operator tried on their own data, the best of its kind under this contract.

    kind, words      what the client would do: the kind of lie, and the lie itself in a few words and numbers
    labels           the share of the samples that they would label by hand
    batch_size       the batch that they would use; 0 if they would not compute
    delivered        the share of the rounds in which their report would be taken
    loss_rise        by how much the expected loss would rise
    loss_rise_error  its standard error
    solo_rise        by how much the loss of their solo model would rise; 0 if none is tested
    solo_rise_error  its standard error
    """

    kind: str
    words: str
    labels: float
    batch_size: int
    delivered: float
    loss_rise: float
    loss_rise_error: float
    solo_rise: float = 0.0
    solo_rise_error: float = 0.0


def tried_lie_from(document: object) -> TriedLie:
    """The lie in this part of an offer."""
    lie = TriedLie(**field_values(TriedLie, document, "lie"))
    texts = isinstance(lie.kind, str) and isinstance(lie.words, str) and len(lie.kind + lie.words) <= LONGEST_LIE
    numbers = (
        lie.labels,
        lie.batch_size,
        lie.delivered,
        lie.loss_rise,
        lie.loss_rise_error,
        lie.solo_rise,
        lie.solo_rise_error,
    )
    if not texts or not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
        raise InputError(f"this is no offer: a lie needs two texts of up to {LONGEST_LIE} letters and finite numbers.")
    errors = (lie.loss_rise_error, lie.solo_rise_error)
    if min(lie.labels, lie.batch_size, lie.delivered, *errors) < 0 or lie.delivered > 1:
        raise InputError("this is no offer: a lie has negative numbers, or delivers more than all rounds.")
    return lie


def field_values(dataclass_type: type, values: object, where: str) -> Mapping[str, Any]:
    """The values if they are a mapping with the fields of this class; fields with a default may be absent."""
    known = {item.name for item in fields(dataclass_type)}
    required = {item.name for item in fields(dataclass_type) if item.default is MISSING}
    if not isinstance(values, Mapping) or not required <= set(values) <= known:
        names = set(map(str, values)) if isinstance(values, Mapping) else set()
        missing, unknown = (", ".join(sorted(part)) or "nothing" for part in (required - names, names - known))
        raise InputError(f"this is no offer: its {where} lacks {missing}, and {unknown} is unknown.")
    return values


MEAN, OWN = "mean", "own"
AGGREGATIONS = (MEAN, "trimmed", "median", OWN)
PADDED = "padded"  # how pictures are fitted: scaled with their proportions, in the middle of black
FEWEST_MASKED = 3  # reports in a sum
NOT_IN_TIME, NOT_CONNECTED = "no report in time", "not connected"  # why an expected report is missing
MOST_OF_ALL, MOST_OF_SUM = 0.5, 0.6  # the share that one report may have, of all weight and of an opened sum's
MOST_SUMS, MOST_OTHER_SUMS = 5, 1  # opened from one model with a node's help; and of other people than the first
MOST_OF_TWO = 0.9  # the share that two reports may have together, of either
LONGEST_TASK_NAME = 100
MOST_LOSSES = 1_000  # in a table of losses by rounds
MOST_BOUNDS = 100  # in a table of bounds
KEY_DIGITS, HEX_DIGITS = 64, frozenset("0123456789abcdef")
WEIGHT_ROUNDING = 1e-9


def loss_rise(loss_by_rounds: Sequence[float], rounds: int, changed: int) -> float:
    """The rise of a job's expected loss if only this number of its rounds changed the model.

    loss_by_rounds  the rise if training ends after 0, 1/k, 2/k, … of all rounds, in between on straight lines; none
                    given: 0
    """
    if not loss_by_rounds or not rounds:
        return 0.0
    place = min(changed / rounds, 1.0) * (len(loss_by_rounds) - 1)
    before = min(int(place), len(loss_by_rounds) - 2)
    share = place - before
    return (1.0 - share) * loss_by_rounds[before] + share * loss_by_rounds[before + 1]


def bound_of_round(bounds: Sequence[tuple[int, float]], changed: int) -> float:
    """The largest accepted length of a report's change after this number of rounds that changed the model; 0 for none.

    bounds   as in `JobTerms`; in between on straight lines, and the last one for all later rounds
    changed  the number of earlier rounds of the job that changed the model; rounds that were skipped do not count, for
             they leave the model, and the lengths of honest reports, as they were
    """
    if not bounds:
        return 0.0
    places, values = zip(*bounds, strict=True)
    after = bisect_right(places, changed)
    if after == len(places):
        return float(values[-1])
    share = (changed - places[after - 1]) / (places[after] - places[after - 1])
    return float((1.0 - share) * values[after - 1] + share * values[after])


def sums_fault(lists: Sequence[Sequence[int]], missing: Sequence[int] | None = None) -> str | None:
    """In words, why no more sums are opened from a model; None if there may be one more.

    lists    who was missing in each sum that was opened from it
    missing  who would be missing in the next one; None if it is not known yet
    """
    if len(lists) >= MOST_SUMS:
        return f"{MOST_SUMS} sums were opened from this model"
    others = sum(one != lists[0] for one in lists)
    if missing is not None and lists and missing != lists[0] and others >= MOST_OTHER_SUMS:
        return "sums of other people were opened from this model"
    return None


def weights_fault(weights: Iterable[float], most: float) -> str | None:
    """In words, why a sum with these weights would show a report in it; None if it does not.

    most  the share that one report may have
    """
    known = list(weights)
    first, *second = nlargest(2, known)
    whole = math.fsum(known) * (1.0 + WEIGHT_ROUNDING)
    if first > most * whole:
        return f"one person has {first / whole:.3g} of the weight; one may have {most:g}"
    if first + sum(second) > MOST_OF_TWO * whole:
        return f"two people have {(first + sum(second)) / whole:.3g} of the weight; two may have {MOST_OF_TWO:g}"
    return None


def list_digest(missing: Iterable[int]) -> str:
    """The digest of a list of missing participants, by index, as in receipts."""
    return sha256(",".join(map(str, sorted(missing))).encode()).hexdigest()


def _are_bounds(bounds: object) -> bool:
    """Whether these are no pairs, or pairs of a number of rounds, rising from 0, and a positive number."""
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) > MOST_BOUNDS:
        return False
    if not all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in bounds):
        return False
    sound = all(type(place) is int and type(bound) in (int, float) and 0 < bound < math.inf for place, bound in bounds)
    places = [place for place, _ in bounds]
    return sound and (not places or (places[0] == 0 and all(a < b for a, b in pairwise(places))))


def require_sound_loss_by_rounds(values: object) -> None:
    """Raise InputError unless these are no numbers, or several from 0 on, the last of them 0."""
    sound = (
        isinstance(values, Sequence)
        and len(values) <= MOST_LOSSES
        and all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
    )
    if not sound or (values and (len(values) < 2 or values[-1] != 0)):  # type: ignore[arg-type,index]
        raise InputError("this is no offer: its loss_by_rounds are not numbers from 0 on that end with 0.")


def require_sound_task(task: object) -> None:
    """Raise InputError unless this is None, or a task with its name, document, digest and revision."""
    if task is None:
        return
    sound = isinstance(task, Mapping) and set(task) == {"name", "document", "digest", "revision"}
    if not sound or not (
        isinstance(task["name"], str)  # type: ignore[index]
        and task["name"].isprintable()  # type: ignore[index]
        and 0 < len(task["name"]) <= LONGEST_TASK_NAME  # type: ignore[index]
        and isinstance(task["document"], Mapping)  # type: ignore[index]
        and isinstance(task["digest"], str)  # type: ignore[index]
        and type(task["revision"]) is int  # type: ignore[index]
    ):
        raise InputError("this is no offer: its task has no name, document, digest and revision.")


def require_sound_round_terms(agreement_key: object, bounds: object, aggregation: object, masked: object) -> None:
    """Raise InputError unless these terms of an offer are sound."""
    key = agreement_key
    if not isinstance(key, str) or len(key) != KEY_DIGITS or not set(key) <= HEX_DIGITS:
        raise InputError(f"this is no offer: its agreement_key has not {KEY_DIGITS} hexadecimal digits.")
    if not _are_bounds(bounds):
        raise InputError("this is no offer: its report_bounds are not pairs of a rising number of rounds, and a bound.")
    if aggregation not in AGGREGATIONS or type(masked) is not bool:
        raise InputError("this is no offer: it does not say in a known way how reports are combined.")
    if masked and not (bounds and aggregation == MEAN):
        raise InputError("this is no offer: masked reports need bounds and the mean of reports.")


LISTS = ("image_shape", "classes", "loss_by_rounds", "report_bounds")  # terms that are tuples here and lists in JSON


@dataclass(frozen=True)
class JobTerms:
    """The terms that are the same for all clients of a job.

    name, version     of the job; version of its offers (new offers are made when one is declined)
    contract          kind of the contract that pays; formula and dropping_out describe it in words
    operator_key      public key of the receipts' signature
    model, image_shape, classes, rounds, local_steps, step_size, seed    parameters of the training; image_shape is that
                      of one sample's features
    expected_loss     if all clients are honest; loss_error is its standard deviation
    commitment        hash of (test set, number of draws, secret); test_samples is that number
    label_seconds, round_seconds    how long the server waits for labels, and for one report
    currency          its name; minor_units are one unit of it, as 100 cents are one euro
    lies_tried        number of lies that the operator tried under this contract before making offers; 0 if none
    recipe            how solo models are trained, for a contract that pays by them; None for others
    audition_seconds  how long the server waits for a solo model
    agreement_key     the operator's public key of X25519, from which the keys of messages are derived
    report_bounds     pairs: a number of earlier rounds that changed the model, rising from 0, and the largest L2 norm
                      of a report's change that is accepted after this number; none: all are accepted
    aggregation       how reports are combined: "mean", "trimmed" or "median"; "own" for the operator's custom strategy
    masked            whether reports are masked, so that the server sees sums of at least three
    least_participation  the smallest share of rounds in which any client is asked
    momentum          the share of the model's last change that the server adds to the next one
    rescales          whether the reports that are taken in a round count for those that are missing too
    loss_by_rounds    rise of the expected loss if training ends after 0, 1/k, 2/k, … of the rounds; none: not measured
    picture_fit       how pictures of other sizes are fitted to image_shape: "padded": scaled with their proportions
                      until they just fit in, in the middle of black, in grays or colours as image_shape says; "": not
    task              name, document, digest and revision of what is learned; None for pictures
    instructions      what the operator says about the classes, with digests of the examples; None for nothing
    payment_note      how and when the operator pays, in their own words; "" if not stated
    start             where the rounds start: "common", from the seed's model; "solo mean", from the mean of the solo
                      models of those who passed, with the weights of the joint training; then a solo model that
                      scores classes lower where they are right is not taken
    calibrated        whether the joint model is tested with a calibration: a factor of its scores, one bias per class
    solo_bound        the largest length (L2 norm) of a solo model that is taken; 0.0 for no bound
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
    agreement_key: str
    lies_tried: int = 0
    recipe: Mapping[str, Any] | None = None
    audition_seconds: float = 0.0
    report_bounds: tuple[tuple[int, float], ...] = ()
    aggregation: str = MEAN
    masked: bool = False
    momentum: float = 0.0
    least_participation: float = 1.0
    rescales: bool = False
    loss_by_rounds: tuple[float, ...] = ()
    task: Mapping[str, Any] | None = None
    instructions: Instructions | None = None
    picture_fit: str = ""
    payment_note: str = ""
    start: str = COMMON
    solo_bound: float = 0.0
    calibrated: bool = False

    @property
    def starts_from_solo_models(self) -> bool:
        """Whether the rounds start from the mean of the solo models of those who passed, if anybody did."""
        return self.start == SOLO_MEAN

    @property
    def training(self) -> Training:
        """Rounds, local steps, step size and momentum."""
        from truthfl.contracts.setting import Training

        return Training(self.rounds, self.local_steps, self.step_size, self.momentum)

    @property
    def has_solo_models(self) -> bool:
        """Whether clients train alone before the joint training, and are also paid by that."""
        return self.recipe is not None

    def bound_of_round(self, changed: int) -> float:
        """The largest accepted length of a report after this number of rounds that changed the model; 0 for none."""
        return bound_of_round(self.report_bounds, changed)

    @property
    def several_labels(self) -> bool:
        """Whether a sample may have several classes, as the task says."""
        return self.task is not None and self.task["document"].get("several_labels") is True

    def document(self) -> dict[str, Any]:
        """The terms as JSON values."""
        lists = {name: list(getattr(self, name)) for name in LISTS}
        lists["report_bounds"] = [list(pair) for pair in self.report_bounds]
        instructions = None if self.instructions is None else self.instructions.document()
        return asdict(self) | lists | {"instructions": instructions}


def job_terms_from(document: object) -> JobTerms:
    """The job's terms in this part of an offer or plan."""
    job = dict(field_values(JobTerms, document, "job"))
    try:
        job |= {name: tuple(job[name]) for name in LISTS if name in job}
    except TypeError as error:
        raise InputError(f"this is no offer: {error}.") from None
    if isinstance(job.get("report_bounds"), tuple):
        pairs = job["report_bounds"]
        job["report_bounds"] = tuple(tuple(pair) if isinstance(pair, list) else pair for pair in pairs)
    if job.get("instructions") is not None:
        job["instructions"] = _instructions(job["instructions"], job["classes"])
    terms = JobTerms(**job)
    if not isinstance(terms.currency, str) or not 0 < len(terms.currency) <= 100 or not terms.currency.isprintable():
        raise InputError("this is no offer: its currency is no word of at most 100 printable characters.")
    if type(terms.minor_units) is not int or terms.minor_units < 1:
        raise InputError("this is no offer: minor_units is no whole number from 1 on.")
    if type(terms.seed) is not int or not 0 <= terms.seed < 2**64:
        raise InputError("this is no offer: its seed is no whole number from 0 to 2^64 - 1.")
    if type(terms.lies_tried) is not int or terms.lies_tried < 0:
        raise InputError("this is no offer: lies_tried is no whole number from 0 on.")
    sums = terms.aggregation, terms.masked
    require_sound_round_terms(terms.agreement_key, terms.report_bounds, *sums)
    if type(terms.least_participation) not in (int, float) or not 0 < terms.least_participation <= 1:
        raise InputError("this is no offer: its least_participation is no number above 0 and up to 1.")
    if type(terms.momentum) not in (int, float) or not 0 <= terms.momentum < 1:
        raise InputError("this is no offer: its momentum is no number from 0 and below 1.")
    if terms.momentum and terms.aggregation == OWN:
        raise InputError("this is no offer: it has momentum besides that of a custom strategy.")
    if type(terms.rescales) is not bool:
        raise InputError("this is no offer: rescales is neither true nor false.")
    require_sound_start(terms)
    require_sound_loss_by_rounds(terms.loss_by_rounds)
    require_sound_task(terms.task)
    if terms.picture_fit not in ("", PADDED):
        raise InputError("this is no offer that is known here: it fits pictures in another way; update truthfl.")
    if not is_plain(terms.payment_note, LONGEST_PAYMENT_NOTE):
        raise InputError(
            f"this is no offer: its payment_note is no text of at most {LONGEST_PAYMENT_NOTE} letters without control "
            "characters."
        )
    return terms


def require_sound_start(terms: JobTerms) -> None:
    """Raise InputError unless the terms say in a known way where training starts."""
    if terms.start not in (COMMON, SOLO_MEAN):
        raise InputError("this is no offer that is known here: its training starts elsewhere; update truthfl.")
    if terms.starts_from_solo_models and not terms.has_solo_models:
        raise InputError("this is no offer: its training starts from solo models, and nobody trains any.")
    if not terms.rounds and not terms.starts_from_solo_models:
        raise InputError("this is no offer: it has no rounds, and its final model would be an untrained one.")
    if type(terms.solo_bound) not in (int, float) or not 0 <= terms.solo_bound < math.inf:
        raise InputError("this is no offer: its solo_bound is no number from 0 on.")


def _instructions(document: object, classes: tuple[object, ...]) -> Instructions:
    try:
        instructions = instructions_from(document)
        instructions.require_classes([str(name) for name in classes])
    except InputError as error:
        raise InputError(f"this is no offer: {error}") from None
    return instructions


FORMAT = 1
MOST_LIES = 100  # in an offer


@dataclass(frozen=True)
class ClientTerms:
    """The terms of one client of a job.

    name, index      the client's name, and their position among the job's clients
    public_key       of the signature that accepts the offer
    samples          number of samples to label
    batch_size       D'_i
    weight           p_i, of the client's reports
    participation    q_i, the share of rounds in which the client is asked for a report
    labeling_cost    c_l, assumed cost of labeling all samples
    sample_cost      c_p, assumed cost of one sample in one round
    pay              parameters of the client's pay, with the contract's names
    audition_cost    assumed cost of training alone once
    lies             the best of the tried lies of each kind, on average, and the effect of each for this client
    stated           whether the client stated sample_cost, and the terms are their item of a screening menu
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
        """The offer as JSON values: the document that both sides sign."""
        if self.original is not None:
            return dict(self.original)
        client = asdict(self.client) | {"lies": [asdict(lie) for lie in self.client.lies]}
        return {"kind": "offer", "format": FORMAT, "job": self.job.document(), "client": client}

    def envelope(self) -> dict[str, Any]:
        """The offer as it is sent and stored: the document with the operator's signature."""
        return {"document": self.document(), "signature": self.signature}

    @cached_property
    def hash(self) -> str:
        """The hash of the document; the signature is not part of it."""
        return digest(self.document())

    @cached_property
    def job_digest(self) -> str:
        """The digest of the terms that are the same for all clients of the job."""
        return digest(self.document()["job"])

    @property
    def key(self) -> str:
        """The key of the offer's entry in the ledger."""
        return f"{self.job.version}/{self.client.name}"

    @cached_property
    def contract(self) -> Contract:
        """The contract that computes pay, with this client only."""
        from truthfl.contracts.contract import require_collected
        from truthfl.contracts.registry import find_contract

        kind = find_contract(self.job.contract)
        require_collected(kind)
        return kind.for_one(self.client.batch_size, self.client.pay)

    def require_payable(self) -> None:
        """Raise InputError unless the contract is known here and pays a finite amount at the expected loss."""
        pay = self.expected_pay
        if not math.isfinite(pay):
            raise InputError(f"the offer's expected pay is {pay}; it must be finite.")
        self.contract.require_sound_terms()
        if self.pays_by_solo_model != self.job.has_solo_models:
            raise InputError(
                f"the contract is {self.job.contract!r}; the offer must have a recipe just if it pays by one."
            )
        if self.client.pay.get("labels", self.client.samples) != self.client.samples:
            raise InputError("the offer asks for another number of labels than its audition pays for.")

    @property
    def pays_by_solo_model(self) -> bool:
        """Whether its contract needs the test of a model that the client trains alone."""
        from truthfl.contracts.contract import Evidence

        return Evidence.SOLO_LOSS in self.contract.needs

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
        evidence           of an audition; by default, the solo loss is the expected one and all labels take part
        """
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.contract.pay(observation_of(test_loss, delivered, asked, evidence))[0])

    def pay(self, test_loss: float, delivered: int, asked: int, evidence: SoloEvidence | None = None) -> int:
        """Pay in whole minor units, rounded half to even; with an audition, its evidence is needed."""
        if not math.isfinite(test_loss):
            raise InputError("the test loss is not finite; such a model cannot settle a contract.")
        if not 0 <= delivered <= asked <= self.job.rounds:
            raise InputError(
                f"{delivered} of {asked} rounds were delivered; it must be from 0 to all, of at most {self.job.rounds}."
            )
        if self.job.has_solo_models and evidence is None:
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
        """How many rounds these people train: none without people, or if masks would not hide each of them."""
        fewest = FEWEST_MASKED if self.terms.masked else 1
        return self.terms.rounds if len(self.offers) >= fewest and self.masks_fault is None else 0

    @property
    def masks_fault(self) -> str | None:
        """In words, why a sum of these people's reports would show one of them; None if not, or without masks."""
        if not self.terms.masked or not self.offers:
            return None
        clients = [offer.client for offer in self.offers]
        return weights_fault([client.weight / client.participation for client in clients], MOST_OF_ALL)

    @cached_property
    def participation(self) -> tuple[FloatArray, IntArray]:
        """(offers,) The share of rounds in which each client is asked, and their position among the job's clients."""
        import numpy as np

        clients = [offer.client for offer in self.offers]
        return np.array([client.participation for client in clients]), np.array([client.index for client in clients])


def offer_from(envelope: Document) -> Offer:
    """The offer in an untrusted document, with its signature if there is one. The signature is not checked here."""
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
