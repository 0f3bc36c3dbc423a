"""Reading of offers in earlier formats, which old ledgers have.

The first is a flat document, the second has a part of the loss model, the third is as the present one, without the
operator's signature. These formats are not written any more. Imports `canonical` for the document's type.
"""

from __future__ import annotations

from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document

JOB_FIELDS = (
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
CLIENT_FIELDS = (
    "index",
    "public_key",
    "samples",
    "batch_size",
    "weight",
    "participation",
    "sample_cost",
    "loss_share",
)
PAY_FIELDS = ("base", "slope", "labeling_cost")
OTHER_FIELDS = ("kind", "job", "client", "terms")  # they have other names or another place in the present format


def is_flat(document: Document) -> bool:
    """Whether this document claims to be an offer in the first format."""
    return document.get("kind") == "offer" and "format" not in document


def in_present_format(document: Document) -> Document:
    """The same offer as a document in the present format; unchanged if it is in that format, or none."""
    later = _nested(document) if is_flat(document) else document
    if later.get("format") == 3:
        return {**later, "format": 4}
    client = later.get("client")
    if later.get("format") != 2 or not isinstance(client, dict):
        return later
    if "loss_share" not in client:
        raise InputError("this is no offer: its client lacks loss_share.")
    return {**later, "format": 4, "client": {name: client[name] for name in client if name != "loss_share"}}


def _nested(document: Document) -> dict[str, Any]:
    """An offer in the first format as a document in the second."""
    expected = {*OTHER_FIELDS, *JOB_FIELDS, *CLIENT_FIELDS}
    if set(document) != expected:
        missing, extra = sorted(expected - set(document)), sorted(set(map(str, document)) - expected)
        lacks, unknown = ", ".join(missing) or "nothing", ", ".join(extra) or "nothing"
        raise InputError(f"this is no offer: it lacks {lacks}, and {unknown} is unknown.")
    terms = document["terms"]
    if not isinstance(terms, dict) or set(terms) != {*PAY_FIELDS, "minor_units"}:
        raise InputError("this is no offer: its terms are not base, slope, labeling_cost and minor_units.")
    job = {name: document[name] for name in JOB_FIELDS}
    client = {name: document[name] for name in CLIENT_FIELDS}
    job |= {"name": document["job"], "contract": "lceme", "minor_units": terms["minor_units"]}
    client |= {"name": document["client"], "labeling_cost": terms["labeling_cost"]}
    client["pay"] = {name: terms[name] for name in PAY_FIELDS}
    return {"kind": "offer", "format": 2, "job": job, "client": client}
