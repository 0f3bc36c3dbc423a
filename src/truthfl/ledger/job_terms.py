"""`JobTerms`: the terms that are the same for all clients of a job. Imports `round_terms` and `tried_lies`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.round_terms import (
    MEAN,
    require_sound_loss_by_rounds,
    require_sound_round_terms,
    require_sound_task,
    without_defaults,
)
from truthfl.ledger.tried_lies import field_values

LISTS = ("image_shape", "classes", "loss_by_rounds")  # terms that are tuples here and lists in JSON


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
    agreement_key     the operator's public key of X25519, from which the keys of messages are derived; "" for none
    report_bound      the largest L2 norm of a report's change that is taken; 0 for none
    aggregation       how reports are combined: "mean", "trimmed" or "median"; "own" by a strategy of the operator's
    secure_aggregation  whether reports are masked: "" never, "always", or "in rounds of three or more"
    least_participation  the smallest share of rounds in which any client is asked
    rescales          whether the reports that are taken in a round count for those that are missing too
    loss_by_rounds    rise of the expected loss if training ends after 0, 1/k, 2/k, … of the rounds; none: not measured
    task              name, document, digest and revision of what is learned; None for pictures
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
    lies_tried: int = 0
    recipe: Mapping[str, Any] | None = None
    audition_seconds: float = 0.0
    agreement_key: str = ""
    report_bound: float = 0.0
    aggregation: str = MEAN
    secure_aggregation: str = ""
    least_participation: float = 1.0
    rescales: bool = False
    loss_by_rounds: tuple[float, ...] = ()
    task: Mapping[str, Any] | None = None

    @property
    def has_audition(self) -> bool:
        """Whether clients train alone before the joint training, and are paid by that too."""
        return self.recipe is not None

    def document(self) -> dict[str, Any]:
        """The terms as JSON values; those of an audition, and newer ones with their default, are omitted."""
        lists = {name: list(getattr(self, name)) for name in LISTS}
        values = asdict(self) | lists
        if self.recipe is None:
            del values["recipe"], values["audition_seconds"]
        return without_defaults(values)


def job_terms_from(document: object) -> JobTerms:
    """The job's terms in this part of an offer or plan."""
    job = dict(field_values(JobTerms, document, "job"))
    try:
        job |= {name: tuple(job[name]) for name in LISTS if name in job}
    except TypeError as error:
        raise InputError(f"this is no offer: {error}.") from None
    terms = JobTerms(**job)
    if not isinstance(terms.currency, str) or not 0 < len(terms.currency) <= 100 or not terms.currency.isprintable():
        raise InputError("this is no offer: its currency is no word of at most 100 printable characters.")
    if type(terms.minor_units) is not int or terms.minor_units < 1:
        raise InputError("this is no offer: minor_units is no whole number from 1 on.")
    if type(terms.lies_tried) is not int or terms.lies_tried < 0:
        raise InputError("this is no offer: lies_tried is no whole number from 0 on.")
    sums = terms.aggregation, terms.secure_aggregation
    require_sound_round_terms(terms.agreement_key, terms.report_bound, *sums)
    if type(terms.least_participation) not in (int, float) or not 0 < terms.least_participation <= 1:
        raise InputError("this is no offer: its least_participation is no number above 0 and up to 1.")
    if type(terms.rescales) is not bool:
        raise InputError("this is no offer: rescales is neither true nor false.")
    require_sound_loss_by_rounds(terms.loss_by_rounds)
    require_sound_task(terms.task)
    return terms
