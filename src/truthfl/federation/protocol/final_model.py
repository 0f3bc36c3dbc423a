"""The final model: its digest is sent before the test. Afterwards model and test set are published and checked.

The test's secret is not known before. So nobody can choose a model that does well on the test, or test another model
than the trained one, without being noticed. The ledger has the hashes of both files and, after the test, the secret.
With an audition, the solo models are published beside them, and their losses are recomputed too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.job_task import OtherTaskError, model_of
from truthfl.federation.protocol.messages import FINAL, model_digest, query_message
from truthfl.federation.protocol.reports import asked_field, document_or_reason
from truthfl.federation.protocol.rounds import asked_by_contract, joint_weights, offers_in_round
from truthfl.files import write_file
from truthfl.learning.calibration import ScoreCalibration, calibration_of, fit_calibration
from truthfl.learning.data.datasets import npy_bytes, npz_bytes, read_npy, read_npz
from truthfl.learning.data.samples import LabeledImages, LabeledSamples
from truthfl.learning.models.model import Model, Params
from truthfl.learning.solo import alignments, solo_length, solo_losses, solo_mean
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.learning.training.draws import Purpose, below, bits, key
from truthfl.ledger.canonical import audition_commitment, draw_seed, test_set_digest
from truthfl.ledger.documents import final_fault
from truthfl.ledger.entry import Item
from truthfl.ledger.evidence import level_shifts
from truthfl.ledger.job_view import LOST_START, JobView, job_view
from truthfl.ledger.terms import Agreement, JobTerms, Offer

LATE, AWAY = "no word on the final model in time", "not connected when the final model was told"


def tell_final_model(roster: Roster, agreement: Agreement, model: str) -> None:
    """Send the final model's digest to all clients; write their signed confirmations, or why there is none.

    Clients with either in the ledger are not asked again.
    """
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    noted = {entry.document["client"] for entry in view.rejections if entry.document["stage"] == "final"}
    known = {*view.finals, *noted}
    waiting = {offer.client.name: offer for offer in agreement.offers if offer.client.name not in known}
    if any(name not in roster.node_of for name in waiting):
        roster.refresh()
    offer_at = {roster.node_of[name]: offer for name, offer in waiting.items() if name in roster.node_of}
    reasons = {name: LATE if name in roster.node_of else AWAY for name in waiting}
    items: list[Item] = []
    messages = [query_message(FINAL, node, {"offer": offer.hash, "model": model}) for node, offer in offer_at.items()]
    for node, reply in roster.ask(messages, timeout=min(REPLY_TIMEOUT, agreement.terms.round_seconds)):
        offer = offer_at.get(node)
        if offer is None or offer.client.name not in waiting:
            continue
        name = offer.client.name
        word = _word_or_reason(reply, offer, model)
        if isinstance(word, str):
            reasons[name] = word
            continue
        items.append(Item(roster.job_name, "final", name, word))
        del waiting[name]
    roster.ledger.append_all([*items, *(_absence(roster.job_name, name, reasons[name]) for name in waiting)])


def _word_or_reason(reply: Message, offer: Offer, model: str) -> dict[str, object] | str:
    """The client's signed confirmation of the final model, or the reason why the reply is none."""
    document = document_or_reason(reply)
    if isinstance(document, str):
        return document
    word = document.get("word")
    if not isinstance(word, dict):
        return "its word on the final model is no document"
    fault = final_fault(word, offer)
    if fault is None and word["document"]["model"] != model:
        fault = "it is of another model than the final one"
    return word if fault is None else fault


def _absence(job: str, client: str, reason: str) -> Item:
    document = {"stage": "final", "round": None, "client": client, "node": None, "reason": reason}
    return Item(job, "rejection", f"final/{client}", document)


OPPOSED_LIMIT = -0.5  # of `alignments`: models of random labels are near 0, a good model times −1 is below −1
RELATIVE_TOLERANCE = 1e-5  # computers add floating-point numbers in different orders
OPPOSED = "scores classes lower where they are right"
SHIFT_TOLERANCE = 1e-2  # of a shift, in standard deviations of solo losses


def test_loss(
    model: Model,
    params: Params,
    test: LabeledSamples,
    samples: int,
    secret: str,
    calibration: ScoreCalibration | None,
) -> float:
    """f(w_T, ξ): the mean loss over `samples` draws with replacement from the test set, determined by the secret.

    With a calibration, that of the calibrated model.
    """
    drawn = below(bits(key(draw_seed(secret), Purpose.TEST), samples), len(test))
    if calibration is None:
        return model.loss(params, test.features[drawn], test.labels[drawn])
    losses = calibration.losses(model.scores(params, test.features), test.labels)
    return float(losses[drawn].mean())


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How the models of a job are tested: on the test set, and if `pilot` is given with a calibration fitted on it."""

    model: Model
    test: LabeledSamples
    pilot: LabeledSamples | None = None

    def calibration(self, params: Params) -> ScoreCalibration | None:
        """The calibration that belongs to this model."""
        return None if self.pilot is None else fit_calibration(self.model, params, self.pilot)

    def loss_and_accuracy(self, params: Params) -> tuple[float, float]:
        """On the whole test set."""
        calibration, test = self.calibration(params), self.test
        if calibration is None:
            loss = self.model.loss(params, test.features, test.labels)
            return loss, self.model.accuracy(params, test.features, test.labels)
        return calibration.loss_and_accuracy(self.model.scores(params, test.features), test.labels)

    def document(self, params: Params, samples: int, secret: str, test_set: str) -> dict[str, object]:
        """Test the final model; return the test's ledger document, which reveals the committed test set and secret."""
        calibration = self.calibration(params)
        raw, loss = (test_loss(self.model, params, self.test, samples, secret, own) for own in (None, calibration))
        if not np.isfinite(loss):
            raise InputError("the final model has no finite loss; such a job cannot be settled.")
        document: dict[str, object] = {
            "model": model_digest(params),
            "test_set": test_set,
            "samples": samples,
            "secret": secret,
            "loss": loss,
            "accuracy": self.loss_and_accuracy(params)[1],
        }
        return (
            document
            if calibration is None
            else document
            | {
                "raw_loss": raw,
                "calibration": calibration.document(),
            }
        )


def published_files(folder: Path, job: str) -> tuple[Path, Path]:
    """The paths of a job's final model and of its test set."""
    return folder / "models" / f"{job}.npy", folder / "models" / f"{job}-test.npz"


def solo_file(models: Path, job: str) -> Path:
    """The path of a job's solo models; `models` is the folder of published files."""
    return models / f"{job}-solo.npy"


def mean_of_solo_models(view: JobView, path: Path) -> Params:
    """The mean of the solo models of those who passed, with the weights of the joint training, from this file."""
    assert view.agreement is not None
    assert view.taking_part is not None
    weights, models = joint_weights(view.agreement, view.taking_part), read_npy(path)
    rows = [row for row, offer in enumerate(view.agreement.offers) if offer.client.name in weights]
    fault = _models_fault(view, models, rows)
    if fault:
        raise InputError(f"{path} {fault}.")
    return solo_mean(models[rows], list(weights.values()))


def _models_fault(view: JobView, models: NDArray[Any], rows: Sequence[int]) -> str:
    """How the solo models of the offers in these rows differ from the ledger's; "" if they do not."""
    assert view.agreement is not None
    if models.dtype != np.float32 or models.ndim != 2 or len(models) != len(view.agreement.offers):
        return "does not hold the solo models"
    for row in rows:
        name = view.agreement.offers[row].client.name
        if model_digest(models[row]) != view.auditions[name].document["model"]:
            return f"does not hold the model with which {name} auditioned"
    return ""


def publish_model(
    folder: Path, job: str, params: Params, test: LabeledSamples, calibration: ScoreCalibration | None = None
) -> None:
    """Write the final model, its calibration if it has one, and the test set, each atomically."""
    model_file, test_file = published_files(folder, job)
    write_file(model_file, npy_bytes(params))
    if calibration is not None:
        write_file(model_file.with_name(f"{job}-calibration.json"), json.dumps(calibration.document()).encode())
    arrays = {features_name(isinstance(test, LabeledImages)): test.features, "labels": test.labels}
    write_file(test_file, npz_bytes(arrays, compressed=True))


def features_name(pictures: bool) -> str:
    """The name of the test set's features in its file."""
    return "images" if pictures else "features"


def audit(view: JobView, model_file: Path, test_file: Path, own: TaskChoice | None = None) -> str | None:
    """Check the draws of the rounds and recompute the test loss from these files; return the first fault or None.

    own  the task, if it is a custom one
    """
    if view.test is None or view.agreement is None:
        raise InputError(f"job {view.name} has not been tested yet; there is nothing to recompute.")
    recorded, terms = view.test.document, view.agreement.terms
    assert view.taking_part is not None
    for number, entry in enumerate(view.rounds):
        drawn = asked_field(view.taking_part, offers_in_round(view.taking_part, number))
        if drawn.get("asked") != entry.document.get("asked"):
            return f"round {number + 1} asked other clients than the seed draws"
    if view.ended is not None and view.ended.document["asked"] != asked_by_contract(view.taking_part):
        return "the entry that the job ended counts other rounds than the seed draws"
    params = read_npy(model_file)
    if params.dtype != np.float32:
        raise InputError(f"{model_file} is no model; it must be the .npy file that the operator published.")
    if model_digest(params) != recorded["model"]:
        return f"{model_file} is not the model that was tested"
    try:
        model = model_of(terms, own)
    except OtherTaskError as error:
        return f"its {error.difference}"
    name = features_name(terms.task is None)
    arrays = read_npz(test_file, [name, "labels"])
    test = LabeledSamples(arrays[name], arrays["labels"], terms.classes)
    if test_set_digest(test.features, test.labels) != recorded["test_set"]:
        return f"{test_file} is not the test set that the server committed itself to"
    if terms.calibrated != ("calibration" in recorded):
        return "the terms and the test disagree on whether the model has a calibration"
    losses = {"loss": calibration_of(recorded["calibration"], len(terms.classes)) if terms.calibrated else None}
    losses |= {"raw_loss": None} if terms.calibrated else {}
    for name, calibration in losses.items():
        loss = test_loss(model, params, test, recorded["samples"], recorded["secret"], calibration)
        if not math.isclose(loss, recorded[name], rel_tol=RELATIVE_TOLERANCE):  # never, if it is not a number
            return f"the {name.replace('_', ' ')} is {recorded[name]!r} in the ledger; recomputed it is {loss!r}"
    solo_models = solo_file(model_file.parent, view.name)
    fault = _solo_fault(view, solo_models, test, model) if terms.has_solo_models else None
    return fault or _start_fault(view, model, solo_models)


def _start_fault(view: JobView, model: Model, solo_models: Path) -> str | None:
    """Recompute the model from which training starts."""
    assert view.test is not None
    assert view.agreement is not None
    assert view.taking_part is not None
    terms, lost = view.agreement.terms, view.lost_round == LOST_START
    start = model_digest(model.init(terms.seed))
    if lost and view.test.document["model"] != start:
        return "the first model is said to be lost, and another one than the common start was tested"
    if terms.starts_from_solo_models and view.taking_part.offers and not lost:
        start = model_digest(mean_of_solo_models(view, solo_models))
    if not view.rounds and start != view.test.document["model"]:
        return "the model that was tested is not the one from which training starts, and there were no rounds"
    if view.rounds and view.rounds[0].document["previous"] != start and not lost:
        return "the first round started from another model than the one of the terms"
    return None


def tested_losses(model: Model, models: Sequence[Params], test: LabeledSamples, secret: str) -> list[float]:
    """The losses of solo models, on the part of the test set that the secret draws."""
    if not models:
        return []
    return [float(loss) for loss in solo_losses(model, np.stack(models), test, draw_seed(secret))]


def opposed(
    terms: JobTerms,
    model: Model,
    models: Sequence[Params],
    test: LabeledSamples,
    secret: str,
    limit: float = OPPOSED_LIMIT,
) -> list[bool]:
    """Which solo models score classes lower where they are right; none where training does not start from their mean.

    limit  of `alignments`
    """
    if not terms.starts_from_solo_models or not models:
        return [False] * len(models)
    return [bool(one < limit) for one in alignments(model, np.stack(models), test, draw_seed(secret))]


def _solo_fault(view: JobView, path: Path, test: LabeledSamples, model: Model) -> str | None:
    """Recompute digests, commitments, losses and the shifts of their level from the solo models in this file."""
    assert view.test is not None
    assert view.agreement is not None
    offers, terms = view.agreement.offers, view.agreement.terms
    recorded = [view.auditions[offer.client.name].document for offer in offers]
    present = [row for row, document in enumerate(recorded) if document["model"] is not None]
    if not present:
        return None
    models = read_npy(path)
    fault = _models_fault(view, models, present)
    if fault or models.shape[1] != len(model.init(terms.seed)):
        return f"{path} {fault or 'does not hold the solo models'}"
    for row in present:
        document, name = recorded[row], offers[row].client.name
        if terms.solo_bound and solo_length(models[row]) > terms.solo_bound:
            return f"{name}'s solo model is longer than the {terms.solo_bound:.3g} of the terms, and was taken"
        committed = view.commitments[name].document["commitment"]
        if audition_commitment(offers[row].hash, document["salt"], models[row]) != committed:
            return f"{name} committed to another model"
    against = opposed(terms, model, list(models[present]), test, view.test.document["secret"], 1.01 * OPPOSED_LIMIT)
    if any(against):
        return f"the solo model of {offers[present[against.index(True)]].client.name} {OPPOSED}, and was taken"
    losses = tested_losses(model, list(models[present]), test, view.test.document["secret"])
    recomputed: dict[str, float | None] = {offer.client.name: None for offer in offers}
    for row, loss in zip(present, losses, strict=True):
        document, name = recorded[row], offers[row].client.name
        recomputed[name] = None if document["solo_loss"] is None else loss
        tested = view.holds[name].document["solo_loss"] if name in view.holds else document["solo_loss"]
        if abs(loss - tested) > RELATIVE_TOLERANCE * abs(loss):
            return f"{name}'s solo loss is {tested!r} in the ledger; recomputed it is {loss!r}"
    shifts = level_shifts(offers, recomputed)
    for document in recorded:
        shift = shifts[document["client"]]
        if abs(shift - document["level_shift"]) > SHIFT_TOLERANCE:
            return f"{document['client']}'s level shift is {document['level_shift']!r}; recomputed it is {shift!r}"
    return None
