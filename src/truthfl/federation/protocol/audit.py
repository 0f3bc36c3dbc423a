"""Publish the final model and the test set of a job, and recompute the recorded test loss from them.

The ledger has the hashes of both files and, after the test, the secret that determines the test draw. Imports
`job_model`, `recorder`, `rounds`, `files`, `learning` and the ledger.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.protocol.job_model import model_of
from truthfl.federation.protocol.recorder import model_digest
from truthfl.federation.protocol.rounds import asked_field, offers_in_round
from truthfl.files import write_file
from truthfl.learning.array_files import npy_bytes, npz_bytes, read_npy, read_npz
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model, Params
from truthfl.ledger.commitment import draw_seed, test_set_digest
from truthfl.ledger.job_view import JobView

RELATIVE_TOLERANCE = 1e-5  # machines add floating-point numbers in different orders


def test_loss(model: Model, params: Params, test: LabeledImages, samples: int, secret: str) -> float:
    """f(w_T, ξ): the mean loss over `samples` draws with replacement from the test set, determined by the secret."""
    drawn = below(bits(key(draw_seed(secret), Purpose.TEST), samples), len(test))
    return model.loss(params, test.images[drawn], test.labels[drawn])


def published_files(folder: Path, job: str) -> tuple[Path, Path]:
    """The paths of a job's final model and of its test set."""
    return folder / "models" / f"{job}.npy", folder / "models" / f"{job}-test.npz"


def publish_model(folder: Path, job: str, params: Params, test: LabeledImages) -> None:
    """Write the final model and the test set, each atomically."""
    model_file, test_file = published_files(folder, job)
    write_file(model_file, npy_bytes(params))
    write_file(test_file, npz_bytes({"images": test.images, "labels": test.labels}, compressed=True))


def audit(view: JobView, model_file: Path, test_file: Path) -> str | None:
    """Check the draws of the rounds and recompute the test loss from these files; return the first fault or None."""
    if view.test is None or view.agreement is None:
        raise InputError(f"job {view.name} has not been tested yet; there is nothing to recompute.")
    recorded, terms = view.test.document, view.agreement.terms
    for number, entry in enumerate(view.rounds):
        drawn = asked_field(view.agreement, offers_in_round(view.agreement, number))
        if drawn.get("asked") != entry.document.get("asked"):
            return f"round {number + 1} asked other clients than the seed draws"
    params = read_npy(model_file)
    if params.dtype != np.float32:
        raise InputError(f"{model_file} is no model; it must be the .npy file that the operator published.")
    if model_digest(params) != recorded["model"]:
        return f"{model_file} is not the model that was tested"
    arrays = read_npz(test_file, ["images", "labels"])
    test = LabeledImages(arrays["images"], arrays["labels"], terms.classes)
    if test_set_digest(test.images, test.labels) != recorded["test_set"]:
        return f"{test_file} is not the test set that the server committed itself to"
    loss = test_loss(model_of(terms), params, test, recorded["samples"], recorded["secret"])
    if abs(loss - recorded["loss"]) > RELATIVE_TOLERANCE * abs(loss):
        return f"the loss is {recorded['loss']!r} in the ledger; recomputed it is {loss!r}"
    return None
