"""What is published after a job, and how anyone who has it recomputes the loss that pay was computed from.

The final model and the test set are files; the book has their hashes, and the secret that says what was drawn. Looks at
`recorder` (the model's hash), `participant` (the offer's model), `learning` and the ledger.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.protocol.job_model import model_of
from truthfl.federation.protocol.recorder import model_digest
from truthfl.federation.protocol.rounds import asked_in, asked_of
from truthfl.files import write_file
from truthfl.learning.array_files import npy_bytes, npz_bytes, read_npy, read_npz
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model, Params
from truthfl.ledger.commitment import draw_seed, test_set_digest
from truthfl.ledger.job_view import JobView

SAME = 1e-5  # relative: machines add floating-point numbers up in different orders


def test_loss(model: Model, params: Params, test: LabeledImages, samples: int, secret: str) -> float:
    """f(w_T, ξ): the mean loss over so many draws, with replacement, from the test set; the secret says which."""
    drawn = below(bits(key(draw_seed(secret), Purpose.TEST), samples), len(test))
    return model.loss(params, test.images[drawn], test.labels[drawn])


def published(folder: Path, job: str) -> tuple[Path, Path]:
    """Where a job's final model and its test set are."""
    return folder / "models" / f"{job}.npy", folder / "models" / f"{job}-test.npz"


def publish_model(folder: Path, job: str, params: Params, test: LabeledImages) -> None:
    """Write both, each whole or not at all."""
    model_file, test_file = published(folder, job)
    write_file(model_file, npy_bytes(params))
    write_file(test_file, npz_bytes({"images": test.images, "labels": test.labels}, compressed=True))


def audit(found: JobView, model_file: Path, test_file: Path) -> str | None:
    """What is wrong with the tested loss, recomputed from these files; None if nothing is."""
    if found.test is None or found.agreement is None:
        raise InputError(f"job {found.name} has not been tested yet; there is nothing to recompute.")
    said, terms = found.test.document, found.agreement.terms
    for number, entry in enumerate(found.rounds):
        drawn = asked_of(found.agreement, asked_in(found.agreement, number))
        if drawn.get("asked") != entry.document.get("asked"):
            return f"round {number + 1} asked other clients than the seed draws"
    params = read_npy(model_file)
    if params.dtype != np.float32:
        raise InputError(f"{model_file} is no model; it must be the .npy file that the operator published.")
    if model_digest(params) != said["model"]:
        return f"{model_file} is not the model that was tested"
    arrays = read_npz(test_file, ["images", "labels"])
    test = LabeledImages(arrays["images"], arrays["labels"], terms.classes)
    if test_set_digest(test.images, test.labels) != said["test_set"]:
        return f"{test_file} is not the test set that the server committed itself to"
    loss = test_loss(model_of(terms), params, test, said["samples"], said["secret"])
    if abs(loss - said["loss"]) > SAME * abs(loss):
        return f"the loss is {said['loss']!r} in the book; recomputed it is {loss!r}"
    return None
