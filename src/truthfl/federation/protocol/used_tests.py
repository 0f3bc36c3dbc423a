"""Test samples that were published with an earlier job are not used again: who saw them can train on them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import numpy as np

from truthfl.errors import InputError, TruthflError
from truthfl.federation.protocol.audit import features_name, published_files
from truthfl.job import DataJob
from truthfl.learning.array_files import read_npz
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Features
from truthfl.ledger.book import Ledger
from truthfl.ledger.commitment import test_set_digest


def require_new_test_set(ledger: Ledger, folder: Path, job: DataJob) -> None:
    """Raise InputError if test samples of this job, which has not begun, were published with one of the ledger's.

    The ledger has digests of whole test sets; single samples are compared where the folder still has the file.
    """
    tested = [(name, entry) for name in ledger.jobs() if (entry := ledger.find(name, "test", "test")) is not None]
    if not tested:
        return
    test = job.server_side().test
    test_set, own = test_set_digest(test.features, test.labels), set(_digests(test.features))
    for name, entry in tested:
        if entry.document["test_set"] == test_set:
            _refuse(name, len(test), len(test))
        published = _published(published_files(folder, name)[1], isinstance(test, LabeledImages))
        again = 0 if published is None else len(own & set(_digests(published)))
        if again:
            _refuse(name, again, len(test))


def _refuse(earlier: str, again: int, samples: int) -> None:
    raise InputError(
        f"{again:,} of the {samples:,} test samples were published with job {earlier}, so that participants may have "
        "trained on them; give this job test samples that are new."
    )


def _published(path: Path, pictures: bool) -> Features | None:
    """The features of a published test set; None if it is not there, or of another kind of samples."""
    name = features_name(pictures)
    try:
        return read_npz(path, [name])[name]
    except TruthflError:
        return None


def _digests(features: Features) -> Iterable[bytes]:
    """A digest of each sample's features, whatever its label."""
    kind = f"{features.dtype.str}{features.shape[1:]}".encode()
    return (sha256(kind + np.ascontiguousarray(one).tobytes()).digest() for one in features)
