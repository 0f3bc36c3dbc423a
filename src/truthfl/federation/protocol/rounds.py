"""The training rounds: send the common model, validate the reports, add them with the contract's weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.masking.server import MaskedRounds, run_masked_round
from truthfl.federation.operator.live_status import TRAINING, server_use
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.messages import (
    PARAMS,
    array_bytes_digest,
    coded_training_message,
    model_digest,
    model_record,
    report_mark,
)
from truthfl.federation.protocol.recorder import MOST_ROUNDS, Recorder, read_checkpoint, required_fit
from truthfl.federation.protocol.reports import (
    RoundCall,
    RoundOutcome,
    RoundWait,
    SilentPeople,
    begin_rounds,
    collect_reports,
    known_aggregation,
    marks_in,
    missing_reports,
    rejection_item,
    report_or_reason,
    report_rule,
    round_document,
)
from truthfl.federation.protocol.validation import Validation, noise_of, take_single_reports
from truthfl.learning.models.model import Model, Params
from truthfl.learning.training.aggregation import MEAN, Combine, new_combiner, taken_weights, with_momentum
from truthfl.learning.training.draws import Purpose, bits_at, key, uniform
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import LOST_START
from truthfl.ledger.signing import PrivateKey
from truthfl.ledger.terms import NOT_CONNECTED, NOT_IN_TIME, Agreement, Offer

if TYPE_CHECKING:
    from truthfl.federation.protocol.final_model import Evaluation

SECONDS_BETWEEN_REPEATS = 1.0
OTHER_MODEL = (
    "gives another model than that in the ledger, though the reports are the same; the job cannot go on"  # of a repeat
)
REPEAT = "repeat"
OTHER_REPORT = "they answer the repeated round with another report than the first time"
OTHER_KEYS = "they or others tell other masks of the missing than the first time"
EVALUATIONS = 20  # how often the model is evaluated on the test set during training


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """The model to train and how it is tested, the agreement, the path of the checkpoint file, and the participants.

    taking_part   the agreement restricted to clients who passed the audition; the whole agreement without one
    code_keys     by participant: the key of the codes of their messages; empty if the offers have no agreement key
    acceptances   by participant: their signed acceptance
    own           the name of the operator's custom strategy, if the terms have one
    operator_key  signs the terms of the masks, if reports are masked
    validation    judges the model after each round; None accepts every model, as for a custom strategy
    from_solo     returns the mean of the solo models from which the rounds start, or raises InputError; None if they
                  start from the seed's model
    """

    evaluation: Evaluation
    agreement: Agreement
    checkpoint_file: Path
    taking_part: Agreement
    code_keys: Mapping[str, bytes] = field(default_factory=dict)
    acceptances: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    own: str = MEAN
    operator_key: PrivateKey | None = None
    validation: Validation | None = None
    from_solo: Callable[[], Params] | None = None

    @property
    def model(self) -> Model:
        """The model to train."""
        return self.evaluation.model

    @cached_property
    def combine(self) -> Combine:
        """Combines the reports of a round; a strategy's own memory is lost with this process."""
        return new_combiner(known_aggregation(self.agreement.terms, self.own))

    @property
    def common_start(self) -> Params:
        """The model of the job's seed."""
        return self.model.init(self.agreement.terms.seed)

    @property
    def rounds(self) -> int:
        """The number of rounds; 0 if nobody takes part, or too few for masks."""
        return self.taking_part.rounds

    def masked_rounds(self, roster: Roster, repeats: range) -> MaskedRounds | None:
        """The state of masked rounds; None if reports are not masked. `repeats` as in `MaskedRounds`."""
        offers = self.taking_part.offers
        if not self.agreement.terms.masked:
            return None
        assert self.operator_key is not None
        total = joint_total(self.agreement, self.taking_part)
        return MaskedRounds(roster, offers, total, self.code_keys, self.acceptances, self.operator_key, repeats=repeats)

    def weight_of(self, offer: Offer) -> float:
        """The weight of a client's report in a round in which they are asked."""
        return self.weights[offer.client.name] / offer.client.participation

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each participating client, by name."""
        return joint_weights(self.agreement, self.taking_part)


def joint_weights(agreement: Agreement, taking_part: Agreement) -> dict[str, float]:
    """The offers' weights, by client; divided by their sum if not all take part."""
    total = joint_total(agreement, taking_part)
    return {offer.client.name: offer.client.weight / total for offer in taking_part.offers}


def joint_total(agreement: Agreement, taking_part: Agreement) -> float:
    """The sum of the participants' offer weights; 1 if all take part."""
    if len(taking_part.offers) == len(agreement.offers):
        return 1.0
    return math.fsum(offer.client.weight for offer in taking_part.offers)


def train_rounds(roster: Roster, training: TrainingRun, progress: Callable[[int], None]) -> Params:
    """Run all rounds that are not in the ledger yet, or until the operator ends the job; return the final model.

    Rounds that are in the ledger and not in the checkpoint are repeated, because the ledger has no models. If a round
    cannot be repeated and the operator ends the job, the model before it is returned; the common start if the solo
    models from which the rounds start are lost.

    progress  called with the number of finished rounds
    """
    roster.control.poll(at_once=True)
    params, before, finished = _initial_state(roster, training)
    known = {entry.document["round"]: entry.document for entry in roster.ledger.entries(roster.job_name, "round")}
    validation = training.validation
    if params is None or before is None:
        return training.common_start
    if finished >= len(known) and (finished == training.rounds or not _may_go_on(roster)):
        return params
    roster.live.begin(TRAINING)
    lost = _recorded_loss(roster)
    digest = model_digest(params)
    tested = None if training.from_solo is None else partial(training.evaluation.loss_and_accuracy, params)
    call = begin_rounds(roster.ledger, roster.job_name, finished, digest, tested)
    masked, silent = training.masked_rounds(roster, _asked_before(roster, finished, len(known))), SilentPeople()
    evaluate_every = max(1, training.rounds // EVALUATIONS)
    with Recorder(roster.ledger, training.checkpoint_file) as recorder:
        for round_ in range(finished, training.rounds):
            row = known.get(round_ + 1)
            if round_ + 1 == lost or (not _may_go_on(roster) and row is None):
                break
            began, removed = server_use(roster.grid), roster.control.removed
            offers = offers_in_round(training.taking_part, round_)
            if any(offer.client.name not in roster.node_of and offer.client.name not in removed for offer in offers):
                roster.refresh()
            roster.refresh_sometimes()
            if row is not None:
                again = repeated_round(roster, training, masked, (params, before), call, offers, row)
                if again is None:
                    break
                params, before = again
                call, digest = call.next(changed=digest != row["model"]), row["model"]
                recorder.put(round_ + 1, params, before, [], {} if validation is None else validation.state())
                progress(round_ + 1)
                continue
            if masked is None:
                outcome = run_round(roster, training, params, call, offers, silent)
            else:
                outcome = _judged(training, run_masked_round(masked, params, call, offers), params, call, offers)
            params, before = moved_on(training, params, before, outcome, offers)
            digests = digest, model_digest(params)
            document = round_document(call, training.taking_part, offers, outcome.taken, digests, outcome.marks)
            document |= {"refused": outcome.refused} if outcome.refused else {}
            call, digest = call.next(changed=digests[0] != digests[1]), digests[1]
            if (round_ + 1) % evaluate_every == 0 or round_ + 1 == training.rounds:
                loss, accuracy = training.evaluation.loss_and_accuracy(params)
                document |= {"loss": loss, "accuracy": accuracy}
            items = [rejection_item(roster.job_name, round_ + 1, rejection) for rejection in outcome.rejected]
            items.append(Item(roster.job_name, "round", str(round_ + 1), document))
            recorder.put(round_ + 1, params, before, items, {} if validation is None else validation.state())
            roster.live.note_round(server_use(roster.grid).since(began))
            progress(round_ + 1)
    return params


def moved_on(
    training: TrainingRun, params: Params, before: Params, outcome: RoundOutcome, offers: Sequence[Offer]
) -> tuple[Params, Params]:
    """The models after and before a round. They are the same object if momentum does not continue the round.

    It does not if the model stayed as it was although people were asked. So a round that took no report never counts
    as one that changed the model.

    params, before  the models before the round and before the round before, in the same way
    """
    momentum, is_still = training.agreement.terms.momentum, offers and not outcome.taken
    if not momentum or outcome.refused is not None or is_still:
        return outcome.params, outcome.params
    return with_momentum(outcome.params, params, before, momentum), params


def _asked_before(roster: Roster, finished: int, known: int) -> range:
    """The rounds outside the ledger that an earlier start of the server may have asked for.

    There is one if the checkpoint is the last: each is on the disk before the next round is asked for.

    finished, known  the numbers of rounds in the checkpoint and in the ledger
    """
    if len(roster.ledger.entries(roster.job_name, "start")) < 2:
        return range(0)
    first = max(finished, known)
    return range(first, first + (1 if 0 < finished >= known else MOST_ROUNDS + 1))


def _judged(
    training: TrainingRun, outcome: RoundOutcome, before: Params, call: RoundCall, offers: tuple[Offer, ...]
) -> RoundOutcome:
    """The outcome of a masked round; the model stays unchanged if the operator's samples speak against the new one."""
    if training.validation is None:
        return outcome
    weights = {offer.client.name: training.weight_of(offer) for offer in offers}
    taken = [weights[name] for name in outcome.taken]
    noise = noise_of(list(weights.values()), taken, rescales=training.agreement.terms.rescales)
    fault = training.validation.judge(before, outcome.params, call.round, noise)
    return outcome if fault is None else replace(outcome, params=before, refused=fault)


def _may_go_on(roster: Roster) -> bool:
    """Wait during a pause; return whether there is a next round. There is none if the operator ended the job."""
    roster.hold()
    return roster.control.ended is None


def offers_in_round(agreement: Agreement, round_: int) -> tuple[Offer, ...]:
    """The offers of the clients asked for a report in this round.

    Each client is drawn with the probability q_i of their offer, by the same draws as in `learning.training`.

    agreement  with the clients who take part
    """
    probability, index = agreement.participation
    if probability.min() >= 1.0:
        return agreement.offers
    draws = uniform(bits_at(key(agreement.terms.seed, Purpose.AVAILABILITY, index, round_), 0))
    return tuple(agreement.offers[place] for place in np.flatnonzero(draws < probability))


def asked_by_contract(taking_part: Agreement) -> dict[str, int]:
    """By name: the number of the contract's rounds with each participant who is not always asked."""
    sometimes = tuple(offer for offer in taking_part.offers if offer.client.participation < 1)
    if not sometimes:
        return {}
    counts = dict.fromkeys((offer.client.name for offer in sometimes), 0)
    drawn_from = Agreement(taking_part.terms, sometimes)
    for round_ in range(taking_part.terms.rounds):
        for offer in offers_in_round(drawn_from, round_):
            counts[offer.client.name] += 1
    return counts


def run_round(
    roster: Roster,
    training: TrainingRun,
    params: Params,
    call: RoundCall,
    offers: tuple[Offer, ...],
    silent: SilentPeople,
    only: Collection[str] | None = None,
) -> RoundOutcome:
    """Run a round in which the server sees single reports.

    only  in a round that is repeated: the names of those who delivered it; all of them are needed
    """
    wanted = offers if only is None else tuple(offer for offer in offers if offer.client.name in only)
    terms, removed = training.agreement.terms, roster.control.removed
    arrays = model_record(params)
    digest = array_bytes_digest(arrays)
    reports: dict[str, Params] = {}
    marks: dict[str, str] = {}

    def ready() -> list[Offer]:
        return [one for one in wanted if one.client.name in roster.node_of and one.client.name not in removed]

    def messages(people: Sequence[Offer]) -> list[Message]:
        return [
            coded_training_message(
                training.code_keys[offer.client.name],
                roster.node_of[offer.client.name],
                arrays,
                digest,
                call.fields(offer),
            )
            for offer in people
        ]

    def take(offer: Offer, reply: Message) -> str | None:
        name = offer.client.name
        if name in reports:
            return "duplicated: it came after another report of theirs"
        bound, code_key = terms.bound_of_round(call.changed), training.code_keys[name]
        report = report_or_reason(reply, {PARAMS: params}, call.fields(offer), bound=bound, code_key=code_key)
        if isinstance(report, str):
            return report
        reports[name], marks[name] = report[PARAMS], report_mark(reply)
        return None

    rejected = collect_reports(
        RoundWait(roster, call.round, terms.round_seconds),
        wanted,
        ready,
        messages,
        take,
        lambda names: (bool(reports) or bool(names)) if only is None else {*reports, *names} >= set(only),
        silent,
    )
    removed = roster.control.removed
    node_of = {offer.client.name: roster.node_of.get(offer.client.name) for offer in offers}
    rejected += [
        (name, node, removed[name]) for name, node in node_of.items() if name in removed and name not in reports
    ]
    rejected += missing_reports(node_of, set(reports), rejected)
    weights = {offer.client.name: training.weight_of(offer) for offer in offers}
    changes = {name: reports[name] - params for name in weights if name in reports}
    rule, weight = report_rule(terms, training.own), np.array(list(weights.values()))

    def combine(names: Collection[str]) -> tuple[Params, float]:
        taken = np.array([name in names for name in weights], dtype=bool)
        chosen = np.array([changes[name] for name in changes if name in names], dtype=np.float32)
        combined = training.combine(
            call.round + 1, params, chosen.reshape(-1, len(params)), taken_weights(weight, taken, rule)
        )
        if not np.isfinite(combined).all():
            raise InputError(
                f"the reports of round {call.round + 1} were combined to NaN or infinity; it is not recorded."
            )
        return combined, noise_of(weight.tolist(), weight[taken].tolist(), rescales=terms.rescales)

    if training.validation is None or not changes or only is not None:
        return RoundOutcome(combine(changes)[0], list(changes), rejected, marks=marks)
    result = take_single_reports(training.validation, params, changes, weights, combine, call.round)
    rejected += [(name, roster.node_of.get(name), reason) for name, reason in result.refused.items()]
    taken = [name for name in changes if name not in result.refused]
    return RoundOutcome(result.params, taken, rejected, result.fault, marks)


def repeated_round(
    roster: Roster,
    training: TrainingRun,
    masked: MaskedRounds | None,
    models: tuple[Params, Params],
    call: RoundCall,
    offers: tuple[Offer, ...],
    row: Mapping[str, Any],
) -> tuple[Params, Params] | None:
    """The models after and before a round in the ledger, from the reports that were taken then, asked for again.

    Participants answer with the same bytes, and no other report can replace one that was taken. So the server waits
    until everybody who delivered is connected, however long that takes. If the operator ends the job first, the model
    is lost, and None is returned. Clients who reconnect after the restart still have the time of a round. Clients who
    answer with other bytes are named to the operator and asked again.

    models  before the round and before the round before, as in `moved_on`
    row     the ledger's document of the round
    """
    params, before = models
    if model_digest(params) != row["previous"]:
        raise InputError(
            f"round {call.round + 1:,} in the ledger starts from another model than the one that was made again; "
            "the job cannot go on. The operator can begin another one with --new."
        )
    if row["model"] == row["previous"]:
        return params, params
    missing = set(row["missing"])
    delivered = {offer.client.name for offer in offers if offer.client.name not in missing}
    until, removed = time.monotonic() + training.agreement.terms.round_seconds, set[str]()
    while True:
        _note_removed(roster, call.round + 1, (delivered & set(roster.control.removed)) - removed)
        removed = delivered & set(roster.control.removed)
        if removed:
            waits_for, fault = removed, ""
        else:
            if masked is None:
                outcome = run_round(roster, training, params, call, offers, SilentPeople(), delivered)
            else:
                outcome = run_masked_round(masked, params, call, offers, delivered)
            whole = outcome.refused is None and set(outcome.taken) == delivered
            moved = moved_on(training, params, before, outcome, offers)
            if whole and model_digest(moved[0]) == row["model"]:
                roster.live.set_waits(())
                return moved
            unlike = _unlike_the_first(outcome, marks_in(row, offers), has_keys=masked is not None and bool(missing))
            fault = OTHER_MODEL if whole and not unlike else _repeat_fault(outcome, delivered)
            for name, why in unlike.items():
                roster.refusals.note(REPEAT, name, f"round {call.round + 1}", _unlike_document(roster, name, call, why))
            waits_for = set(unlike) | (delivered - set(outcome.taken)) or delivered
        if not _may_go_on(roster) and (removed or fault or time.monotonic() >= until):
            roster.live.set_waits(())
            return None
        if fault:
            raise InputError(
                f"round {call.round + 1:,} {fault}. With truthfl end, and the same command again, the operator settles "
                "what was delivered; --new begins another job."
            )
        roster.live.set_waits(waits_for, call.round + 1)
        time.sleep(SECONDS_BETWEEN_REPEATS)
        roster.refresh()


def _repeat_fault(outcome: RoundOutcome, delivered: Collection[str]) -> str:
    """Why a round cannot be repeated, however long the server waits; empty if it may be."""
    for name, _, reason in outcome.rejected:
        if name in delivered and reason.startswith("error:"):
            return f"cannot be repeated: {name} answers with an {reason.rstrip('.')}"
    return ""


def _note_removed(roster: Roster, number: int, removed: Collection[str]) -> None:
    """Record that this round cannot be repeated without people who were removed."""
    reason = (
        "removed by the operator, and the report is needed to make the lost model again; truthfl end settles the job"
    )
    document = {"stage": "repeat", "round": number, "node": None, "reason": reason}
    key = f"repeat/{number}"
    roster.ledger.append_all(
        [Item(roster.job_name, "rejection", f"{key}/{name}", document | {"client": name}) for name in sorted(removed)]
    )


def _first_model(roster: Roster, training: TrainingRun) -> Params | None:
    """The model from which the rounds start; None if it is lost, and the operator ended the job."""
    if training.from_solo is None:
        return training.common_start
    try:
        return training.from_solo()
    except InputError as error:
        if roster.control.ended is None:
            raise InputError(
                f"{error} Training starts from the mean of these models: put the file back. With truthfl end, and the "
                "same command again, the operator settles without it; --new begins another job."
            ) from None
        return None


def lost_part_of(roster: Roster, training: TrainingRun, model: str) -> int | None:
    """The first round that is not in the model with this digest; LOST_START if the rounds' first model is lost."""
    if _recorded_loss(roster) == LOST_START or (
        training.from_solo is not None
        and not training.checkpoint_file.exists()
        and _first_model(roster, training) is None
    ):
        return LOST_START
    return first_lost_round([row.document for row in roster.ledger.entries(roster.job_name, "round")], model)


def _recorded_loss(roster: Roster) -> int | None:
    """What was lost, as in `lost_part_of`, if the job in the ledger ended so; None otherwise."""
    ended = roster.ledger.find(roster.job_name, "ended", "ended")
    return None if ended is None else ended.document.get("lost")


def first_lost_round(rounds: Sequence[Mapping[str, Any]], model: str) -> int | None:
    """The first of these rounds, in order, that is not in the model with this digest; None if all are."""
    if not rounds or rounds[-1]["model"] == model:
        return None
    after = (one["round"] for one in rounds if one["previous"] == model != one["model"])
    return next(after, None)


def _unlike_the_first(outcome: RoundOutcome, marks: Mapping[str, str], *, has_keys: bool) -> dict[str, str]:
    """By name: why an answer to a repeated round differs from the first one; absent clients have no entry.

    marks     of the reports that were taken then
    has_keys  whether masks shared with missing people were revealed; if all reports match, these differ
    """
    unlike = {
        name: reason
        for name, _, reason in outcome.rejected
        if name is not None and name in marks and reason not in (NOT_CONNECTED, NOT_IN_TIME)
    }
    unlike |= {name: OTHER_REPORT for name, mark in outcome.marks.items() if marks.get(name, mark) != mark}
    if not unlike and has_keys and set(outcome.marks) >= set(marks):
        return dict.fromkeys(marks, OTHER_KEYS)
    return unlike


def _unlike_document(roster: Roster, name: str, call: RoundCall, why: str) -> dict[str, object]:
    node = roster.node_of.get(name)
    return {"round": call.round + 1, "client": name, "node": None if node is None else str(node), "reason": why}


def _initial_state(roster: Roster, training: TrainingRun) -> tuple[Params | None, Params | None, int]:
    """The model, that before (see `moved_on`) and the number of rounds: from the checkpoint, otherwise a first model.

    The models are None if the first one is lost, and the operator ended the job.
    """
    if _recorded_loss(roster) == LOST_START:
        return None, None, 0
    checkpoint = read_checkpoint(training.checkpoint_file)
    if checkpoint is None:
        first = _first_model(roster, training)
        return first, first, 0
    rows = {entry.document["round"]: entry.document for entry in roster.ledger.entries(roster.job_name, "round")}
    required_fit(training.checkpoint_file, checkpoint, roster.job_name, rows)
    roster.ledger.append_all(checkpoint.items)
    if training.validation is not None:
        training.validation.restore(checkpoint.validation)
    return checkpoint.params, checkpoint.before, checkpoint.rounds
