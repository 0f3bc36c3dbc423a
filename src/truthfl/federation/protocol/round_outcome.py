"""The outcome of a round: the model, whose reports were taken, and why others were not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from truthfl.learning.model import Params
from truthfl.ledger.entry import Item
from truthfl.ledger.round_terms import NOT_CONNECTED, NOT_IN_TIME

Rejection = tuple[str | None, int | None, str]
"""Client, node, reason; the client is None if the node belongs to no client of the contract."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """The model after a round, the names of clients whose reports were taken, and the rejections.

    marks    by name: what tells a report from another (`report_mark`), of all that arrived
    refused  why the round, or a part of it, did not change the model though reports were taken; None if it did
    """

    params: Params
    taken: list[str]
    rejected: list[Rejection]
    refused: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


def missing_reports(
    node_of: Mapping[str, int | None], taken: Collection[str], rejected: list[Rejection]
) -> list[Rejection]:
    """A rejection for each client who sent no reply at all."""
    replied = {client for client, _, _ in rejected} | set(taken)
    return [
        (client, node, NOT_CONNECTED if node is None else NOT_IN_TIME)
        for client, node in node_of.items()
        if client not in replied
    ]


def rejection_item(job: str, round_: int, rejection: Rejection) -> Item:
    """The ledger item for a rejected report."""
    client, node, reason = rejection
    key = f"round/{round_}/{client or node}/{'again' if reason.startswith('duplicated') else 'first'}"
    document = {"stage": "round", "round": round_, "client": client, "reason": reason}
    return Item(job, "rejection", key, document | {"node": None if node is None else str(node)})
