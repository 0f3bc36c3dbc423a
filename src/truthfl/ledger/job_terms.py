"""`JobTerms`: the terms that are the same for all clients of a job.

The instructions about the classes are those of `truthfl.instructions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.instructions import Instructions, instructions_from
from truthfl.ledger.round_terms import (
    MEAN,
    PADDED,
    bound_of_round,
    require_sound_loss_by_rounds,
    require_sound_round_terms,
    require_sound_task,
)
from truthfl.ledger.tried_lies import field_values
from truthfl.texts import LONGEST_PAYMENT_NOTE, is_plain

LISTS = ("image_shape", "classes", "loss_by_rounds", "report_bounds")  # terms that are tuples here and lists in JSON


@dataclass(frozen=True)
class JobTerms:
    """The terms that are the same for all clients of a job.

    name, version     of the job; version of its offers (new offers are made when one is declined)
    contract          kind of the mechanism that pays; formula and dropping_out describe it in words
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
                      of a report's change that is taken after so many; none: all are taken
    aggregation       how reports are combined: "mean", "trimmed" or "median"; "own" by a strategy of the operator's
    masked            whether reports are masked, so that the server sees sums of at least three
    least_participation  the smallest share of rounds in which any client is asked
    rescales          whether the reports that are taken in a round count for those that are missing too
    loss_by_rounds    rise of the expected loss if training ends after 0, 1/k, 2/k, … of the rounds; none: not measured
    picture_fit       how pictures of other sizes are fitted to image_shape: "padded": scaled with their proportions
                      until they just fit in, in the middle of black, in grays or colours as image_shape says; "": not
    task              name, document, digest and revision of what is learned; None for pictures
    instructions      what the operator says about the classes, with digests of the examples; None for nothing
    payment_note      how and when the operator pays, in her own words; "" if she does not say
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
    least_participation: float = 1.0
    rescales: bool = False
    loss_by_rounds: tuple[float, ...] = ()
    task: Mapping[str, Any] | None = None
    instructions: Instructions | None = None
    picture_fit: str = ""
    payment_note: str = ""

    @property
    def has_audition(self) -> bool:
        """Whether clients train alone before the joint training, and are paid by that too."""
        return self.recipe is not None

    def bound_of_round(self, changed: int) -> float:
        """The largest length of a report that is taken after so many rounds that changed the model; 0 for none."""
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
    if type(terms.rescales) is not bool:
        raise InputError("this is no offer: rescales is neither true nor false.")
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


def _instructions(document: object, classes: tuple[object, ...]) -> Instructions:
    try:
        instructions = instructions_from(document)
        instructions.require_classes([str(name) for name in classes])
    except InputError as error:
        raise InputError(f"this is no offer: {error}") from None
    return instructions
