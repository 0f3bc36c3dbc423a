"""The first format of offers, 29 fields side by side, read as job and client terms so that old ledgers still check.

Nothing writes this format any more. Imports `canonical` for the document's type.
"""

from __future__ import annotations

from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document

OF_THE_JOB = (
    "version",
    "formula",
    "dropping_out",
    "operator_key",
    "model",
    "image_shape",
    "classes",
    "rounds",
    "local_steps",
    "step_size",
    "seed",
    "expected_loss",
    "loss_error",
    "commitment",
    "test_samples",
    "label_seconds",
    "round_seconds",
    "currency",
)
OF_THE_CLIENT = (
    "index",
    "public_key",
    "samples",
    "batch_size",
    "weight",
    "participation",
    "sample_cost",
    "loss_share",
)
PAY = ("base", "slope", "labeling_cost")
NAMED_OTHERWISE = ("kind", "job", "client", "terms")


def is_flat(document: Document) -> bool:
    """Whether this document is an offer, or meant as one, in the first format."""
    return document.get("kind") == "offer" and "format" not in document


def nested(document: Document) -> dict[str, Any]:
    """The same offer in the present format."""
    wanted = {*NAMED_OTHERWISE, *OF_THE_JOB, *OF_THE_CLIENT}
    if set(document) != wanted:
        missing, extra = sorted(wanted - set(document)), sorted(set(map(str, document)) - wanted)
        lacks, unknown = ", ".join(missing) or "nothing", ", ".join(extra) or "nothing"
        raise InputError(f"this is no offer: it lacks {lacks}, and {unknown} is unknown.")
    terms = document["terms"]
    if not isinstance(terms, dict) or set(terms) != {*PAY, "minor_units"}:
        raise InputError("this is no offer: its terms are not base, slope, labeling_cost and minor_units.")
    job = {name: document[name] for name in OF_THE_JOB}
    client = {name: document[name] for name in OF_THE_CLIENT}
    job |= {"name": document["job"], "contract": "lceme", "minor_units": terms["minor_units"]}
    client |= {"name": document["client"], "labeling_cost": terms["labeling_cost"]}
    client["pay"] = {name: terms[name] for name in PAY}
    return {"kind": "offer", "format": 2, "job": job, "client": client}
